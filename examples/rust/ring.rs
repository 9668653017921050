//! Every rank passes its row on, round the ring, until each has seen them all.
//!
//!     cargo run -p dlmpi-examples --bin ring
//!     mpiexec -n 3 target/debug/ring
//!
//! The program links no MPI: it opens the one of the launcher at run time.

use dlmpi::ndarray::{Array2, Axis};
use dlmpi::{Op, Result};

fn main() -> Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size() as i32);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);

    // A column of a matrix: its elements are apart in memory, which is no matter.
    let mut seen = Array2::<f32>::zeros((5, size as usize));
    seen.column_mut(rank as usize).fill(rank as f32);
    for step in 0..size - 1 {
        let (mine, next) = (
            (rank + size - step) % size,
            (rank + 2 * size - step - 1) % size,
        );
        let send = seen.column(mine as usize).to_owned();
        world.sendrecv(
            &send,
            right,
            step,
            &mut seen.column_mut(next as usize),
            left,
            step,
        )?;
    }

    let expected = (0..size).map(|r| r as f32).sum::<f32>();
    let right_here = seen.sum_axis(Axis(1)).iter().all(|sum| *sum == expected);
    let mut right_everywhere = u8::from(right_here);
    world.all_reduce(&mut right_everywhere, Op::Min)?;
    world.agree(match right_everywhere {
        1 => Ok(()),
        _ => Err("a row did not arrive as it was sent"),
    })?;
    if rank == 0 {
        println!("{size} rows went round {size} ranks: {expected} in every place");
    }
    Ok(())
}
