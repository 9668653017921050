//! What the driver remembers, and the rules that hold for every call. Knows no function by name.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::memory::Region;
use crate::schedule::{Point, Stream, StreamId};
use crate::{INVALID_CONTEXT, INVALID_VALUE, NOT_INITIALIZED, OK};

/// When queued work runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    Late,
    Eager,
    Threads,
}

/// A call that is to fail. `SIMULATED_FAILURE=call:code` lets every call of one function fail from the start.
pub(crate) struct Fault {
    pub call: String,
    /// How many calls of it succeed before.
    pub after: u64,
    pub code: c_uint,
    /// Every call from then on fails, not that one alone.
    pub lasting: bool,
}

#[derive(Default)]
pub(crate) struct State {
    pub initialised: bool,
    pub streams: HashMap<StreamId, Stream>,
    /// What an event was last recorded behind.
    pub events: HashMap<usize, Option<Point>>,
    pub memory: BTreeMap<usize, Region>,
    pub calls: HashMap<String, u64>,
    pub faults: Vec<Fault>,
    /// Handles given out so far.
    pub handles: usize,
    /// What was called, in order, and on what; while a test records it.
    pub log: Option<Vec<String>>,
}

impl State {
    /// Says in the log what the call that is being made works on.
    pub fn note(&mut self, words: std::fmt::Arguments<'_>) {
        if let Some(line) = self.log.as_mut().and_then(|log| log.last_mut()) {
            line.push_str(&format!(" {words}"));
        }
    }
}

pub(crate) type Guard = MutexGuard<'static, State>;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let ordered = std::env::var("SIMULATED_FAILURE").ok();
    let fault = ordered.as_deref().and_then(|text| text.split_once(':'));
    let faults = fault.map(|(call, code)| Fault {
        call: call.to_owned(),
        after: 0,
        code: code.parse().unwrap_or(INVALID_VALUE),
        lasting: true,
    });
    Mutex::new(State {
        faults: faults.into_iter().collect(),
        ..State::default()
    })
});
/// Work has run, or there is more of it.
pub(crate) static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// The context that is current on this thread; 0 is none.
    pub(crate) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn state() -> Guard {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait(state: Guard) -> Guard {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn schedule() -> Schedule {
    static CHOSEN: LazyLock<Schedule> =
        LazyLock::new(|| match std::env::var("SIMULATED_SCHEDULE").as_deref() {
            Ok("eager") => Schedule::Eager,
            Ok("threads") => Schedule::Threads,
            Ok("late") | Err(_) => Schedule::Late,
            Ok(other) => crate::control::end(&format!(
                "SIMULATED_SCHEDULE={other}: late, eager or threads"
            )),
        });
    *CHOSEN
}

pub(crate) fn devices() -> c_int {
    let given = std::env::var("SIMULATED_DEVICES").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// Contexts are numbered from 0x1000; NULL is none.
pub(crate) fn context_of(device: c_int) -> usize {
    0x1000 + device as usize
}

/// The device whose context is current, or -1.
pub(crate) fn current_device() -> c_int {
    match CURRENT.get() {
        0 => -1,
        context => (context - context_of(0)) as c_int,
    }
}

/// What a call needs to have happened before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Driver,
    Context,
}

/// Notes the call and applies the rules that hold for all of them.
pub(crate) fn enter(call: &str, needs: Needs, act: impl FnOnce(Guard) -> c_uint) -> c_uint {
    let mut state = state();
    let calls = state.calls.entry(call.to_owned()).or_default();
    *calls += 1;
    if let Some(log) = &mut state.log {
        log.push(call.to_owned());
    }
    if let Some(code) = failing(&mut state, call) {
        return code;
    }
    if needs != Needs::Nothing && !state.initialised {
        return NOT_INITIALIZED;
    }
    if needs == Needs::Context && CURRENT.get() == 0 {
        return INVALID_CONTEXT;
    }
    act(state)
}

/// The error that a test ordered for this call.
fn failing(state: &mut State, call: &str) -> Option<c_uint> {
    let at = state.faults.iter().position(|fault| fault.call == call)?;
    let fault = &mut state.faults[at];
    if fault.after > 0 {
        fault.after -= 1;
        return None;
    }
    let (code, lasting) = (fault.code, fault.lasting);
    if !lasting {
        state.faults.remove(at);
    }
    (code != OK).then_some(code)
}
