//! Marks in streams: events, which are waited for by the host or by other streams. Knows nothing of what lies before a mark.
//!
//! Events are kept for the next mark; the driver is asked for one only where none is left.

use core::ptr;
use std::sync::{Mutex, PoisonError};

use crate::relaxed::Relaxed;
use crate::symbols::{self, Object};
use crate::{Cuda, DeviceError};

/// An event nobody uses, and its device.
struct Spare {
    dev: i32,
    event: Object,
}

// SAFETY:
// - An event is a handle of the driver, which any thread may use.
unsafe impl Send for Spare {}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

/// A place in a stream, behind all that was queued there when it was made.
pub struct Mark {
    cuda: &'static Cuda,
    dev: i32,
    event: Object,
}

// SAFETY:
// - An event is a handle of the driver, which any thread may use.
unsafe impl Send for Mark {}

impl Mark {
    /// Behind what is queued on `stream` of `dev`, which must be current.
    pub(crate) fn after(
        cuda: &'static Cuda,
        stream: Object,
        dev: i32,
    ) -> Result<Mark, DeviceError> {
        let mark = Mark {
            cuda,
            dev,
            event: event(cuda, dev)?,
        };
        // SAFETY:
        // - The event is ours; the stream is live, by the promise of those who gave it.
        cuda.check("cuEventRecord", unsafe {
            (cuda.table.event_record)(mark.event, stream)
        })?;
        Ok(mark)
    }

    /// Has all before it happened?
    pub fn reached(&self) -> Result<bool, DeviceError> {
        let _relaxed = Relaxed::enter(self.cuda)?;
        // SAFETY:
        // - The event is ours.
        match unsafe { (self.cuda.table.event_query)(self.event) } {
            symbols::NOT_READY => Ok(false),
            code => self.cuda.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Returns when all before it has happened.
    pub fn wait(&self) -> Result<(), DeviceError> {
        let _relaxed = Relaxed::enter(self.cuda)?;
        // SAFETY:
        // - The event is ours.
        self.cuda.check("cuEventSynchronize", unsafe {
            (self.cuda.table.event_synchronize)(self.event)
        })
    }

    /// Lets what is queued on `stream` from now on wait for it; the stream's device must be current.
    pub(crate) fn holds(&self, stream: Object) -> Result<(), DeviceError> {
        // SAFETY:
        // - The event is ours; the stream is live, by the promise of those who gave it.
        self.cuda.check("cuStreamWaitEvent", unsafe {
            (self.cuda.table.stream_wait_event)(stream, self.event, 0)
        })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Whoever waits for it waits for the place that it had then, so it may be used again at once.
        let Mark { dev, event, .. } = *self;
        SPARE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Spare { dev, event });
    }
}

fn event(cuda: &'static Cuda, dev: i32) -> Result<Object, DeviceError> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = spare.iter().position(|spare| spare.dev == dev) {
        return Ok(spare.swap_remove(index).event);
    }
    let mut event = ptr::null_mut();
    // SAFETY:
    // - The device is current; the pointer is to a local.
    let code = unsafe { (cuda.table.event_create)(&mut event, symbols::EVENT_WITHOUT_TIMING) };
    cuda.check("cuEventCreate", code)?;
    Ok(event)
}
