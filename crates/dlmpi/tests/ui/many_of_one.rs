//! A tensor that is given twice to be reduced.

use dlmpi::{Op, TensorMut};

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut row = [1f32; 8];
    let twice: [&mut dyn TensorMut; 2] = [&mut row, &mut row];
    world.all_reduce_many(twice, Op::Sum)
}
