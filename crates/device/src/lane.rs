//! A lane: a stream that one piece of work has to itself, on which copies are queued and not waited for. Knows nothing of
//! what is copied.
//!
//! A lane belongs to its owner and not to a thread, so that an operation may be carried on by any thread.

use core::mem::ManuallyDrop;

use crate::copies::Way;
use crate::mark::Mark;
use crate::stream::{self, Own};
use crate::{Cuda, DeviceError, Rows, StreamHandle};

/// A stream of ours with one owner. Goes back to the others when dropped.
pub struct Lane {
    cuda: &'static Cuda,
    own: ManuallyDrop<Own>,
}

impl Cuda {
    /// A lane of `dev`. Nothing orders it behind work of others: that must have happened.
    pub fn lane(&'static self, dev: i32) -> Result<Lane, DeviceError> {
        let own = ManuallyDrop::new(stream::take(self, dev)?);
        Ok(Lane { cuda: self, own })
    }

    /// Makes our stream of this thread wait for what is queued on one that somebody else owns.
    ///
    /// # Safety
    /// - `stream` is a live stream of `dev`, or a handle that the driver defines (0, 1, 2).
    pub unsafe fn follow(&'static self, stream: u64, dev: i32) -> Result<(), DeviceError> {
        let _current = self.current(dev)?;
        let ours = stream::of_this_thread(self, dev)?;
        Mark::after(self, crate::cuda::handle(stream), dev)?.holds(ours)
    }
}

impl Lane {
    /// Queues a copy of rows from the device, `src` being what the first is relative to; in host memory they follow each
    /// other from `dst` on.
    ///
    /// # Safety
    /// - Until it has been waited for, or for ever: the rows are memory of the lane's device; so many bytes at `dst` are
    ///   writable host memory that nobody else uses.
    pub unsafe fn bring(&self, dst: *mut u8, src: u64, rows: Rows) -> Result<(), DeviceError> {
        let ends = (dst.expose_provenance() as u64, src + rows.first as u64);
        self.queue(Way::ToHost, ends, (rows.width, rows.pitch), rows)
    }

    /// Queues a copy to rows on the device, `dst` being what the first is relative to; in host memory they follow each
    /// other from `src` on.
    ///
    /// # Safety
    /// - Until it has been waited for, or for ever: the rows are memory of the lane's device that nobody else uses; so many
    ///   bytes at `src` are host memory that nobody changes.
    pub unsafe fn take(&self, dst: u64, src: *const u8, rows: Rows) -> Result<(), DeviceError> {
        let ends = (dst + rows.first as u64, src.expose_provenance() as u64);
        self.queue(Way::ToDevice, ends, (rows.pitch, rows.width), rows)
    }

    fn queue(
        &self,
        way: Way,
        ends: (u64, u64),
        pitches: (usize, usize),
        rows: Rows,
    ) -> Result<(), DeviceError> {
        if rows.width * rows.rows == 0 {
            return Ok(());
        }
        let _current = self.cuda.current(self.own.dev)?;
        let (size, stream) = ((rows.width, rows.rows), self.own.stream);
        self.cuda.enqueue_apart(way, ends, pitches, size, stream)
    }

    /// A mark behind what is queued now.
    pub fn mark(&self) -> Result<Mark, DeviceError> {
        let _current = self.cuda.current(self.own.dev)?;
        Mark::after(self.cuda, self.own.stream, self.own.dev)
    }

    /// Lets what is queued from now on wait for a mark in another lane.
    pub fn follow(&self, mark: &Mark) -> Result<(), DeviceError> {
        let _current = self.cuda.current(self.own.dev)?;
        mark.holds(self.own.stream)
    }

    /// The stream, for what must be kept where a wait fails ([`crate::park`]).
    pub fn stream(&self) -> StreamHandle {
        StreamHandle(self.own.stream.addr() as u64)
    }

    /// Returns when all that was queued has happened.
    pub fn wait(&self) -> Result<(), DeviceError> {
        let _current = self.cuda.current(self.own.dev)?;
        self.cuda.wait(self.own.stream)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY:
        // - taken once, here.
        stream::give(unsafe { ManuallyDrop::take(&mut self.own) });
    }
}
