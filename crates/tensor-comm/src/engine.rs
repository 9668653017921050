//! The engine: one thread per process that carries non-blocking operations to their end.
//!
//! An operation is a state machine over MPI's non-blocking calls; the engine steps all of them in turn,
//! so groups that overlap and rotate their orders cannot wait for each other. It never blocks in MPI.
//! When nothing moves it sleeps for longer and longer, so that ranks keep their cores; when nothing is
//! due it does not run at all. An operation that a thread waits for is carried by that thread meanwhile.
//!
//! The thread is created by the first operation that needs it and ended by `MPI_Finalize`.

mod collective;
mod handle;
mod message;
mod operation;
mod pace;
mod priority;
mod started;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mpi_runtime::{Mpi, ThreadLevel};

use crate::error::{Error, Result};
use crate::ground::process;
use crate::watch::{self, About, Watcher};

pub use collective::Issue;
pub(crate) use collective::{Collective, Open};
pub use handle::{Handle, Keep};
pub(crate) use message::Passing;
pub use message::{Came, Envelope};
pub(crate) use operation::{Job, Operation, Step};
use pace::Pace;
pub use started::{Landed, Started};

/// How long the engine leaves alone what waiting threads carry.
const CARRIED: Duration = Duration::from_micros(200);
/// How often an engine that has nothing to do looks what has come, and how long it does so after there was something.
const LOOK: Duration = Duration::from_micros(250);
const LINGER: Duration = Duration::from_millis(5);
/// How long Finalize and exit wait for the thread to notice.
const GOODBYE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Inbox {
    operations: VecDeque<Handle>,
    running: bool,
    stop: bool,
    /// Something has come that is not to wait for the thread's next look.
    urgent: bool,
    /// The thread does not look again by itself within `LOOK`.
    dozes: bool,
}

impl Inbox {
    /// Takes out what nobody else carries on, and whether there was such; what has ended is forgotten.
    fn take(&mut self, active: &mut Vec<Handle>) -> bool {
        let before = active.len();
        self.urgent = false;
        self.operations.retain(|handle| {
            if handle.is_done() {
                return false;
            }
            let elsewhere = handle.is_carried();
            if !elsewhere {
                active.push(handle.clone());
            }
            elsewhere
        });
        active.len() > before
    }
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

/// Refuses where no thread but the caller's may call MPI, and in a forked child, whose memory that ranks share is its
/// parent's.
///
/// # Errors
/// [`Error::State`] there; what MPI reports.
pub fn allowed(mpi: &Mpi) -> Result<()> {
    process::alive()?;
    // Only this is kept: after a session has begun with less, `MPI_Init` may give more.
    static MULTIPLE: AtomicBool = AtomicBool::new(false);
    if MULTIPLE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let level = mpi.query_thread()?;
    if level == ThreadLevel::Multiple {
        MULTIPLE.store(true, Ordering::Relaxed);
        return Ok(());
    }
    Err(Error::State(format!(
        "a non-blocking operation that dlmpi must finish itself needs MPI_THREAD_MULTIPLE, but MPI runs with \
         MPI_THREAD_{}; initialise with MPI_THREAD_MULTIPLE (mpi4py's default) or use the blocking form",
        format!("{level:?}").to_uppercase()
    )))
}

/// Begins a job and takes it as far as it goes at once.
pub(crate) fn begin(job: impl Job + 'static, keep: Box<dyn Keep>, about: About) -> Handle {
    let handle = Handle::new(Operation::new(Box::new(job), keep), about);
    handle.step();
    handle
}

/// Gives an operation that has not ended to the engine, to be carried on while nobody waits for it.
///
/// # Errors
/// [`Error::State`] once the engine has stopped.
pub fn carry(handle: &Handle) -> Result<()> {
    if handle.is_done() {
        return Ok(());
    }
    let engine = engine();
    let mut inbox = start(engine)?;
    inbox.operations.push_back(handle.clone());
    inbox.urgent = true;
    engine.changed.notify_all();
    Ok(())
}

/// The same for one whose caller most likely waits at once: an engine that looks again within `LOOK` is not woken, which costs
/// more than a small message.
///
/// # Errors
/// As for [`carry`].
pub fn carry_soon(handle: &Handle) -> Result<()> {
    if handle.is_done() {
        return Ok(());
    }
    let engine = engine();
    let mut inbox = start(engine)?;
    while inbox.operations.back().is_some_and(Handle::is_done) {
        inbox.operations.pop_back();
    }
    inbox.operations.push_back(handle.clone());
    if inbox.dozes {
        inbox.urgent = true;
        engine.changed.notify_all();
    }
    Ok(())
}

/// Has the thread look at once if something waits for its next look: a thread that waits in vain may need it.
pub(crate) fn hurry() {
    let engine = engine();
    let mut inbox = engine.lock();
    let waits = |handle: &Handle| !handle.is_carried() && !handle.is_done();
    if !inbox.urgent && inbox.operations.iter().any(waits) {
        inbox.urgent = true;
        engine.changed.notify_all();
    }
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
/// memory too, since MPI may still write it. Safe to call more than once. A forked child has no such thread.
pub fn stop() {
    if process::forked().is_some() {
        return;
    }
    let engine = engine();
    let mut inbox = engine.lock();
    inbox.stop = true;
    engine.changed.notify_all();
    let running = |inbox: &mut Inbox| inbox.running;
    drop(engine.changed.wait_timeout_while(inbox, GOODBYE, running));
}

fn work(engine: &'static Engine) {
    priority::short_turns();
    let mut active: Vec<Handle> = Vec::new();
    let mut watcher = Watcher::default();
    let mut pace = Pace::engine();
    let mut busy = Instant::now();
    loop {
        {
            let mut inbox = engine.lock();
            loop {
                if !inbox.operations.is_empty() {
                    busy = Instant::now();
                }
                if inbox.take(&mut active) {
                    pace.restart();
                }
                if inbox.stop || !active.is_empty() {
                    break;
                }
                let rest = match busy.elapsed() < LINGER {
                    true => Some(LOOK),
                    false => watch::is_on().then_some(watch::PERIOD),
                };
                inbox.dozes = rest != Some(LOOK);
                inbox = rested(engine, inbox, rest);
                inbox.dozes = false;
                if watch::is_on() {
                    break;
                }
            }
            if inbox.stop {
                active.extend(inbox.operations.drain(..));
                drop(inbox);
                // Tells MPI of requests that are its own, too: before it goes on to end.
                active.iter().for_each(Handle::abandon);
                engine.lock().running = false;
                engine.changed.notify_all();
                return;
            }
        }
        if watch::is_on() {
            watcher.step();
        }
        if active.is_empty() {
            continue;
        }
        let mut moved = false;
        let mut carried = true;
        active.retain(|handle| {
            if handle.is_carried() {
                return true;
            }
            carried = false;
            let step = handle.step();
            moved |= step != Step::Idle;
            step != Step::Ended
        });
        let sleep = match carried {
            // Those who wait do the work.
            true if !active.is_empty() => Some(CARRIED),
            _ => pace.rest(moved),
        };
        if let Some(sleep) = sleep {
            let inbox = engine.lock();
            if !inbox.urgent && !inbox.stop {
                drop(rested(engine, inbox, Some(sleep)));
            }
        }
    }
}

/// Waits until somebody calls, or so long.
fn rested<'a>(
    engine: &'a Engine,
    inbox: MutexGuard<'a, Inbox>,
    rest: Option<Duration>,
) -> MutexGuard<'a, Inbox> {
    match rest {
        Some(rest) => {
            let waited = engine.changed.wait_timeout(inbox, rest);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => {
            let waited = engine.changed.wait(inbox);
            waited.unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brief::Brief;

    /// Never ends.
    pub(super) struct Never;

    impl Job for Never {
        fn advance(&mut self) -> Result<Step> {
            Ok(Step::Idle)
        }

        fn ended(&mut self) -> bool {
            false
        }
    }

    fn handle() -> Handle {
        let about = About::unnumbered(Brief::named("Barrier"));
        Handle::new(Operation::new(Box::new(Never), Box::new(())), about)
    }

    #[test]
    fn the_engine_takes_what_nobody_else_carries() {
        let [free, ended, carried] = [handle(), handle(), handle()];
        ended.abandon();
        let other = carried.clone();
        let waiter = std::thread::spawn(move || other.wait());
        while !carried.is_carried() {
            std::thread::yield_now();
        }
        let mut inbox = Inbox {
            urgent: true,
            ..Inbox::default()
        };
        inbox
            .operations
            .extend([free.clone(), ended, carried.clone()]);
        let mut active = Vec::new();
        assert!(inbox.take(&mut active));
        assert_eq!(
            (active.len(), inbox.operations.len(), inbox.urgent),
            (1, 1, false)
        );
        assert!(inbox.operations[0].is_carried());
        assert!(!inbox.take(&mut active));
        carried.abandon();
        assert!(waiter.join().expect("no panic").is_err());
        assert!(!inbox.take(&mut active));
        assert!(inbox.operations.is_empty());
        free.abandon();
    }
}
