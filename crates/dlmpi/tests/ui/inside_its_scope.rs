//! A tensor that goes before its scope ends, with a request that nobody waits for.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    dlmpi::scope(|scope| {
        let mut inside = vec![1f32; 8];
        std::mem::forget(world.immediate_all_reduce(scope, &mut inside, Op::Sum)?);
        Ok(())
    })
}
