//! What the caller of a non-blocking operation holds: a future that a thread can wait for. Whoever waits
//! carries the operation on himself, so that an answer need not pass through another thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::operation::{Operation, Step};
use super::pace::Pace;

use crate::error::{Error, Result};
use crate::ground::process;
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

/// Looks of a waiting thread before it has the engine look, too: what it waits for may depend on another operation.
const IN_VAIN: u32 = 200;

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
    changed: Condvar,
    /// The operation, until it has ended.
    flight: Mutex<Option<Operation>>,
    /// Threads that wait for it and carry it on.
    waiters: AtomicUsize,
    about: About,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody carries it on any more, but MPI may still write its memory.
        let flight = self
            .flight
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(flight.take());
    }
}

/// Counts a thread among those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn new(handle: &Handle) -> Waiting<'_> {
        handle.0.waiters.fetch_add(1, Ordering::Relaxed);
        Waiting(&handle.0.waiters)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("done", &self.is_done())
            .finish()
    }
}

impl Handle {
    pub(crate) fn new(operation: Operation, about: About) -> Handle {
        Handle(Arc::new(Inner {
            slot: Mutex::default(),
            changed: Condvar::new(),
            flight: Mutex::new(Some(operation)),
            waiters: AtomicUsize::new(0),
            about,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries the operation on as far as it goes without waiting. While another thread does so, nothing
    /// moves here.
    pub(crate) fn step(&self) -> Step {
        if process::forked().is_some() {
            return Step::Ended;
        }
        let mut flight = match self.0.flight.try_lock() {
            Ok(flight) => flight,
            Err(TryLockError::Poisoned(flight)) => flight.into_inner(),
            Err(TryLockError::WouldBlock) => return Step::Idle,
        };
        let Some(operation) = flight.as_mut() else {
            return if self.is_done() {
                Step::Ended
            } else {
                Step::Idle
            };
        };
        match operation.step() {
            Ok(step) => step,
            Err(result) => {
                let ended = flight.take();
                drop(flight);
                self.complete(result);
                drop(ended);
                Step::Ended
            }
        }
    }

    /// Whether a waiting thread carries it on.
    pub(crate) fn is_carried(&self) -> bool {
        self.0.waiters.load(Ordering::Relaxed) > 0
    }

    /// Leaves everything where it is: MPI may still write it.
    pub(crate) fn abandon(&self) {
        self.complete(Err(abandoned()));
    }

    fn complete(&self, result: Result<()>) {
        let mut slot = self.lock();
        if slot.result.is_some() {
            return;
        }
        let callbacks = std::mem::take(&mut slot.callbacks);
        slot.result = Some(result.clone());
        self.0.changed.notify_all();
        drop(slot);
        callbacks.into_iter().for_each(|callback| callback(&result));
    }

    /// Whether the operation has ended. In a forked child it has: the parent alone goes on with it.
    pub fn is_done(&self) -> bool {
        process::forked().is_some() || self.lock().result.is_some()
    }

    /// Whether it was left where it was when MPI began to end: MPI may write its memory until it has ended.
    pub fn is_left(&self) -> bool {
        if process::forked().is_some() {
            return true;
        }
        let flight = self.0.flight.lock();
        self.is_done() && flight.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// How it ended, if it has.
    pub fn result(&self) -> Option<Result<()>> {
        if let Some(error) = process::forked() {
            // The lock may be one that a thread of the parent held at the fork.
            let known = self
                .0
                .slot
                .try_lock()
                .ok()
                .and_then(|slot| slot.result.clone());
            return Some(known.unwrap_or(Err(error)));
        }
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
        Handle::wait_for_all(std::slice::from_ref(self), limit);
        self.result()
    }

    /// Waits at most `limit` until all have ended, and carries all of them on; says whether they have.
    pub fn wait_for_all(handles: &[Handle], limit: Duration) -> bool {
        let deadline = Instant::now().checked_add(limit);
        let _waiting: SmallVec<[Waiting<'_>; 4]> = handles.iter().map(Waiting::new).collect();
        let mut pace = Pace::waiting();
        let mut looks = 0;
        loop {
            let (mut moved, mut open) = (false, None);
            for handle in handles {
                moved |= handle.step() == Step::Moved;
                if !handle.is_done() {
                    open = Some(handle);
                }
            }
            let Some(open) = open else {
                return true;
            };
            let left = deadline.map_or(limit, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            looks += 1;
            if looks == IN_VAIN {
                super::hurry();
            }
            if let Some(sleep) = pace.rest(moved) {
                let slot = open.lock();
                if slot.result.is_none() {
                    drop(open.0.changed.wait_timeout(slot, sleep.min(left)));
                }
            }
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

    /// Calls `callback` with the result when the operation ends: at once if it has, else on the thread
    /// that carried it to its end, which it must not block.
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
    use crate::brief::Brief;
    use crate::engine::operation::Job;
    use crate::engine::tests::Never;

    /// Ends at its third step.
    struct Third(u32);

    impl Job for Third {
        fn advance(&mut self) -> Result<Step> {
            self.0 += 1;
            Ok(if self.0 == 3 {
                Step::Ended
            } else {
                Step::Moved
            })
        }

        fn ended(&mut self) -> bool {
            true
        }
    }

    fn handle(job: impl Job + 'static, keep: Box<dyn Keep>) -> Handle {
        let operation = Operation::new(Box::new(job), keep);
        Handle::new(operation, About::unnumbered(Brief::named("Barrier")))
    }

    struct Told(Arc<Mutex<Vec<bool>>>);

    impl Keep for Told {
        fn done(&mut self, written: bool) {
            self.0.lock().expect("a list").push(written);
        }
    }

    #[test]
    fn waiters_wake_and_callbacks_run_once() {
        let handle = handle(Never, Box::new(()));
        let hits = Arc::new(Mutex::new(0));
        let count = |handle: &Handle| {
            let hits = Arc::clone(&hits);
            handle.on_done(move |result| {
                *hits.lock().expect("a number") += i32::from(result.is_ok())
            });
        };
        count(&handle);
        assert!(handle.wait_for(Duration::from_millis(1)).is_none());
        assert!(!handle.is_carried());
        let other = handle.clone();
        let waiter = std::thread::spawn(move || other.wait());
        handle.complete(Ok(()));
        handle.abandon();
        assert!(waiter.join().expect("no panic").is_ok());
        count(&handle);
        assert_eq!(*hits.lock().expect("a number"), 2);
    }

    #[test]
    fn whoever_waits_carries_it_on() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let keep = Box::new(Told(Arc::clone(&told)));
        let handle = handle(Third(0), keep);
        assert_eq!(handle.step(), Step::Moved);
        assert!(!handle.is_done());
        assert!(handle.wait().is_ok());
        assert_eq!(handle.step(), Step::Ended);
        assert_eq!(*told.lock().expect("a list"), [true]);
    }

    #[test]
    fn all_are_carried_on_together() {
        let mut handles = vec![
            handle(Third(0), Box::new(())),
            handle(Third(1), Box::new(())),
        ];
        assert!(Handle::wait_for_all(&handles, Duration::from_secs(60)));
        handles.push(handle(Never, Box::new(())));
        assert!(!Handle::wait_for_all(&handles, Duration::from_millis(1)));
        assert!(handles.iter().all(|handle| !handle.is_carried()));
        assert!(Handle::wait_for_all(&[], Duration::ZERO));
    }
}
