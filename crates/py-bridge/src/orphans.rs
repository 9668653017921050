//! Operations whose Python request went before they ended: what MPI still reads or writes is kept until
//! it says that it is done.
//!
//! Nobody waits for them. They are looked at when later operations start, so that no thread is needed
//! and a program that drops requests does not pile up memory. Knows requests and cargo, no operation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi_runtime::{Mpi, Request, StatusPtr};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::cargo::Cargo;
use crate::track::Holds;

/// Orphans that one new operation looks at: more than it may add, so that they become fewer.
pub const GLANCE: usize = 4;

/// One operation without a request object.
pub struct Orphan {
    /// The library of the request.
    pub mpi: &'static Mpi,
    /// MPI's request.
    pub request: Request,
    /// Whether the request is ours to complete: a copy of a dropped object may still be waited for.
    pub owned: bool,
    /// The tensors.
    pub cargo: SmallVec<[Cargo; 2]>,
    /// Memory that nothing is left to do with.
    pub holds: Holds,
}

static ORPHANS: Mutex<VecDeque<Orphan>> = Mutex::new(VecDeque::new());
/// How many there are, so that looking at none costs nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn orphans() -> MutexGuard<'static, VecDeque<Orphan>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an operation in.
pub fn adopt(orphan: Orphan) {
    let mut orphans = orphans();
    orphans.push_back(orphan);
    COUNT.store(orphans.len(), Ordering::Relaxed);
}

/// Looks at no more than `limit` orphans and lets go of those that have ended.
#[inline]
pub fn sweep(_: Python<'_>, limit: usize) {
    let count = COUNT.load(Ordering::Relaxed);
    if count > 0 {
        // The caller may be attached without having said so, and objects go here.
        Python::attach(|py| look_at(py, count.min(limit)));
    }
}

#[cold]
fn look_at(py: Python<'_>, count: usize) {
    for _ in 0..count {
        let next = {
            let mut orphans = orphans();
            let next = orphans.pop_front();
            COUNT.store(orphans.len(), Ordering::Relaxed);
            next
        };
        let Some(mut orphan) = next else { return };
        if !orphan.has_ended() {
            adopt(orphan);
            continue;
        }
        // Outside the lock: frameworks run Python code.
        for cargo in orphan.cargo.drain(..) {
            if let Err(error) = cargo.settle(py).1 {
                error.write_unraisable(py, None);
            }
        }
    }
}

impl Orphan {
    /// Asks MPI. An error ends the operation too: the request is unknown or failed.
    fn has_ended(&mut self) -> bool {
        if tensor_comm::attend(self.mpi).is_err() {
            return false;
        }
        if !self.owned {
            // SAFETY:
            // - nothing is completed. A copy of the request object may have completed the request; both libraries
            //   then report an error, completion, or another operation, which only keeps the memory for longer.
            return unsafe {
                self.mpi
                    .request_get_status(self.request, StatusPtr::ignore())
            }
            .unwrap_or(true);
        }
        // SAFETY:
        // - the object that the request was in has become null, so it is completed here alone.
        let ended =
            unsafe { self.mpi.test(&mut self.request, StatusPtr::ignore()) }.unwrap_or(true);
        if ended && self.request != self.mpi.request_null() {
            // SAFETY:
            // - a persistent request, inactive now, and ours alone.
            let _ = unsafe { self.mpi.request_free(&mut self.request) };
        }
        ended
    }

    /// Leaves everything where it is, when MPI cannot be asked any more.
    pub fn leak(self) {
        self.cargo.into_iter().for_each(Cargo::leak);
        std::mem::forget(self.holds);
    }
}
