//! Our own streams, non-blocking, made on first use: one per device and thread, and those of lanes (`lane.rs`). Knows
//! nothing of what runs on them.
//!
//! Streams outlive their owners: a thread that ends leaves its streams to the next one, and the driver is
//! never called from a thread's or the process's last moments, when it may be gone.

use core::cell::RefCell;
use core::mem;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use crate::symbols::{self, Object};
use crate::{Cuda, DeviceError};

/// A stream and its device.
pub(crate) struct Own {
    pub dev: i32,
    pub stream: Object,
}

// SAFETY:
// - A stream is a handle of the driver, which any thread may use.
unsafe impl Send for Own {}

// SAFETY:
// - As above; it is never changed.
unsafe impl Sync for Own {}

/// Streams whose owners are gone.
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
    let own = take(cuda, dev)?;
    let stream = own.stream;
    // A thread in its last moments has no list any more: the stream is then used this once.
    let _ = MINE.try_with(|mine| mine.0.borrow_mut().push(own));
    Ok(stream)
}

/// A stream that nobody else uses, to be given back.
pub(crate) fn take(cuda: &'static Cuda, dev: i32) -> Result<Own, DeviceError> {
    match left_over(dev) {
        Some(own) => Ok(own),
        None => create(cuda, dev).map(|stream| Own { dev, stream }),
    }
}

/// Leaves a stream to the next owner.
pub(crate) fn give(own: Own) {
    IDLE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(own);
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
