//! Which device is current on this thread, changed for a while and put back. Knows nothing else of the driver.

use core::marker::PhantomData;
use core::ptr;

use crate::relaxed::Relaxed;
use crate::symbols::Object;
use crate::{Cuda, DeviceError};

/// A device is current as long as this lives; then the one from before is, or none.
#[must_use = "the device is current only as long as the guard lives"]
pub struct Current {
    cuda: &'static Cuda,
    /// The context to put back, where it is another one.
    before: Option<Object>,
    /// Whatever is done meanwhile disturbs no capture.
    _relaxed: Relaxed,
    /// What is current is a property of the thread.
    thread: PhantomData<*const ()>,
}

impl Current {
    pub(crate) fn enter(cuda: &'static Cuda, dev: i32) -> Result<Current, DeviceError> {
        let wanted = cuda.context(dev)?.0;
        let relaxed = Relaxed::enter(cuda)?;
        let mut before = ptr::null_mut();
        // SAFETY:
        // - The pointer is to a local.
        cuda.check("cuCtxGetCurrent", unsafe {
            (cuda.table.ctx_get_current)(&mut before)
        })?;
        if before == wanted {
            return Ok(Current {
                cuda,
                before: None,
                _relaxed: relaxed,
                thread: PhantomData,
            });
        }
        // SAFETY:
        // - `wanted` is a primary context that this process retains.
        cuda.check("cuCtxSetCurrent", unsafe {
            (cuda.table.ctx_set_current)(wanted)
        })?;
        Ok(Current {
            cuda,
            before: Some(before),
            _relaxed: relaxed,
            thread: PhantomData,
        })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // An error here means that its owner destroyed it meanwhile: then there is nothing to put back.
            // SAFETY:
            // - `before` was current on this thread, or NULL, which means none.
            let _ = unsafe { (self.cuda.table.ctx_set_current)(before) };
        }
    }
}
