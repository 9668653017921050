//! The trace: what this process called, when, and which way it went.
//!
//! ```text
//! call --Span--> events in memory --(writer's thread, ten times a second)--> one file per rank
//! ```
//!
//! A span costs two looks at the clock and one push; words are made by the writer. Off, it costs one load.
//! Files of the ranks are brought together elsewhere, by number of communicator and call. Knows no
//! tensor's memory, and sends nothing.

mod taken;
mod writer;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::brief::Brief;
use crate::ground::process;
use crate::ground::state::State;

pub(crate) use taken::Taken;
pub use writer::{Header, start, stop};

static ON: AtomicBool = AtomicBool::new(false);
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());

thread_local! {
    static HIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// What is traced.
#[derive(Debug)]
enum What {
    /// An operation.
    Operation {
        brief: Brief,
        /// The communicator's state, whose number may be agreed on only later, and the call's number.
        numbered: Option<(Arc<State>, u64)>,
        taken: Taken,
        /// Of the non-blocking ones, which overlap.
        flight: Option<u64>,
        failed: bool,
    },
    /// A stretch of the user's program.
    Note(String),
    /// A call that mpi4py's own method serves.
    Foreign {
        /// Its name.
        name: String,
        failed: bool,
    },
}

/// One line of the trace.
#[derive(Debug)]
struct Event {
    what: What,
    start: u64,
    end: u64,
    thread: i32,
}

/// An operation that goes on; it is traced when it goes.
#[derive(Debug)]
pub(crate) struct Span(Option<Event>);

impl Span {
    /// Notes which way the operation goes.
    pub fn takes(&mut self, way: Taken) {
        if let Some(Event {
            what: What::Operation { taken, .. },
            ..
        }) = &mut self.0
        {
            *taken = way;
        }
    }

    /// Notes how it ended.
    pub fn ends(&mut self, well: bool) {
        if let Some(Event {
            what: What::Operation { failed, .. },
            ..
        }) = &mut self.0
        {
            *failed = !well;
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut event) = self.0.take() {
            event.end = now();
            push(event);
        }
    }
}

/// Whether operations are traced.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins a blocking operation.
#[inline]
pub(crate) fn begin(
    numbered: Option<(&Arc<State>, u64)>,
    brief: impl FnOnce() -> Brief,
) -> Option<Span> {
    (is_on() && !HIDDEN.get()).then(|| span(numbered, brief(), None))
}

/// Begins one that overlaps with others.
#[inline]
pub(crate) fn begin_flight(numbered: Option<(&Arc<State>, u64)>, brief: Brief) -> Option<Span> {
    static FLIGHTS: AtomicU64 = AtomicU64::new(1);
    is_on().then(|| {
        let number = FLIGHTS.fetch_add(1, Ordering::Relaxed);
        span(numbered, brief, Some(number))
    })
}

/// Notes which way the operation goes, where it is traced.
#[inline]
pub(crate) fn takes(span: &mut Option<Span>, way: impl FnOnce() -> Taken) {
    if let Some(span) = span {
        span.takes(way());
    }
}

/// Notes how the operation ended, where it is traced.
#[inline]
pub(crate) fn ended<T>(
    span: &mut Option<Span>,
    result: crate::error::Result<T>,
) -> crate::error::Result<T> {
    if let Some(span) = span {
        span.ends(result.is_ok());
    }
    result
}

fn span(numbered: Option<(&Arc<State>, u64)>, brief: Brief, flight: Option<u64>) -> Span {
    let start = now();
    Span(Some(Event {
        what: What::Operation {
            brief,
            numbered: numbered.map(|(state, n)| (Arc::clone(state), n)),
            taken: Taken::default(),
            flight,
            failed: true,
        },
        start,
        end: start,
        thread: thread(),
    }))
}

/// Traces a stretch of the user's program, from `start` (as [`now`] gives it) until now.
pub fn note(words: String, start: u64) {
    stretch(What::Note(words), start);
}

/// Traces a call that mpi4py's own method serves, in the same way.
pub fn foreign(name: String, start: u64, failed: bool) {
    stretch(What::Foreign { name, failed }, start);
}

/// Whether operations of this thread are left out from now on: they are part of another one.
pub fn hide(hidden: bool) {
    HIDDEN.set(hidden);
}

fn stretch(what: What, start: u64) {
    if is_on() && process::alive().is_ok() {
        push(Event {
            what,
            start,
            end: now(),
            thread: thread(),
        });
    }
}

fn push(event: Event) {
    EVENTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(event);
}

/// Nanoseconds of the clock that all processes of a node share.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `time` is room for what is written.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn thread() -> i32 {
    thread_local! {
        // SAFETY:
        // - it takes nothing and cannot fail.
        static ID: i32 = unsafe { libc::gettid() };
    }
    ID.try_with(|id| *id).unwrap_or(0)
}
