//! Streams, what runs on them, what must have run before, and when it does. Knows no handle of the driver's.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::memory;
use crate::state::{CHANGED, Guard, Schedule, State, schedule, state, wait};

/// Which stream. Default streams belong to a context, and per-thread ones to a thread as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum StreamId {
    Made(usize),
    Legacy(usize),
    PerThread(usize, ThreadId),
}

/// A place in a stream: everything up to the work of this number.
pub(crate) type Point = (StreamId, u64);

/// What a stream does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Holds a place in the order.
    Nothing,
    /// Rows of `width` bytes; the steps from row to row are those of source and target.
    Copy {
        to: usize,
        from: usize,
        width: usize,
        rows: usize,
        steps: (usize, usize),
    },
    Fill {
        to: usize,
        value: u8,
        n: usize,
    },
    /// A function of the host's, with its argument: runs while nobody holds the driver up.
    Call(unsafe extern "C" fn(*mut c_void), usize),
}

impl Work {
    pub fn bytes(self) -> usize {
        match self {
            Work::Nothing | Work::Call(..) => 0,
            Work::Copy { width, rows, .. } => width * rows,
            Work::Fill { n, .. } => n,
        }
    }
}

pub(crate) struct Item {
    number: u64,
    after: Vec<Point>,
    pub work: Work,
}

pub(crate) struct Stream {
    pub context: usize,
    /// Waits for the legacy stream, which waits for it.
    pub blocking: bool,
    pub capturing: bool,
    pub destroyed: bool,
    pub queue: VecDeque<Item>,
    /// Numbers of the last work that was queued and that has run.
    pub last: u64,
    pub done: u64,
}

impl Stream {
    pub fn new(context: usize, blocking: bool) -> Stream {
        Stream {
            context,
            blocking,
            capturing: false,
            destroyed: false,
            queue: VecDeque::new(),
            last: 0,
            done: 0,
        }
    }
}

/// Puts work on a stream, behind `after` and behind what CUDA orders before it by itself.
pub(crate) fn put(mut state: Guard, id: StreamId, work: Work, mut after: Vec<Point>) -> Guard {
    let Some(stream) = state.streams.get(&id) else {
        return state;
    };
    if stream.capturing {
        // It becomes part of the graph, which nobody launches here.
        return state;
    }
    let (context, blocking) = (stream.context, stream.blocking);
    let implied = state.streams.iter().filter(|(other, stream)| {
        let legacy = matches!(other, StreamId::Legacy(_));
        stream.context == context
            && **other != id
            && blocking
            && (stream.blocking && (legacy || is_legacy(id)))
    });
    after.extend(implied.map(|(other, stream)| (*other, stream.last)));
    let Some(stream) = state.streams.get_mut(&id) else {
        return state;
    };
    stream.last += 1;
    let number = stream.last;
    stream.queue.push_back(Item {
        number,
        after,
        work,
    });
    match schedule() {
        Schedule::Late => state,
        Schedule::Eager => finish(state, (id, number)),
        Schedule::Threads => {
            CHANGED.notify_all();
            state
        }
    }
}

fn is_legacy(id: StreamId) -> bool {
    matches!(id, StreamId::Legacy(_))
}

/// A stream that came into being gets its thread, where there are threads.
pub(crate) fn made(id: StreamId) {
    if schedule() == Schedule::Threads {
        thread::spawn(move || work_off(id));
    }
}

/// Returns when the work at this point has run.
pub(crate) fn finish(mut state: Guard, point: Point) -> Guard {
    if schedule() == Schedule::Threads {
        while !has_run(&state, point) {
            state = wait(state);
        }
        return state;
    }
    while !has_run(&state, point) {
        let after = match state.streams.get(&point.0).and_then(|s| s.queue.front()) {
            Some(item) => item.after.clone(),
            None => break,
        };
        for earlier in after {
            state = finish(state, earlier);
        }
        let Some(stream) = state.streams.get_mut(&point.0) else {
            break;
        };
        if let Some(item) = stream.queue.pop_front() {
            stream.done = item.number;
            state = match item.work {
                Work::Call(function, argument) => call(state, function, argument),
                work => {
                    run(&state, work, 0, 1);
                    state
                }
            };
        }
    }
    state
}

/// Returns when all work of a context has run.
pub(crate) fn finish_all(mut state: Guard, context: usize) -> Guard {
    let streams = state.streams.iter();
    let all: Vec<Point> = streams
        .filter(|(_, stream)| stream.context == context)
        .map(|(id, stream)| (*id, stream.last))
        .collect();
    for point in all {
        state = finish(state, point);
    }
    state
}

/// Runs the next piece of work of a stream because somebody asked how far it is.
pub(crate) fn nudge(state: Guard, id: StreamId) -> Guard {
    let next = state.streams.get(&id).map(|stream| stream.done + 1);
    match (schedule(), next) {
        (Schedule::Late, Some(next)) => finish(state, (id, next)),
        _ => state,
    }
}

pub(crate) fn has_run(state: &State, (id, number): Point) -> bool {
    state
        .streams
        .get(&id)
        .is_none_or(|stream| stream.done >= number)
}

/// The thread of a stream: each piece in two halves, at random moments.
fn work_off(id: StreamId) {
    let mut dice = Dice::new();
    let mut state = state();
    loop {
        let ready = match state.streams.get(&id) {
            None => return,
            Some(stream) => stream
                .queue
                .front()
                .is_some_and(|item| item.after.iter().all(|&point| has_run(&state, point))),
        };
        if !ready {
            state = wait(state);
            continue;
        }
        for half in 0..2 {
            drop(state);
            thread::sleep(dice.delay());
            state = crate::state::state();
            let work = state
                .streams
                .get(&id)
                .and_then(|stream| stream.queue.front())
                .map(|item| item.work);
            match work {
                Some(Work::Call(function, argument)) if half == 0 => {
                    state = call(state, function, argument);
                }
                Some(work) => run(&state, work, half, 2),
                None => {}
            }
        }
        if let Some(stream) = state.streams.get_mut(&id)
            && let Some(item) = stream.queue.pop_front()
        {
            stream.done = item.number;
        }
        CHANGED.notify_all();
    }
}

/// Calls a function of the host's, which may wait for anybody else.
fn call(state: Guard, function: unsafe extern "C" fn(*mut c_void), argument: usize) -> Guard {
    drop(state);
    // SAFETY:
    // - Whoever queued it promised that it may be called with this argument.
    unsafe { function(ptr::with_exposed_provenance_mut(argument)) };
    crate::state::state()
}

/// Runs part `part` of `parts` of a piece of work.
fn run(state: &State, work: Work, part: usize, parts: usize) {
    let cut = |n: usize| (n * part / parts, n * (part + 1) / parts);
    match work {
        Work::Nothing | Work::Call(..) => {}
        Work::Fill { to, value, n } => {
            let (first, end) = cut(n);
            let to = ptr::with_exposed_provenance_mut::<u8>(memory::inside(state, to + first));
            // SAFETY:
            // - Whoever queued the work promised a valid range until it has run.
            unsafe { to.write_bytes(value, end - first) };
        }
        Work::Copy {
            to,
            from,
            width,
            rows,
            steps,
        } => {
            // One row is cut by bytes, several by rows.
            let (rows, bytes) = match rows {
                1 => ((0, 1), cut(width)),
                _ => (cut(rows), (0, width)),
            };
            for row in rows.0..rows.1 {
                let to = memory::inside(state, to + row * steps.1 + bytes.0);
                let from = memory::inside(state, from + row * steps.0 + bytes.0);
                // SAFETY:
                // - As above.
                unsafe {
                    ptr::copy(
                        ptr::with_exposed_provenance::<u8>(from),
                        ptr::with_exposed_provenance_mut::<u8>(to),
                        bytes.1 - bytes.0,
                    );
                }
            }
        }
    }
}

/// Random delays, other ones in every run.
struct Dice {
    state: u64,
    longest: u64,
}

impl Dice {
    fn new() -> Dice {
        let given = std::env::var("SIMULATED_DELAY_US").ok();
        Dice {
            state: RandomState::new().hash_one(0) | 1,
            longest: given.and_then(|n| n.parse().ok()).unwrap_or(400),
        }
    }

    fn delay(&mut self) -> Duration {
        // xorshift
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        Duration::from_micros(self.state % (self.longest + 1))
    }
}
