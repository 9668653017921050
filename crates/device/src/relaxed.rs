//! Calls that do not disturb a graph capture of somebody else's. Knows no call.
//!
//! While any thread captures in the usual, global mode, calls such as those that allocate pinned memory or ask for events
//! are refused to all threads, and the capture is lost: also where our own thread brings home what was received.
//! None of ours has to do with a captured stream, so they are made in the relaxed mode, which is the thread's.

use core::ffi::c_int;
use core::marker::PhantomData;

use crate::{Cuda, DeviceError};

/// CU_STREAM_CAPTURE_MODE_RELAXED.
const RELAXED: c_int = 2;

/// This thread is in the relaxed mode as long as this lives; then in that from before.
pub(crate) struct Relaxed {
    cuda: &'static Cuda,
    before: c_int,
    /// The mode is a property of the thread.
    thread: PhantomData<*const ()>,
}

impl Relaxed {
    pub fn enter(cuda: &'static Cuda) -> Result<Relaxed, DeviceError> {
        let mut mode = RELAXED;
        // SAFETY:
        // - The pointer is to a local.
        cuda.check("cuThreadExchangeStreamCaptureMode", unsafe {
            (cuda.table.exchange_capture_mode)(&mut mode)
        })?;
        Ok(Relaxed {
            cuda,
            before: mode,
            thread: PhantomData,
        })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let mut mode = self.before;
        // An error leaves nothing to do: the mode was the driver's own answer.
        // SAFETY:
        // - The pointer is to a local.
        let _ = unsafe { (self.cuda.table.exchange_capture_mode)(&mut mode) };
    }
}
