//! The private duplicate of a communicator: made lazily, by `MPI_Comm_idup`, at the first own collective.
//!
//! A blocking duplicate inside a non-blocking collective deadlocks lawful programs. One extra context per
//! communicator is all that dlmpi takes; MPICH has about two thousand.

use std::time::{Duration, Instant};

use mpi_runtime::{Mpi, PendingComm, Request, StatusPtr};

use crate::error::Result;
use crate::wiretype::byte;

/// After this long a rank that waits for the others says what may keep them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stages of a private duplicate.
#[derive(Debug)]
pub(crate) enum Private {
    /// Not asked for yet.
    Absent,
    /// `MPI_Comm_idup` is under way.
    Pending(PendingComm, Request),
    /// There.
    Ready(mpi_runtime::Comm),
}

/// Whether a duplicate under way must be waited for when its parent is freed, or before the caller's own
/// non-blocking collectives run there. Open MPI makes duplicates of such collectives on the parent. It deletes attributes at
/// once and then frees what the pending `Idup` still uses. MPICH deletes them when the last operation on
/// the parent has ended, perhaps inside its progress engine, where a wait would never return.
pub(crate) fn must_wait(mpi: &Mpi) -> bool {
    mpi.library_version().contains("Open MPI")
}

/// Nothing that is sent can tell such ranks apart from ranks that are slow, so this is no error.
fn waiting(mpi: &Mpi) {
    let rank = mpi.comm_rank(mpi.comm_world()).unwrap_or(-1);
    eprintln!(
        "dlmpi: rank {rank} waits since {} s for the others' first collective on a communicator. Ranks with \
         DLMPI_COLLECTIVES=mpi and ranks of plain mpi4py never answer: give all ranks the same setting, or mark the \
         communicator on all by dlmpi.wrap(comm, collectives=\"mpi\"). DLMPI_TIMEOUT ends such waits.",
        PATIENCE.as_secs()
    );
}

/// The library's own error if the communicator was revoked: that of a message to nobody.
pub(crate) fn in_use(mpi: &Mpi, comm: mpi_runtime::Comm) -> Result<()> {
    let nobody = mpi.constants().proc_null;
    // SAFETY:
    // - no element is read.
    Ok(unsafe { mpi.send(std::ptr::null(), 0, byte(mpi), nobody, 0, comm) }?)
}

impl Private {
    /// Starts the duplicate unless that was done; every rank does so at the same call of the communicator.
    pub fn begin(&mut self, mpi: &Mpi, user: mpi_runtime::Comm) -> Result<()> {
        if matches!(self, Private::Absent) {
            // Open MPI begins a duplicate of a revoked communicator and never ends it.
            in_use(mpi, user)?;
            let (pending, request) = mpi.comm_idup(user)?;
            *self = Private::Pending(pending, request);
        }
        Ok(())
    }

    /// The duplicate, if it is there by now; `block` waits for it.
    pub fn poll(&mut self, mpi: &Mpi, block: bool) -> Result<Option<mpi_runtime::Comm>> {
        if let Private::Pending(_, request) = self {
            let ignore = StatusPtr::ignore();
            let until = Instant::now() + PATIENCE;
            // SAFETY:
            // - the request is ours, started in `begin`, and not completed elsewhere.
            while !unsafe { mpi.test(request, ignore) }? {
                if !block {
                    return Ok(None);
                }
                std::thread::yield_now();
                if Instant::now() > until {
                    waiting(mpi);
                    // SAFETY:
                    // - as above.
                    unsafe { mpi.wait(request, ignore) }?;
                    break;
                }
            }
            if let Private::Pending(pending, _) = std::mem::replace(self, Private::Absent) {
                // SAFETY:
                // - its request has just completed.
                let comm = unsafe { pending.into_comm(mpi) };
                *self = Private::Ready(comm);
                // Errors on it come back as codes; state.rs hands them to the user's error handler.
                mpi.comm_set_errhandler(comm, mpi.errors_return())?;
            }
        }
        Ok(match self {
            Private::Ready(comm) => Some(*comm),
            _ => None,
        })
    }

    /// Gives the context back. A duplicate that is still under way inside MPICH's progress is left to it.
    pub fn free(&mut self, mpi: &Mpi) {
        let ready = self.poll(mpi, must_wait(mpi));
        if let Ok(Some(mut comm)) = ready {
            *self = Private::Absent;
            // SAFETY:
            // - the handle is private to this value, which forgets it here. A failure leaves nothing to do.
            let _ = unsafe { mpi.comm_free(&mut comm) };
        }
    }
}
