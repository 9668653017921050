//! Where the ranks of a communicator run: found out once, by one small reduction on the user's
//! communicator, at the first blocking call whose algorithm hangs on it.

use mpi_runtime::{Basic, BuiltinOp, Mpi};

use crate::agreed::Place;
use crate::comm::Comm;
use crate::error::{Result, value_error};

/// Asks all ranks. Every rank must do so at the same call.
pub(crate) fn agree(comm: Comm) -> Result<Place> {
    let mpi = comm.mpi();
    let node = node(mpi);
    // Maxima of a number and of its complement: all have the same one if they are each other's.
    let own = [node, !node, !(cores() as u64)];
    let mut all = [0u64; 3];
    let uint64 = mpi
        .datatype(Basic::Uint64)
        .ok_or_else(|| value_error!("this MPI has no UINT64_T"))?;
    // SAFETY:
    // - both arrays hold three uint64, apart from each other.
    unsafe {
        mpi.allreduce(
            own.as_ptr().cast(),
            all.as_mut_ptr().cast(),
            own.len() as i64,
            uint64,
            mpi.op(BuiltinOp::Max),
            comm.raw(),
        )
    }?;
    Ok(match (all[0] == !all[1], !all[2] >= comm.size()? as u64) {
        (false, _) => Place::Apart,
        (true, true) => Place::Together,
        (true, false) => Place::Crowded,
    })
}

/// A number of this node: of its name, and of its boot, since names are not always unique.
pub(super) fn node(mpi: &Mpi) -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A rank that cannot tell counts as on a node of its own: an error here would keep the others waiting.
    let name = mpi.get_processor_name().unwrap_or_default();
    digest(&[name.as_bytes(), &boot].concat())
}

/// FNV-1a: equal bytes give equal numbers.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Processors of this node that are on, whichever of them this process may use: a launcher binds each
/// rank to its own.
fn cores() -> usize {
    // SAFETY:
    // - it takes a number and gives a number.
    let on = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(on).unwrap_or(1)
}
