//! A tensor that is read while MPI writes it.

use dlmpi::Op;

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut sum = vec![1f32; 8];
    dlmpi::scope(|scope| {
        let request = world.immediate_all_reduce(scope, &mut sum, Op::Sum)?;
        println!("{}", sum[0]);
        request.wait().map(|_| ())
    })
}
