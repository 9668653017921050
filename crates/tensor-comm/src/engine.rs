//! The engine: one thread per process that carries non-blocking operations to their end.
//!
//! An operation is a state machine over MPI's non-blocking calls; the engine steps all of them in turn,
//! so groups that overlap and rotate their orders cannot wait for each other. It never blocks in MPI.
//! When nothing moves it sleeps for longer and longer, so that ranks keep their cores; when nothing is
//! due it does not run at all.
//!
//! The thread is created by the first operation that needs it and ended by `MPI_Finalize`.

mod handle;
mod operation;

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mpi_runtime::{Mpi, ThreadLevel};

use crate::error::{Error, Result};
use crate::ground::process;
use crate::watch::{self, Watcher};

pub use handle::{Handle, Keep};
pub(crate) use operation::Operation;

/// Steps without progress before the engine sleeps at all: an operation between two busy ranks on one
/// node ends within them.
const EAGER: u32 = 256;
/// Shortest and longest sleep between steps.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(500));
/// How long Finalize and exit wait for the thread to notice.
const GOODBYE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Inbox {
    operations: VecDeque<Operation>,
    running: bool,
    stop: bool,
}

struct Engine {
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine {
        inbox: Mutex::default(),
        changed: Condvar::new(),
    })
}

impl Engine {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses where no thread but the caller's may call MPI.
pub(crate) fn allowed(mpi: &Mpi) -> Result<()> {
    static LEVEL: OnceLock<ThreadLevel> = OnceLock::new();
    let level = match LEVEL.get() {
        Some(level) => *level,
        None => *LEVEL.get_or_init(|| mpi.query_thread().unwrap_or(ThreadLevel::Single)),
    };
    if level == ThreadLevel::Multiple {
        return Ok(());
    }
    Err(Error::State(format!(
        "a non-blocking operation that dlmpi must finish itself needs MPI_THREAD_MULTIPLE, but MPI runs with \
         MPI_THREAD_{}; initialise with MPI_THREAD_MULTIPLE (mpi4py's default) or use the blocking form",
        format!("{level:?}").to_uppercase()
    )))
}

/// Gives an operation to the engine.
pub(crate) fn submit(operation: Operation) -> Result<()> {
    let engine = engine();
    let mut inbox = start(engine)?;
    inbox.operations.push_back(operation);
    engine.changed.notify_all();
    Ok(())
}

/// Starts the thread for the watch, which works also where there is no operation.
pub(crate) fn run_always() -> Result<()> {
    start(engine()).map(|_| engine().changed.notify_all())
}

/// Has the thread look at once.
pub(crate) fn wake() {
    engine().changed.notify_all();
}

/// Starts the thread unless it runs.
fn start(engine: &'static Engine) -> Result<MutexGuard<'static, Inbox>> {
    let mut inbox = engine.lock();
    if inbox.stop {
        return Err(Error::State(
            "the engine has stopped: the interpreter or MPI is ending".into(),
        ));
    }
    if !inbox.running {
        process::at_finalize(stop);
        let spawned = std::thread::Builder::new()
            .name("dlmpi-engine".into())
            .spawn(move || work(engine));
        spawned.map_err(|error| {
            Error::State(format!("the engine's thread could not start: {error}"))
        })?;
        inbox.running = true;
    }
    Ok(inbox)
}

/// Ends the engine's thread. Operations that are still under way are abandoned where they are, their
/// memory too, since MPI may still write it. Safe to call more than once.
pub fn stop() {
    let engine = engine();
    let mut inbox = engine.lock();
    inbox.stop = true;
    engine.changed.notify_all();
    let running = |inbox: &mut Inbox| inbox.running;
    drop(engine.changed.wait_timeout_while(inbox, GOODBYE, running));
}

fn work(engine: &'static Engine) {
    let mut active: Vec<Operation> = Vec::new();
    let mut watcher = Watcher::default();
    let (mut idle, mut sleep) = (0u32, SLEEP.0);
    loop {
        {
            let mut inbox = engine.lock();
            while active.is_empty() && inbox.operations.is_empty() && !inbox.stop {
                if watch::is_on() {
                    let waited = engine.changed.wait_timeout(inbox, watch::PERIOD);
                    inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
                inbox = engine
                    .changed
                    .wait(inbox)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if inbox.stop {
                active.extend(inbox.operations.drain(..));
                inbox.running = false;
                engine.changed.notify_all();
                drop(inbox);
                active.into_iter().for_each(Operation::abandon);
                return;
            }
            if !inbox.operations.is_empty() {
                active.extend(inbox.operations.drain(..));
                (idle, sleep) = (0, SLEEP.0);
            }
        }
        if watch::is_on() {
            watcher.step();
        }
        let mut moved = false;
        active.retain_mut(|operation| {
            let step = operation.step();
            moved |= step.moved;
            !step.done
        });
        if moved {
            (idle, sleep) = (0, SLEEP.0);
        } else if idle < EAGER {
            idle += 1;
            std::thread::yield_now();
        } else {
            let inbox = engine.lock();
            if inbox.operations.is_empty() && !inbox.stop {
                drop(engine.changed.wait_timeout(inbox, sleep));
            }
            sleep = (sleep * 2).min(SLEEP.1);
        }
    }
}
