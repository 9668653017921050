//! The private duplicate of a communicator: made lazily, by `MPI_Comm_idup`, at the first own collective.
//!
//! A blocking duplicate inside a non-blocking collective deadlocks lawful programs. One extra context per
//! communicator is all that dlmpi takes; MPICH has about two thousand.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mpi_runtime::{Mpi, PendingComm, Request, StatusPtr};

use super::patience::Patience;
use super::state::State;
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

impl State {
    /// The private duplicate if it is there, without waiting for another rank or another thread.
    pub fn private_now(&self) -> Option<mpi_runtime::Comm> {
        if let Some(comm) = self.duplicate.get() {
            return Some(*comm);
        }
        let mut private = self.private.try_lock().ok()?;
        self.holder.store(this_thread(), Ordering::Relaxed);
        let found = private.poll(self.comm.mpi());
        self.holder.store(0, Ordering::Relaxed);
        found.ok().flatten()
    }

    /// Starts the private duplicate: every rank does so at the same call.
    pub fn begin(&self) -> Result<()> {
        if self.duplicate.get().is_some() {
            return Ok(());
        }
        self.with_private(|private, mpi| private.begin(mpi, self.comm.raw()))
            .unwrap_or(Ok(()))
    }

    /// The private duplicate; waits for it if `block`. Other threads come to it meanwhile: what the others
    /// do before they begin the duplicate may depend on operations that the engine carries here.
    pub fn private(&self, block: bool) -> Result<Option<mpi_runtime::Comm>> {
        if let Some(comm) = self.duplicate.get()
            && !self.revoked.load(Ordering::Acquire)
        {
            return Ok(Some(*comm));
        }
        let mut patience = Patience::default();
        loop {
            let got = self.with_private(|private, mpi| {
                if self.revoked.load(Ordering::Acquire) {
                    // Messages on a revoked duplicate are errors only where MPI runs fault-tolerant.
                    in_use(mpi, self.comm.raw())?;
                }
                private.begin(mpi, self.comm.raw())?;
                let comm = private.poll(mpi)?;
                Ok(comm.map(|comm| *self.duplicate.get_or_init(|| comm)))
            });
            match got {
                Some(Ok(None)) if block => patience.wait(self.comm.mpi()),
                _ => return got.unwrap_or(Ok(None)).map_err(|error| self.report(error)),
            }
        }
    }

    /// Waits for a private duplicate that is under way.
    pub fn await_pending(&self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            let got = self.with_private(|private, mpi| {
                let polled = private.poll(mpi);
                polled.map(|_| private.is_pending())
            });
            match got.unwrap_or(Ok(false)) {
                Ok(true) => patience.wait(self.comm.mpi()),
                Ok(false) => return Ok(()),
                Err(error) => return Err(self.report(error)),
            }
        }
    }

    /// Revokes the private duplicate, if it is there, on all ranks: who waits for others in it gets an error.
    pub fn revoke(&self) -> Result<()> {
        self.revoked.store(true, Ordering::Release);
        match self.private_now() {
            Some(private) => Ok(self.comm.mpi().comm_revoke(private)?),
            None => Ok(()),
        }
    }

    /// Works on the private duplicate, one thread at a time; `None` when this very thread is doing so
    /// already: MPICH deletes attributes of a freed communicator as late as inside the test that
    /// completes the last operation on it, which may be the test of the duplicate itself.
    pub(super) fn with_private<R>(
        &self,
        work: impl FnOnce(&mut Private, &'static Mpi) -> R,
    ) -> Option<R> {
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            return None;
        }
        let mut private = self.private.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(this_thread(), Ordering::Relaxed);
        let result = work(&mut private, self.comm.mpi());
        self.holder.store(0, Ordering::Relaxed);
        Some(result)
    }
}

/// A number of this thread that no other living thread has, and that is not 0.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    // After the thread's own destructors nothing of it waits any more, so 1 will do.
    PLACE
        .try_with(|place| std::ptr::from_ref(place).addr())
        .unwrap_or(1)
}
