//! The driver itself: start, errors in words, devices, contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::schedule::finish_all;
use crate::state::{CURRENT, Needs, context_of, devices, enter};
use crate::{
    CAPTURE_UNSUPPORTED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NO_DEVICE,
    OK, OUT_OF_MEMORY,
};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> c_uint {
    enter("cuInit", Needs::Nothing, |mut state| {
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
    enter("cuDriverGetVersion", Needs::Nothing, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *version = 12040 };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    let known = match code {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
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
    enter("cuDeviceGetCount", Needs::Driver, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *count = devices() };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    enter("cuDeviceGet", Needs::Driver, |_| {
        if !(0..devices()).contains(&ordinal) {
            return INVALID_DEVICE;
        }
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *device = ordinal };
        OK
    })
}

/// Devices are numbered on the node; `SIMULATED_FIRST` is the first that this process sees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_uint {
    enter("cuDeviceGetUuid", Needs::Driver, |_| {
        if !(0..devices()).contains(&device) {
            return INVALID_DEVICE;
        }
        let first = std::env::var("SIMULATED_FIRST").ok();
        let first: u128 = first.and_then(|n| n.parse().ok()).unwrap_or(0);
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *uuid = (0xd1 << 64 | (first + device as u128)).to_be_bytes() };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_uint {
    enter("cuDevicePrimaryCtxRetain", Needs::Driver, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *context = ptr::without_provenance_mut(context_of(device)) };
        OK
    })
}

/// The context lives as long as the process: somebody else may hold it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_uint {
    enter("cuDevicePrimaryCtxRelease_v2", Needs::Driver, |_| OK)
}

/// No device of this driver can do anything beyond what its functions do: memory pools, for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    _attribute: c_uint,
    device: c_int,
) -> c_uint {
    enter("cuDeviceGetAttribute", Needs::Driver, |_| {
        if !(0..devices()).contains(&device) {
            return INVALID_DEVICE;
        }
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *value = 0 };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_uint {
    enter("cuCtxGetCurrent", Needs::Driver, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *context = ptr::without_provenance_mut(CURRENT.get()) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_uint {
    enter("cuCtxSetCurrent", Needs::Driver, |_| {
        CURRENT.set(context.addr());
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> c_uint {
    enter("cuCtxSynchronize", Needs::Context, |state| {
        drop(finish_all(state, CURRENT.get()));
        OK
    })
}
