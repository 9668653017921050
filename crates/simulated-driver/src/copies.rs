//! Copies, fills and functions of the host's, which are queued and nothing else.

use std::ffi::{c_uint, c_void};

use crate::INVALID_VALUE;
use crate::schedule::Work;
use crate::state::{Needs, enter};
use crate::streams::queue;

fn line(to: usize, from: usize, n: usize) -> Work {
    Work::Copy {
        to,
        from,
        width: n,
        rows: 1,
        steps: (0, 0),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    dst: *mut c_void,
    src: u64,
    n: usize,
    stream: *mut c_void,
) -> c_uint {
    enter("cuMemcpyDtoHAsync", Needs::Context, |state| {
        let work = line(dst.expose_provenance(), src as usize, n);
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
    enter("cuMemcpyHtoDAsync", Needs::Context, |state| {
        let work = line(dst as usize, src.expose_provenance(), n);
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
    enter("cuMemcpyDtoDAsync", Needs::Context, |state| {
        queue(state, stream, line(dst as usize, src as usize, n))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    dst: u64,
    value: u8,
    n: usize,
    stream: *mut c_void,
) -> c_uint {
    enter("cuMemsetD8Async", Needs::Context, |state| {
        let to = dst as usize;
        queue(state, stream, Work::Fill { to, value, n })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_uint {
    enter("cuLaunchHostFunc", Needs::Context, |state| {
        let work = Work::Call(function, argument.expose_provenance());
        queue(state, stream, work)
    })
}

/// CUDA_MEMCPY2D: each side has an offset in bytes and rows, one of three ways to say where it is, and a pitch.
#[repr(C)]
pub struct Memcpy2D {
    source: Side,
    target: Side,
    width: usize,
    height: usize,
}

#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    /// 1 host, 2 device.
    kind: c_uint,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    pitch: usize,
}

impl Side {
    fn start(&self) -> Option<usize> {
        let base = match self.kind {
            1 => self.host.expose_provenance(),
            2 => self.device as usize,
            _ => return None,
        };
        Some(base + self.y * self.pitch + self.x)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const Memcpy2D, stream: *mut c_void) -> c_uint {
    enter("cuMemcpy2DAsync", Needs::Context, |state| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        let copy = unsafe { &*copy };
        let (Some(from), Some(to)) = (copy.source.start(), copy.target.start()) else {
            return INVALID_VALUE;
        };
        if copy.width > copy.source.pitch || copy.width > copy.target.pitch {
            return INVALID_VALUE;
        }
        let work = Work::Copy {
            to,
            from,
            width: copy.width,
            rows: copy.height,
            steps: (copy.source.pitch, copy.target.pitch),
        };
        queue(state, stream, work)
    })
}
