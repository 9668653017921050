//! The tests' own way in: memory past all streams, captures, what is current, what was called, what is alive, and
//! which call fails next.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use crate::memory::{Kind, inside};
use crate::state::{CURRENT, Fault, context_of, current_device, state};
use crate::streams;

/// Ends the process with words: a rule was broken in a way that a real driver punishes at random.
pub(crate) fn end(words: &str) -> ! {
    let words = format!("simulated driver: {words}\n");
    // SAFETY:
    // - A buffer of this length. `abort` may be called at any time.
    unsafe {
        libc::write(2, words.as_ptr().cast(), words.len());
        libc::abort()
    }
}

/// What is in device memory now, whatever is queued.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_read(to: *mut u8, at: u64, n: usize) {
    let from = inside(&state(), at as usize);
    // SAFETY:
    // - The test passes ranges of this length.
    unsafe { ptr::copy(ptr::with_exposed_provenance::<u8>(from), to, n) };
}

/// Puts something into device memory now, whatever is queued.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_write(at: u64, from: *const u8, n: usize) {
    let to = inside(&state(), at as usize);
    // SAFETY:
    // - The test passes ranges of this length.
    unsafe { ptr::copy(from, ptr::with_exposed_provenance_mut::<u8>(to), n) };
}

/// Begins or ends a capture on a stream of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_capture(stream: u64, capturing: bool) {
    let mut state = state();
    let id = streams::of(&mut state, ptr::without_provenance_mut(stream as usize));
    if let Some(stream) = id.and_then(|id| state.streams.get_mut(&id)) {
        stream.capturing = capturing;
    }
}

/// The device whose context is current on this thread, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_current() -> c_int {
    current_device()
}

/// Makes a device current, as a framework would, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_set_current(device: c_int) {
    CURRENT.set(if device < 0 { 0 } else { context_of(device) });
}

fn text(name: *const c_char) -> String {
    // SAFETY:
    // - The test passes a C string.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// How often a function was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_calls(name: *const c_char) -> u64 {
    state().calls.get(&text(name)).copied().unwrap_or(0)
}

/// Begins to write down what is called, or ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_record(on: bool) {
    state().log = on.then(Vec::new);
}

/// What was called since then, a line per call; gives its length, and copies as much as there is room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_recorded(to: *mut u8, room: usize) -> usize {
    let lines = state()
        .log
        .as_ref()
        .map_or(String::new(), |log| log.join("\n"));
    // SAFETY:
    // - The test passes so much room.
    unsafe { ptr::copy_nonoverlapping(lines.as_ptr(), to, lines.len().min(room)) };
    lines.len()
}

/// Lets a call fail, after so many that succeed: once, or from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_fail(
    name: *const c_char,
    after: u64,
    code: c_uint,
    lasting: bool,
) {
    state().faults.push(Fault {
        call: text(name),
        after,
        code,
        lasting,
    });
}

/// No call fails any more; how many were still to fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_mend() -> u64 {
    let mut state = state();
    let waiting = state.faults.len() as u64;
    state.faults.clear();
    waiting
}

/// How much is alive: "streams", "events", "pinned", "memory" (allocations), "pending" (work that has not run).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_alive(what: *const c_char) -> u64 {
    let state = state();
    let regions = |pinned: bool| {
        let regions = state.memory.values();
        regions
            .filter(|region| (region.kind == Kind::Pinned) == pinned)
            .count()
    };
    let count = match text(what).as_str() {
        "streams" => state
            .streams
            .values()
            .filter(|stream| !stream.destroyed)
            .count(),
        "events" => state.events.len(),
        "pinned" => regions(true),
        "memory" => regions(false),
        "pending" => state
            .streams
            .values()
            .map(|stream| stream.queue.len())
            .sum(),
        other => end(&format!("simulated_alive: nothing is called {other}")),
    };
    count as u64
}
