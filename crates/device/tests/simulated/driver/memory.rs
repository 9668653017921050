//! Copies, pinned memory and what is known about an address.

use std::ffi::{c_uint, c_void};

use super::{INVALID_VALUE, OK, Work, enter, queue};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    dst: *mut c_void,
    src: u64,
    n: usize,
    stream: *mut c_void,
) -> c_uint {
    let work = Work::Copy {
        dst: dst.expose_provenance(),
        src: src as usize,
        n,
    };
    enter("cuMemcpyDtoHAsync", true, |state| {
        queue(state, stream, work)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    dst: u64,
    src: *const c_void,
    n: usize,
    stream: *mut c_void,
) -> c_uint {
    let work = Work::Copy {
        dst: dst as usize,
        src: src.expose_provenance(),
        n,
    };
    enter("cuMemcpyHtoDAsync", true, |state| {
        queue(state, stream, work)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    dst: u64,
    src: u64,
    n: usize,
    stream: *mut c_void,
) -> c_uint {
    let work = Work::Copy {
        dst: dst as usize,
        src: src as usize,
        n,
    };
    enter("cuMemcpyDtoDAsync", true, |state| {
        queue(state, stream, work)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    start: *mut *mut c_void,
    n: usize,
    flags: c_uint,
) -> c_uint {
    enter("cuMemHostAlloc", true, |state| {
        if flags != 1 {
            return INVALID_VALUE;
        }
        let memory: Box<[u64]> = vec![0; n.div_ceil(8)].into();
        let memory = Box::leak(memory).as_mut_ptr();
        state.pinned.insert(memory.addr());
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *start = memory.cast() };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(start: *mut c_void) -> c_uint {
    enter("cuMemFreeHost", true, |state| {
        if state.pinned.remove(&start.addr()) {
            OK
        } else {
            INVALID_VALUE
        }
    })
}

#[cfg(not(without_pointer_attributes))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    n: c_uint,
    names: *mut c_uint,
    values: *mut *mut c_void,
    at: u64,
) -> c_uint {
    enter("cuPointerGetAttributes", false, |state| {
        let at = at as usize;
        let device = state
            .device_memory
            .iter()
            .find(|(start, n, _)| (*start..start + n).contains(&at));
        for i in 0..n as usize {
            // SAFETY:
            // - The caller passes `n` names and `n` slots, as cuda.h asks.
            let (name, slot) = unsafe { (*names.add(i), (*values.add(i)).cast::<c_uint>()) };
            let value = match (name, device) {
                (2, Some(_)) => 2,
                (2, None) if state.pinned.contains(&at) => 1,
                (9, Some(&(_, _, device))) => device as c_uint,
                _ => 0,
            };
            // SAFETY:
            // - Each slot is wide enough for its attribute.
            unsafe { *slot = value };
        }
        OK
    })
}
