//! Memory that the driver gave: device, managed and pinned. The host sees device memory in a mapping that it cannot
//! touch, and the driver sees the same pages in another one. Knows no stream.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::control::end;
use crate::schedule::{Work, finish_all};
use crate::state::{Guard, Needs, State, context_of, current_device, enter};
use crate::streams::forbidden;
use crate::{CAPTURE_UNSUPPORTED, INVALID_VALUE, OK, OUT_OF_MEMORY};

const PAGE: usize = 4096;
/// The handle of the only pool.
const POOL: c_uint = 0x900;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// Of a device, from a stream-ordered pool: no other process can open it.
    Pool,
    /// Of a device, mapped by the virtual memory functions: nor this.
    Virtual,
    Managed,
    Pinned,
}

/// One allocation, by its first address.
pub(crate) struct Region {
    pub n: usize,
    pub device: c_int,
    pub kind: Kind,
    /// Where the driver sees it.
    inside: usize,
}

fn pages(n: usize) -> usize {
    n.max(1).next_multiple_of(PAGE)
}

fn map(n: usize, protection: c_int, file: c_int) -> usize {
    let flags = match file {
        -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        _ => libc::MAP_SHARED,
    };
    // SAFETY:
    // - A new mapping, at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), n, protection, flags, file, 0) };
    match start {
        libc::MAP_FAILED => 0,
        start => start.expose_provenance(),
    }
}

fn unmap(start: usize, n: usize) {
    // SAFETY:
    // - A mapping of `map`'s that nobody uses any more.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), n) };
}

/// A new allocation; its first address, or 0.
fn allocate(state: &mut State, n: usize, device: c_int, kind: Kind) -> usize {
    let n = pages(n);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let readable = std::env::var("SIMULATED_READABLE").is_ok_and(|set| set == "1");
    let (start, inside) = if matches!(kind, Kind::Managed | Kind::Pinned) {
        let start = map(n, both, -1);
        (start, start)
    } else {
        // SAFETY:
        // - A C string; the file is closed below, which the mappings outlive.
        let file = unsafe { libc::memfd_create(c"simulated".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY:
        // - Our own file.
        if file < 0 || unsafe { libc::ftruncate(file, n as i64) } != 0 {
            return 0;
        }
        let outside = if readable { both } else { libc::PROT_NONE };
        let mappings = (map(n, outside, file), map(n, both, file));
        // SAFETY:
        // - Our own file, closed once.
        unsafe { libc::close(file) };
        mappings
    };
    if start == 0 || inside == 0 {
        return 0;
    }
    let region = Region {
        n,
        device,
        kind,
        inside,
    };
    state.memory.insert(start, region);
    start
}

/// The allocation that an address lies in, and where that begins.
pub(crate) fn find(state: &State, at: usize) -> Option<(usize, &Region)> {
    let (start, region) = state.memory.range(..=at).next_back()?;
    (at < start + region.n).then_some((*start, region))
}

/// Where the driver sees an address; other memory is where it is.
pub(crate) fn inside(state: &State, at: usize) -> usize {
    match find(state, at) {
        Some((start, region)) => region.inside + (at - start),
        None => at,
    }
}

/// Takes an allocation away. Work that still needs it would write to whoever gets the pages next.
fn release(mut state: Guard, start: usize, pinned: bool) -> c_uint {
    let Some(region) = state.memory.get(&start) else {
        return INVALID_VALUE;
    };
    if pinned != (region.kind == Kind::Pinned) {
        return INVALID_VALUE;
    }
    let range = start..start + region.n;
    if pinned {
        let touched = |at: usize| range.contains(&at);
        let pending = state.streams.values().flat_map(|stream| &stream.queue);
        let used = pending.into_iter().any(|item| match item.work {
            Work::Nothing | Work::Call(..) => false,
            Work::Fill { to, .. } => touched(to),
            Work::Copy { to, from, .. } => touched(to) || touched(from),
        });
        if used {
            end("cuMemFreeHost: work that is queued still needs this memory");
        }
    } else {
        // cuMemFree waits for all work of its context.
        let context = context_of(region.device);
        state = finish_all(state, context);
    }
    if let Some(region) = state.memory.remove(&start) {
        unmap(start, region.n);
        if region.inside != start {
            unmap(region.inside, region.n);
        }
    }
    OK
}

fn give(mut state: Guard, n: usize, kind: Kind, slot: impl FnOnce(usize)) -> c_uint {
    if n == 0 {
        return INVALID_VALUE;
    }
    match allocate(&mut state, n, current_device(), kind) {
        0 => OUT_OF_MEMORY,
        start => {
            slot(start);
            OK
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(start: *mut u64, n: usize) -> c_uint {
    enter("cuMemAlloc", Needs::Context, |state| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        give(state, n, Kind::Device, |at| unsafe { *start = at as u64 })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(start: *mut u64, n: usize, _flags: c_uint) -> c_uint {
    enter("cuMemAllocManaged", Needs::Context, |state| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        give(state, n, Kind::Managed, |at| unsafe { *start = at as u64 })
    })
}

/// Of the current device's pool, at once: work that is queued later on `_stream` finds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    start: *mut u64,
    n: usize,
    _stream: *mut c_void,
) -> c_uint {
    enter("cuMemAllocAsync", Needs::Context, |state| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        give(state, n, Kind::Pool, |at| unsafe { *start = at as u64 })
    })
}

/// What `cuMemCreate`, `cuMemAddressReserve`, `cuMemMap` and `cuMemSetAccess` make together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_map_virtual(start: *mut u64, n: usize) -> c_uint {
    enter("cuMemMap", Needs::Context, |state| {
        // SAFETY:
        // - The test passes a valid pointer.
        give(state, n, Kind::Virtual, |at| unsafe { *start = at as u64 })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(start: u64) -> c_uint {
    enter("cuMemFree", Needs::Context, |state| {
        release(state, start as usize, false)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    start: *mut *mut c_void,
    n: usize,
    flags: c_uint,
) -> c_uint {
    enter("cuMemHostAlloc", Needs::Context, |state| {
        if forbidden(&state) {
            return CAPTURE_UNSUPPORTED;
        }
        // Portable, so that every context knows it: what was agreed.
        if flags != 1 {
            return INVALID_VALUE;
        }
        give(state, n, Kind::Pinned, |at| {
            // SAFETY:
            // - The caller passes a valid pointer, as cuda.h asks.
            unsafe { *start = ptr::with_exposed_provenance_mut(at) }
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(start: *mut c_void) -> c_uint {
    enter("cuMemFreeHost", Needs::Context, |state| {
        match forbidden(&state) {
            true => CAPTURE_UNSUPPORTED,
            false => release(state, start.addr(), true),
        }
    })
}

#[cfg(not(feature = "without-pointer-attributes"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    n: c_uint,
    names: *mut c_uint,
    values: *mut *mut c_void,
    at: u64,
) -> c_uint {
    enter("cuPointerGetAttributes", Needs::Driver, |state| {
        let region = find(&state, at as usize).map(|(_, region)| (region.kind, region.device));
        for i in 0..n as usize {
            // SAFETY:
            // - The caller passes `n` names and `n` slots, as cuda.h asks.
            let (name, slot) = unsafe { (*names.add(i), (*values.add(i)).cast::<c_uint>()) };
            let value = match (name, region) {
                (2, Some((Kind::Pinned, _))) => 1,
                (2, Some(_)) => 2,
                (8, Some((kind, _))) => c_uint::from(kind == Kind::Managed),
                (9, Some((_, device))) => device as c_uint,
                (10, Some((kind, _))) => c_uint::from(kind == Kind::Device),
                (17, Some((Kind::Pool, _))) => POOL,
                _ => 0,
            };
            // SAFETY:
            // - Each slot is wide enough for its attribute.
            unsafe { *slot = value };
        }
        OK
    })
}
