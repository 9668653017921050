//! A communicator that goes before the operations on it have ended.

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut row = [1f32; 8];
    dlmpi::scope(|scope| {
        let own = world.duplicate()?;
        std::mem::forget(own.immediate_recv(scope, &mut row, 0, 0)?);
        Ok(())
    })
}
