//! The private duplicate of a communicator: made lazily, by `MPI_Comm_idup`, at the first own collective.
//!
//! A blocking duplicate inside a non-blocking collective deadlocks lawful programs. One extra context per
//! communicator is all that dlmpi takes; MPICH has about two thousand.

use mpi_runtime::{Mpi, PendingComm, Request, StatusPtr};

use crate::error::Result;
use crate::wiretype::byte;

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

    /// Whether it is under way.
    pub fn is_pending(&self) -> bool {
        matches!(self, Private::Pending(..))
    }

    /// The duplicate, if it is there by now.
    pub fn poll(&mut self, mpi: &Mpi) -> Result<Option<mpi_runtime::Comm>> {
        if let Private::Pending(_, request) = self {
            // SAFETY:
            // - the request is ours, started in `begin`, and not completed elsewhere.
            if !unsafe { mpi.test(request, StatusPtr::ignore()) }? {
                return Ok(None);
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
        let mut ready = self.poll(mpi);
        while must_wait(mpi) && self.is_pending() && ready.is_ok() {
            std::thread::yield_now();
            ready = self.poll(mpi);
        }
        if let Ok(Some(mut comm)) = ready {
            *self = Private::Absent;
            // SAFETY:
            // - the handle is private to this value, which forgets it here. A failure leaves nothing to do.
            let _ = unsafe { mpi.comm_free(&mut comm) };
        }
    }
}
