//! What a failed wait leaves behind: host memory that queued copies may still use, kept until a later wait for the same
//! stream succeeds. Knows nothing of what it keeps.

use core::any::Any;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::StreamHandle;

/// Something that work on this stream may still use.
type Kept = (StreamHandle, Box<dyn Any + Send>);

static PARKED: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
/// How many there are: as a rule none, which costs a look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Keeps `what` until all that is queued on `stream` now has happened, as far as anybody can tell.
pub fn park(stream: StreamHandle, what: Box<dyn Any + Send>) {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    parked.push((stream, what));
    COUNT.store(parked.len(), Ordering::Release);
}

/// All that was queued on `stream` has happened.
pub(crate) fn passed(stream: StreamHandle) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    let (gone, kept) = mem::take(&mut *parked)
        .into_iter()
        .partition::<Vec<Kept>, _>(|(other, _)| *other == stream);
    *parked = kept;
    COUNT.store(parked.len(), Ordering::Release);
    // What is dropped may call the driver.
    drop(parked);
    drop(gone);
}
