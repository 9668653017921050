//! What the caller of a non-blocking operation holds: a future that a thread can wait for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::watch::{self, About, Arrivals};

/// What must live until the operation is done: whoever keeps the tensors' memory. `done` is called when
/// results are in place, before waiters wake.
pub trait Keep: Send {
    /// The operation has ended; `written` is whether the receive side may have been written.
    fn done(&mut self, written: bool);
}

impl Keep for () {
    fn done(&mut self, _: bool) {}
}

type Callback = Box<dyn FnOnce(&Result<()>) + Send>;

#[derive(Default)]
struct Slot {
    result: Option<Result<()>>,
    callbacks: Vec<Callback>,
}

/// The result of a non-blocking operation, now or later. Copies refer to the same operation; dropping
/// them neither cancels nor forgets it.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    slot: Mutex<Slot>,
    ended: Condvar,
    about: About,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("done", &self.is_done())
            .finish()
    }
}

impl Handle {
    pub(crate) fn new(about: About) -> Handle {
        Handle(Arc::new(Inner {
            slot: Mutex::default(),
            ended: Condvar::new(),
            about,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn complete(&self, result: Result<()>) {
        let mut slot = self.lock();
        if slot.result.is_some() {
            return;
        }
        let callbacks = std::mem::take(&mut slot.callbacks);
        slot.result = Some(result.clone());
        self.0.ended.notify_all();
        drop(slot);
        callbacks.into_iter().for_each(|callback| callback(&result));
    }

    /// Whether the operation has ended.
    pub fn is_done(&self) -> bool {
        self.lock().result.is_some()
    }

    /// How it ended, if it has.
    pub fn result(&self) -> Option<Result<()>> {
        self.lock().result.clone()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// What the operation found.
    pub fn wait(&self) -> Result<()> {
        loop {
            if let Some(result) = self.wait_for(Duration::from_secs(3600)) {
                return result;
            }
        }
    }

    /// Waits at most `limit`; `None` when it is still under way.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<()>> {
        let deadline = Instant::now().checked_add(limit);
        let mut slot = self.lock();
        loop {
            if let Some(result) = &slot.result {
                return Some(result.clone());
            }
            let left = deadline.map_or(limit, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            slot = self
                .0
                .ended
                .wait_timeout(slot, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// What was called, in words: `Allreduce of 4 float32, op SUM`.
    pub fn describe(&self) -> String {
        self.0.about.brief.to_string()
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.0.about.since.elapsed()
    }

    /// Asks the other ranks whether they have made this call and, if not, what they are doing; waits for
    /// their answers at most `limit`. Ranks answer where [`crate::watch::start`] was called on all of them.
    pub fn arrivals(&self, limit: Duration) -> Arrivals {
        watch::arrivals_of(&self.0.about, limit)
    }

    /// Calls `callback` with the result when the operation ends: at once if it has, else on the engine's
    /// thread, which it must not block.
    pub fn on_done(&self, callback: impl FnOnce(&Result<()>) + Send + 'static) {
        let mut slot = self.lock();
        match slot.result.clone() {
            None => slot.callbacks.push(Box::new(callback)),
            Some(result) => {
                drop(slot);
                callback(&result);
            }
        }
    }
}

/// The error of an operation whose end nobody will see.
pub(crate) fn abandoned() -> Error {
    Error::State("the operation was still under way when MPI or the interpreter ended".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_wake_and_callbacks_run_once() {
        let handle = Handle::new(About {
            state: std::sync::Weak::new(),
            sequence: 0,
            brief: crate::brief::Brief::named("Barrier"),
            since: Instant::now(),
        });
        let hits = Arc::new(Mutex::new(0));
        let count = |handle: &Handle| {
            let hits = Arc::clone(&hits);
            handle.on_done(move |result| {
                *hits.lock().expect("a number") += i32::from(result.is_ok())
            });
        };
        count(&handle);
        assert!(handle.wait_for(Duration::from_millis(1)).is_none());
        let other = handle.clone();
        let waiter = std::thread::spawn(move || other.wait());
        handle.complete(Ok(()));
        handle.complete(Err(abandoned()));
        assert!(waiter.join().expect("no panic").is_ok());
        count(&handle);
        assert_eq!(*hits.lock().expect("a number"), 2);
    }
}
