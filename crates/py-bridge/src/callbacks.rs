//! Threads for Python code that runs when an operation has ended. The engine's own thread must not: the
//! code may wait for another operation, which only the engine brings to its end.
//!
//! A thread that is waiting is reused, so there are as many as callbacks that block at one time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

/// How long a thread waits for its next callback.
const LINGER: Duration = Duration::from_secs(10);
/// How long the end of the interpreter waits for callbacks that run.
const GOODBYE: Duration = Duration::from_secs(2);

struct Pool {
    due: VecDeque<Py<PyAny>>,
    waiting: usize,
    running: usize,
    stopped: bool,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    due: VecDeque::new(),
    waiting: 0,
    running: 0,
    stopped: false,
});
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `callback()` soon, on one of these threads; what it raises is reported as unraisable.
pub fn call(callback: Py<PyAny>) {
    let mut pool = lock();
    if pool.stopped {
        // The interpreter is ending: nobody is left to hear of it, and no reference may be given back.
        std::mem::forget(callback);
        return;
    }
    pool.due.push_back(callback);
    if pool.waiting < pool.due.len() {
        let spawned = std::thread::Builder::new()
            .name("dlmpi-callbacks".into())
            .spawn(work);
        // Without a thread more, the ones there are do it.
        drop(spawned);
    }
    CHANGED.notify_all();
}

/// Ends the threads, for the end of the interpreter: what is due is dropped, what runs is waited for.
pub fn stop() {
    let mut pool = lock();
    pool.stopped = true;
    pool.due.drain(..).for_each(std::mem::forget);
    CHANGED.notify_all();
    let running = |pool: &mut Pool| pool.running > 0;
    drop(CHANGED.wait_timeout_while(pool, GOODBYE, running));
}

fn work() {
    let mut pool = lock();
    loop {
        if pool.stopped {
            return;
        }
        let Some(callback) = pool.due.pop_front() else {
            pool.waiting += 1;
            let (next, waited) = CHANGED
                .wait_timeout(pool, LINGER)
                .unwrap_or_else(PoisonError::into_inner);
            pool = next;
            pool.waiting -= 1;
            if waited.timed_out() && pool.due.is_empty() {
                return;
            }
            continue;
        };
        pool.running += 1;
        drop(pool);
        // Without an interpreter there is nobody to tell.
        let _ = Python::try_attach(|py| {
            if let Err(error) = callback.call0(py) {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
            drop(callback);
        });
        pool = lock();
        pool.running -= 1;
        CHANGED.notify_all();
    }
}
