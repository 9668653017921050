//! Host memory that the device copies to and from at full speed, kept for the next use. Knows no tensor.
//!
//! Pinning costs more than most copies, so buffers are rounded up to powers of two and go back to a pool,
//! which keeps a bounded number of bytes.

use core::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use crate::symbols;
use crate::{Cuda, DeviceError};

/// Smallest buffer.
const LEAST: usize = 1 << 16;
/// The pool keeps no more than this.
const KEPT: usize = 1 << 28;

/// A buffer nobody uses.
struct Free {
    start: NonNull<u8>,
    capacity: usize,
    dev: i32,
}

// SAFETY:
// - Plain memory without an owner.
unsafe impl Send for Free {}

static POOL: Mutex<Vec<Free>> = Mutex::new(Vec::new());

/// Pinned host memory. Goes back to the pool when dropped.
pub struct Pinned {
    cuda: &'static Cuda,
    free: Free,
    len: usize,
}

// SAFETY:
// - Shared access gives out only a pointer; whoever uses it answers for aliasing.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `len` bytes, not initialised, that every device can copy to and from; `dev` lends its context.
    pub fn new(cuda: &'static Cuda, len: usize, dev: i32) -> Result<Pinned, DeviceError> {
        let capacity = len.max(LEAST).checked_next_power_of_two().unwrap_or(len);
        if let Some(free) = take(capacity) {
            return Ok(Pinned { cuda, free, len });
        }
        let _current = cuda.current(dev)?;
        let mut start = ptr::null_mut();
        // SAFETY:
        // - A device is current; the pointer is to a local.
        let code = unsafe {
            (cuda.table.mem_host_alloc)(&mut start, capacity, symbols::HOST_ALLOC_PORTABLE)
        };
        cuda.check("cuMemHostAlloc", code)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| DeviceError::Driver {
            call: "cuMemHostAlloc",
            code: symbols::SUCCESS,
            name: "success".to_owned(),
            text: "but the pointer is NULL".to_owned(),
        })?;
        Ok(Pinned {
            cuda,
            free: Free {
                start,
                capacity,
                dev,
            },
            len,
        })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.free.start.as_ptr()
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Were no bytes asked for?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let free = Free { ..self.free };
        if let Some(free) = give(free) {
            release(self.cuda, &free);
        }
    }
}

fn take(capacity: usize) -> Option<Free> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let index = pool.iter().position(|free| free.capacity == capacity)?;
    Some(pool.swap_remove(index))
}

/// Keeps the buffer, or hands it back where the pool is full.
fn give(free: Free) -> Option<Free> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let kept: usize = pool.iter().map(|free| free.capacity).sum();
    if free.capacity > KEPT.saturating_sub(kept) {
        return Some(free);
    }
    pool.push(free);
    None
}

fn release(cuda: &'static Cuda, free: &Free) {
    // Errors leave nothing to do: the process is ending, or the memory is gone with its context.
    let current = cuda.current(free.dev);
    if current.is_ok() {
        // SAFETY:
        // - `start` came from `mem_host_alloc` and nobody uses it.
        let _ = unsafe { (cuda.table.mem_free_host)(free.start.as_ptr().cast()) };
    }
}
