//! Two operations that write the same memory.

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut row = vec![1f32; 8];
    dlmpi::scope(|scope| {
        let first = world.immediate_recv(scope, &mut row[..5], 0, 0)?;
        let second = world.immediate_recv(scope, &mut row[4..], 0, 1)?;
        first.wait()?;
        second.wait().map(|_| ())
    })
}
