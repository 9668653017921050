//! The test's own way in: device memory, kernels, captures, what is current, what was called.

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{CURRENT, MAP_PRIVATE_ANONYMOUS, PAGE, PROT_NONE, Work, context_of, mmap, state};

/// Device memory, which the host cannot touch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_alloc(n: usize, device: c_int) -> u64 {
    let n = n.next_multiple_of(PAGE);
    // SAFETY:
    // - A new private mapping.
    let start = unsafe { mmap(ptr::null_mut(), n, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
    let start = start.expose_provenance();
    if let Some(state) = state().as_mut() {
        state.device_memory.push((start, n, device));
    }
    start as u64
}

/// A kernel of the producer's on one of our streams: fills memory, when somebody waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_launch(stream: u64, dst: u64, value: u8, n: usize) {
    if let Some(stream) = state()
        .as_mut()
        .and_then(|state| state.streams.get_mut(&(stream as usize)))
    {
        stream.queue.push(Work::Fill {
            dst: dst as usize,
            value,
            n,
        });
    }
}

/// Begins or ends a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_capture(stream: u64, capturing: bool) {
    if let Some(stream) = state()
        .as_mut()
        .and_then(|state| state.streams.get_mut(&(stream as usize)))
    {
        stream.capturing = capturing;
    }
}

/// Whose context is current on this thread: its device, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_current() -> c_int {
    match CURRENT.get() {
        0 => -1,
        context => (context - context_of(0)) as c_int,
    }
}

/// Makes a device current, as a framework would, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_set_current(device: c_int) {
    CURRENT.set(if device < 0 { 0 } else { context_of(device) });
}

/// How often a function was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_calls(name: *const c_char) -> c_int {
    // SAFETY:
    // - The test passes a C string.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy();
    state().as_ref().map_or(0, |state| {
        state.log.iter().filter(|call| **call == name).count() as c_int
    })
}
