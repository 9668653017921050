//! A CUDA driver that keeps the letter of the promises and no more: queued work runs when somebody waits for its
//! stream and not before, device memory cannot be read by the host, and every rule about initialisation and the
//! current context is enforced.
//!
//! Compiled twice: as the library that takes the place of libcuda.so, and into the tests, so that it is checked
//! and formatted like everything else. Shares nothing with the crate under test but the ABI of cuda.h.
#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(clippy::missing_safety_doc, reason = "each is called as cuda.h says")]
#![allow(unexpected_cfgs, reason = "one is given on the command line")]
#![allow(dead_code, reason = "the tests call these through the library")]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

const OK: c_uint = 0;
const INVALID_VALUE: c_uint = 1;
const NOT_INITIALIZED: c_uint = 3;
const NO_DEVICE: c_uint = 100;
const INVALID_DEVICE: c_uint = 101;
const INVALID_CONTEXT: c_uint = 201;
const INVALID_HANDLE: c_uint = 400;
const CAPTURE_UNSUPPORTED: c_uint = 900;

const PAGE: usize = 4096;
const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        n: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        off: i64,
    ) -> *mut c_void;
    fn mprotect(at: *mut c_void, n: usize, prot: c_int) -> c_int;
}

/// Work on a stream.
#[derive(Clone, Copy)]
enum Work {
    Copy { dst: usize, src: usize, n: usize },
    Fill { dst: usize, value: u8, n: usize },
}

#[derive(Default)]
struct Stream {
    context: usize,
    queue: Vec<Work>,
    capturing: bool,
}

/// Everything the driver remembers.
#[derive(Default)]
struct State {
    initialised: bool,
    streams: HashMap<usize, Stream>,
    pinned: HashSet<usize>,
    device_memory: Vec<(usize, usize, c_int)>,
    log: Vec<String>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

mod control;
mod memory;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn state() -> MutexGuard<'static, Option<State>> {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    guard
}

fn devices() -> c_int {
    std::env::var("SIMULATED_DEVICES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(2)
}

/// Notes the call and applies the rules that hold for all of them.
fn enter(call: &str, needs_context: bool, act: impl FnOnce(&mut State) -> c_uint) -> c_uint {
    let mut guard = state();
    let Some(state) = guard.as_mut() else {
        return INVALID_VALUE;
    };
    state.log.push(call.to_owned());
    if let Some((name, code)) = std::env::var("SIMULATED_FAILURE")
        .as_deref()
        .ok()
        .and_then(|f| f.split_once(':'))
        && name == call
    {
        return code.parse().unwrap_or(INVALID_VALUE);
    }
    if call != "cuInit" && !state.initialised {
        return NOT_INITIALIZED;
    }
    if needs_context && CURRENT.get() == 0 {
        return INVALID_CONTEXT;
    }
    act(state)
}

/// Contexts are numbered from 0x1000; NULL is none.
fn context_of(device: c_int) -> usize {
    0x1000 + device as usize
}

/// The stream, if it belongs to the context that is current.
fn stream_of(state: &mut State, stream: *mut c_void) -> Option<&mut Stream> {
    state
        .streams
        .get_mut(&stream.addr())
        .filter(|stream| stream.context == CURRENT.get())
}

fn queue(state: &mut State, stream: *mut c_void, work: Work) -> c_uint {
    match stream_of(state, stream) {
        Some(stream) => {
            stream.queue.push(work);
            OK
        }
        None => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> c_uint {
    enter("cuInit", false, |state| {
        if flags != 0 {
            return INVALID_VALUE;
        }
        if devices() == 0 {
            return NO_DEVICE;
        }
        state.initialised = true;
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    // SAFETY:
    // - The caller passes a valid pointer, as cuda.h asks.
    unsafe { *version = 12040 };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    let known = match code {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
        _ => {
            // SAFETY:
            // - The caller passes a valid pointer, as cuda.h asks.
            unsafe { *name = ptr::null() };
            return INVALID_VALUE;
        }
    };
    // SAFETY:
    // - As above.
    unsafe { *name = known.as_ptr() };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_uint, text: *mut *const c_char) -> c_uint {
    // SAFETY:
    // - The caller's promises are the same.
    unsafe { cuGetErrorName(code, text) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    enter("cuDeviceGetCount", false, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *count = devices() };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    enter("cuDeviceGet", false, |_| {
        if !(0..devices()).contains(&ordinal) {
            return INVALID_DEVICE;
        }
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *device = ordinal };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_uint {
    enter("cuDevicePrimaryCtxRetain", false, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *context = ptr::without_provenance_mut(context_of(device)) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_uint {
    enter("cuCtxGetCurrent", false, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *context = ptr::without_provenance_mut(CURRENT.get()) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_uint {
    enter("cuCtxSetCurrent", false, |_| {
        CURRENT.set(context.addr());
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) -> c_uint {
    enter("cuStreamCreate", true, |state| {
        // A blocking stream would wait for the legacy stream: not what was agreed.
        if flags != 1 {
            return INVALID_VALUE;
        }
        let handle = 0x5000 + 0x10 * state.streams.len();
        state.streams.insert(
            handle,
            Stream {
                context: CURRENT.get(),
                ..Stream::default()
            },
        );
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *stream = ptr::without_provenance_mut(handle) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_uint {
    enter("cuStreamSynchronize", true, |state| {
        let Some(stream) = stream_of(state, stream) else {
            return INVALID_HANDLE;
        };
        if stream.capturing {
            return CAPTURE_UNSUPPORTED;
        }
        let work = std::mem::take(&mut stream.queue);
        for item in work {
            run(state, item);
        }
        OK
    })
}

/// Opens device memory for as long as the work takes.
fn run(state: &State, work: Work) {
    let protect = |prot: c_int| {
        for &(start, n, _) in &state.device_memory {
            // SAFETY:
            // - Whole pages that `simulated_alloc` mapped.
            unsafe { mprotect(ptr::with_exposed_provenance_mut(start), n, prot) };
        }
    };
    protect(PROT_READ_WRITE);
    match work {
        Work::Copy { dst, src, n } => {
            let (dst, src) = (
                ptr::with_exposed_provenance_mut::<u8>(dst),
                ptr::with_exposed_provenance::<u8>(src),
            );
            // SAFETY:
            // - The caller of the copy promised valid ranges until it is waited for.
            unsafe { ptr::copy(src, dst, n) };
        }
        // SAFETY:
        // - The test promised a valid range.
        Work::Fill { dst, value, n } => unsafe {
            ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(dst), value, n)
        },
    }
    protect(PROT_NONE);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_int) -> c_uint {
    enter("cuStreamIsCapturing", false, |state| {
        if stream.is_null() {
            // The legacy stream cannot be asked while another stream is captured.
            return if state.streams.values().any(|s| s.capturing) {
                906
            } else {
                OK
            };
        }
        let Some(stream) = state.streams.get(&stream.addr()) else {
            return INVALID_HANDLE;
        };
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *status = c_int::from(stream.capturing) };
        OK
    })
}
