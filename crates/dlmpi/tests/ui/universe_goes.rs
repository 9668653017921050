//! MPI that ends while an operation is under way.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let mut universe = Some(dlmpi::initialize()?);
    let mut sum = [1f32; 8];
    dlmpi::scope(|scope| {
        if let Some(universe) = &universe {
            let request = universe.world().immediate_all_reduce(scope, &mut sum, Op::Sum)?;
            std::mem::forget(request);
        }
        universe = None;
        Ok(())
    })
}
