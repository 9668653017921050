//! A description of memory that is acted on when the memory is gone: who does so has to promise that it is there.

use dlmpi::Tensor;
use tensor_comm::{Arg, Call, CallKind, Part};

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let gone = vec![1f32; 8].lend()?.view().clone();
    let mpi = mpi_runtime::Mpi::global().unwrap();
    let comm = tensor_comm::Comm::new(mpi, mpi.comm_world()).unwrap();
    let mut call = Call::new(CallKind::Bcast);
    call.recv = Arg::Part(Part::whole(gone));
    let _ = tensor_comm::run(&comm, &call);
    drop(universe);
    Ok(())
}
