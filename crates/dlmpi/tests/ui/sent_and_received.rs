//! Memory that one operation reads and writes as two tensors.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut row = [1f32; 8];
    world.all_reduce_into(&row, &mut row, Op::Sum)
}
