//! A request that leaves its scope.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut sum = vec![1f32; 8];
    let request = dlmpi::scope(|scope| world.immediate_all_reduce(scope, &mut sum, Op::Sum))?;
    request.wait().map(|_| ())
}
