//! The watch over collectives that take too long: which are under way in this process, since when, and
//! how long they may take.
//!
//! ```text
//! call --enter--> WAITS --(engine's thread: watcher)--> questions to the other ranks --> report --> abort
//! ```
//!
//! A call is entered by the thread that makes it and seen by the engine's thread, which never blocks and
//! so can ask the other ranks, and answer them, while every other thread of the process waits or works.
//! Off (one load per call) unless `DLMPI_TIMEOUT` or [`limit_here`] asks for it. Knows no tensor.

mod arrivals;
mod inquiry;
mod report;
mod watcher;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::brief::Brief;
use crate::comm::Comm;
use crate::error::Result;
use crate::ground::settings::Settings;
use crate::ground::state::State;

pub(crate) use arrivals::of as arrivals_of;
pub use arrivals::{Arrivals, Heard, Late};
pub(crate) use watcher::{PERIOD, Watcher};

/// The exit code of a job that was ended because a collective took too long: as of `timeout(1)`.
pub const EXIT_CODE: i32 = 124;

/// Whether calls are entered at all.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether the engine's thread asks and answers.
static ANSWERING: AtomicBool = AtomicBool::new(false);
static WAITS: Mutex<Vec<Wait>> = Mutex::new(Vec::new());
static STACK: OnceLock<Stack> = OnceLock::new();

thread_local! {
    /// What [`limit_here`] said.
    static LIMIT: Cell<Option<Option<Duration>>> = const { Cell::new(None) };
}

/// A collective as others know it.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// Of its communicator; gone where the communicator is, and absent where calls are not numbered.
    pub state: Weak<State>,
    pub sequence: u64,
    pub brief: Brief,
    pub since: Instant,
}

impl About {
    /// Of a call that has no number among those of its communicator, begun now.
    pub fn unnumbered(brief: Brief) -> About {
        About {
            state: Weak::new(),
            sequence: 0,
            brief,
            since: Instant::now(),
        }
    }
}

/// A collective under way.
#[derive(Debug, Clone)]
struct Wait {
    key: u64,
    about: About,
    comm: Comm,
    limit: Option<Duration>,
    /// The thread that made the call, as `pthread_self` names it.
    thread: usize,
    reported: bool,
}

/// Takes the call out of the list when it has ended.
#[derive(Debug)]
pub(crate) struct Entered(u64);

impl Drop for Entered {
    fn drop(&mut self) {
        waits().retain(|wait| wait.key != self.0);
    }
}

fn waits() -> MutexGuard<'static, Vec<Wait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to answer other ranks, and to watch where `DLMPI_TIMEOUT` says so. The first part of a duplicate
/// of `COMM_WORLD` is made, so every rank must do this at the same place among its collectives there.
///
/// # Errors
/// What MPI reports.
pub fn start(comm: Comm) -> Result<()> {
    let settings = Settings::get()?;
    if settings.plain || ANSWERING.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    ON.store(true, Ordering::Release);
    if comm.size()? > 1 && crate::engine::allowed(comm.mpi()).is_ok() {
        State::of(comm)?.begin()?;
    }
    crate::engine::run_always()
}

/// How the Python stacks of this process are got.
pub struct Stack {
    /// By means that work while no thread of it does.
    pub get: Box<dyn Fn() -> String + Send + Sync>,
    /// Files below this folder are not the user's.
    pub own: String,
}

/// Says how to get them.
pub fn set_stack(stack: Stack) {
    // Whoever came first stays: there is one interpreter.
    let _ = STACK.set(stack);
}

fn stack() -> String {
    STACK.get().map_or_else(String::new, |stack| (stack.get)())
}

/// Whether the engine's thread has waits to look at.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Sets how long collectives that this thread starts from now on may take, in place of `DLMPI_TIMEOUT`:
/// `Some(None)` for ever, `None` takes it back. Gives what was set before. Each rank says so for itself.
///
/// # Errors
/// [`crate::Error::State`] where the engine's thread cannot start.
pub fn limit_here(limit: Option<Option<Duration>>) -> Result<Option<Option<Duration>>> {
    if limit.is_some() {
        ON.store(true, Ordering::Release);
        crate::engine::run_always()?;
    }
    Ok(LIMIT.replace(limit))
}

/// Enters a collective, numbered where it has a state.
#[inline]
pub(crate) fn enter(
    comm: Comm,
    numbered: Option<(&Arc<State>, u64)>,
    brief: impl FnOnce() -> Brief,
) -> Option<Entered> {
    if is_on() {
        Some(enter_now(comm, numbered, brief()))
    } else {
        None
    }
}

#[cold]
fn enter_now(comm: Comm, numbered: Option<(&Arc<State>, u64)>, brief: Brief) -> Entered {
    let settings = Settings::get().unwrap_or_default();
    let (state, sequence) =
        numbered.map_or((Weak::new(), 0), |(state, n)| (Arc::downgrade(state), n));
    // SAFETY:
    // - it takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() } as usize;
    let mut waits = waits();
    static KEYS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    waits.push(Wait {
        key,
        about: About {
            state,
            sequence,
            brief,
            since: Instant::now(),
        },
        comm,
        limit: LIMIT.get().unwrap_or_else(|| settings.timeout.limit()),
        thread,
        reported: false,
    });
    Entered(key)
}
