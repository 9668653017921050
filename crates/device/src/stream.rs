//! Our own streams: one per device and thread, non-blocking, made on first use. Knows nothing of what runs on them.
//!
//! Streams outlive their threads: a thread that ends leaves its streams to the next one, and the driver is
//! never called from a thread's or the process's last moments, when it may be gone.

use core::cell::RefCell;
use core::mem;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use crate::symbols::{self, Object};
use crate::{Cuda, DeviceError};

/// A stream and its device.
struct Own {
    dev: i32,
    stream: Object,
}

// SAFETY:
// - A stream is a handle of the driver, which any thread may use.
unsafe impl Send for Own {}

/// Streams whose threads have ended.
static IDLE: Mutex<Vec<Own>> = Mutex::new(Vec::new());

/// The streams of one thread.
struct Mine(RefCell<Vec<Own>>);

impl Drop for Mine {
    fn drop(&mut self) {
        let mine = mem::take(&mut *self.0.borrow_mut());
        IDLE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(mine);
    }
}

thread_local! {
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
}

/// The stream of this device and thread.
pub(crate) fn of_this_thread(cuda: &'static Cuda, dev: i32) -> Result<Object, DeviceError> {
    let known = MINE.try_with(|mine| {
        mine.0
            .borrow()
            .iter()
            .find(|own| own.dev == dev)
            .map(|own| own.stream)
    });
    if let Ok(Some(stream)) = known {
        return Ok(stream);
    }
    let own = match left_over(dev) {
        Some(own) => own,
        None => Own {
            dev,
            stream: create(cuda, dev)?,
        },
    };
    let stream = own.stream;
    // A thread in its last moments has no list any more: the stream is then used this once.
    let _ = MINE.try_with(|mine| mine.0.borrow_mut().push(own));
    Ok(stream)
}

fn left_over(dev: i32) -> Option<Own> {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = idle.iter().position(|own| own.dev == dev)?;
    Some(idle.swap_remove(index))
}

fn create(cuda: &'static Cuda, dev: i32) -> Result<Object, DeviceError> {
    let _current = cuda.current(dev)?;
    let mut stream = ptr::null_mut();
    // SAFETY:
    // - The device is current; the pointer is to a local.
    let code = unsafe { (cuda.table.stream_create)(&mut stream, symbols::STREAM_NON_BLOCKING) };
    cuda.check("cuStreamCreate", code)?;
    Ok(stream)
}
