//! A tensor of an inner scope's, lent to an outer one.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    dlmpi::scope(|outer| {
        let mut sum = vec![1f32; 8];
        dlmpi::scope(|_inner| {
            let request = world.immediate_all_reduce(outer, &mut sum, Op::Sum)?;
            std::mem::forget(request);
            Ok::<(), dlmpi::Error>(())
        })
    })
}
