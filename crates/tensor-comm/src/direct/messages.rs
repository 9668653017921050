//! The messages of a reduction under way: started, waited for, and called off where it fails.
//!
//! A rank that cannot give its elements goes on with empty messages: so the others neither wait for it nor take for
//! results what are none.

use std::ops::Deref;

use mpi_runtime::{Mpi, StatusArray, StatusPtr};

use super::{Direct, Flight, Lane, Receive};
use crate::error::{Error, Result};
use crate::ground::process;
use crate::wiretype::WireType;

/// How often a receive that was called off is looked at: a message may be in the middle of coming.
const CALLED_OFF: u32 = 100_000;

impl<D: Deref<Target = Direct>> Flight<D> {
    /// # Safety
    /// - `n` elements may be written at `at` until the message has landed.
    pub(super) unsafe fn receive(&mut self, at: *mut u8, n: usize, source: usize) -> Result<()> {
        let wire = self.call.wire;
        // SAFETY:
        // - by the caller's promise.
        unsafe { self.receive_as(wire, at, n, source) }
    }

    /// # Safety
    /// - `n` elements of this type may be written at `at` until the message has landed.
    pub(super) unsafe fn receive_as(
        &mut self,
        wire: WireType,
        at: *mut u8,
        n: usize,
        source: usize,
    ) -> Result<()> {
        let mpi = self.call.mpi;
        if n > 0 {
            let count = (n * wire.units) as i64;
            let Lane { comm, tag, .. } = self.lane;
            // SAFETY:
            // - by the caller's promise.
            let request = unsafe { mpi.irecv(at, count, wire.datatype, source as i32, tag, comm) }?;
            self.receives.push(Receive {
                request: self.requests.len(),
                source,
                count: Some((count, wire.datatype)),
            });
            self.requests.push(request);
        }
        Ok(())
    }

    /// # Safety
    /// - `n` elements lie at `at` until the message has left.
    pub(super) unsafe fn send(&mut self, at: *const u8, n: usize, target: usize) -> Result<()> {
        let wire = self.call.wire;
        // SAFETY:
        // - by the caller's promise.
        unsafe { self.send_as(wire, at, n, target) }
    }

    /// # Safety
    /// - `n` elements of this type lie at `at` until the message has left.
    pub(super) unsafe fn send_as(
        &mut self,
        wire: WireType,
        at: *const u8,
        n: usize,
        target: usize,
    ) -> Result<()> {
        let mpi = self.call.mpi;
        if n > 0 {
            let count = match self.failed {
                None => (n * wire.units) as i64,
                Some(_) => 0,
            };
            let Lane { comm, tag, .. } = self.lane;
            // SAFETY:
            // - by the caller's promise.
            let request = unsafe { mpi.isend(at, count, wire.datatype, target as i32, tag, comm) }?;
            self.requests.push(request);
        }
        Ok(())
    }

    /// Whether all messages that were under way have landed; waits for them if `block`.
    pub(super) fn land(&mut self, block: bool) -> Result<bool> {
        if self.requests.is_empty() {
            return Ok(true);
        }
        let (mpi, n) = (self.call.mpi, self.requests.len());
        let known = self.statuses.take().filter(|known| known.len() >= n);
        let statuses = self
            .statuses
            .insert(known.unwrap_or_else(|| StatusArray::new(mpi, n)));
        // SAFETY:
        // - the requests are ours, and completed nowhere else; there is a status for each.
        let landed = unsafe {
            if block {
                mpi.waitall(&mut self.requests, statuses.as_ptr())
                    .map(|()| true)
            } else {
                mpi.testall(&mut self.requests, statuses.as_ptr())
            }
        }?;
        if landed {
            if let Some(silent) = self.silent()? {
                self.fails(Error::State(format!(
                    "rank {silent} had nothing to give: a copy from device memory failed on it, or on a rank from which it heard; that rank says why"
                )));
            }
            self.requests.clear();
            self.receives.clear();
        }
        Ok(landed)
    }

    /// A rank whose message held less than there is of it; all have landed.
    fn silent(&mut self) -> Result<Option<usize>> {
        let mpi = self.call.mpi;
        for receive in &self.receives {
            let status = self.statuses.as_mut().and_then(|s| s.get(receive.request));
            let (Some((expected, datatype)), Some(status)) = (receive.count, status) else {
                continue;
            };
            // SAFETY:
            // - the status was filled when the message landed.
            if unsafe { mpi.get_count(status, datatype) }? != Some(expected) {
                return Ok(Some(receive.source));
            }
        }
        Ok(None)
    }
}

impl<D> Drop for Flight<D> {
    fn drop(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        // After an error messages are still under way. Those that have not come are called off, since some
        // would be written into the caller's tensor, which may go now.
        if let (Some(mpi), Ok(())) = (Mpi::global(), process::alive()) {
            for receive in &self.receives {
                let Some(request) = self.requests.get_mut(receive.request) else {
                    continue;
                };
                if *request == mpi.request_null() {
                    continue;
                }
                // SAFETY:
                // - the request is ours, and is completed nowhere else. What fails here leaves nothing to do.
                unsafe {
                    let _ = mpi.cancel(*request);
                    for _ in 0..CALLED_OFF {
                        if mpi.test(request, StatusPtr::ignore()).unwrap_or(true) {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
            }
        }
        // MPI may still read here.
        let kept = (self.scratch.take(), self.near.take(), self.conveyor.take());
        std::mem::forget(kept);
    }
}
