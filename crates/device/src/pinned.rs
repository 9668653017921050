//! Host memory that the device copies to and from at full speed, kept for the next use. Knows no tensor.
//!
//! Pinning costs more than most copies, so buffers go back to a pool, which keeps a bounded number of bytes, those used
//! last.

use core::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use crate::symbols;
use crate::{Cuda, DeviceError};

/// Buffers are multiples of this.
const STEP: usize = 1 << 16;
/// The pool keeps no more than this.
const KEPT: usize = 1 << 30;

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
        let capacity = len.max(1).checked_next_multiple_of(STEP).unwrap_or(len);
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
        for free in give(Free { ..self.free }) {
            release(self.cuda, &free);
        }
    }
}

/// The buffer that fits best; one of more than twice the size is left to larger ones.
fn take(capacity: usize) -> Option<Free> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |free: &Free| (capacity..=capacity.saturating_mul(2)).contains(&free.capacity);
    let fitting = pool.iter().enumerate().filter(|(_, free)| fits(free));
    let (index, _) = fitting.min_by_key(|(_, free)| free.capacity)?;
    Some(pool.remove(index))
}

/// Keeps the buffer, and hands back those that have been unused longest where the pool is full.
fn give(free: Free) -> Vec<Free> {
    if free.capacity > KEPT {
        return vec![free];
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.push(free);
    let mut bytes: usize = pool.iter().map(|free| free.capacity).sum();
    let over = pool.iter().take_while(|free| {
        let over = bytes > KEPT;
        bytes -= free.capacity;
        over
    });
    let over = over.count();
    pool.drain(..over).collect()
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
