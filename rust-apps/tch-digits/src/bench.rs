//! Times `average_grads` against one raw `MPI_Allreduce` of the same bytes, interleaved in one run, medians.
//!
//!     mpiexec -n 2 tch_bench

use std::time::Instant;

use dlmpi::tch::average_grads;
use dlmpi::tch::torch::nn::{Init, VarStore};
use dlmpi::tch::torch::{Device, Kind};
use dlmpi::{Comm, Op, Result};
use mpi_runtime::{Basic, BuiltinOp, Mpi};

/// Variables of the model, elements of each, and how often it is timed.
const MODELS: [(usize, i64, usize); 8] = [
    (2, 128, 301),
    (4, 1_200, 301),
    (4, 4_096, 101),
    (8, 8_192, 101),
    (8, 32_768, 51),
    (10, 104_858, 31),
    (10, 838_861, 15),
    (16, 1_048_576, 11),
];

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Time of one call, the slowest rank's.
fn timed(comm: &Comm<'_>, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    comm.barrier()?;
    let start = Instant::now();
    work()?;
    let mut took = start.elapsed().as_secs_f64();
    comm.all_reduce(&mut took, Op::Max)?;
    Ok(took)
}

fn main() -> Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mpi = Mpi::global().expect("dlmpi has opened it");
    let float = mpi.datatype(Basic::Float).expect("every MPI has MPI_FLOAT");
    for (variables, elements, turns) in MODELS {
        let vars = VarStore::new(Device::Cpu);
        for index in 0..variables {
            let made = vars
                .root()
                .f_var(&format!("v{index}"), &[elements], Init::Const(1.0));
            made.expect("a variable").sum(Kind::Float).backward();
        }
        let total = variables * elements as usize;
        let mut flat = vec![1f32; total];
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for turn in 0..turns + 3 {
            let plain = timed(&world, || {
                // SAFETY:
                // - `flat` holds `total` floats on every rank, and the call returns when they are reduced.
                Ok(unsafe {
                    mpi.allreduce(
                        mpi.in_place(),
                        flat.as_mut_ptr().cast(),
                        total as i64,
                        float,
                        mpi.op(BuiltinOp::Sum),
                        mpi.comm_world(),
                    )
                }?)
            })?;
            flat.fill(1.0);
            let averaged = timed(&world, || average_grads(&world, &vars))?;
            // The first ones make what is kept.
            if turn >= 3 {
                raw.push(plain);
                ours.push(averaged);
            }
        }
        if world.rank() == 0 {
            let (raw, ours) = (median(raw), median(ours));
            println!(
                "{variables:3} variables, {:8} bytes: MPI_Allreduce {:9.1} us, average_grads {:9.1} us, ratio {:.2}",
                4 * total,
                1e6 * raw,
                1e6 * ours,
                ours / raw
            );
        }
    }
    Ok(())
}
