//! The driver functions used here, as one table that is filled before the first call. Knows how they are
//! called, not when, and not where the library is.
//!
//! Results are plain integers: the bindings' own functions return a closed Rust `enum`, so that an error
//! number newer than the bindings would be undefined behaviour.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::DeviceError;

/// A result: 0 is success.
pub(crate) type Status = c_uint;
/// An opaque object of the driver: context, stream or event.
pub(crate) type Object = *mut c_void;

pub(crate) const SUCCESS: Status = 0;
/// Among others: a name that this driver does not know.
pub(crate) const ERROR_INVALID_VALUE: Status = 1;
/// From "capture unsupported" to "capture from the wrong thread".
pub(crate) const ERRORS_OF_CAPTURE: core::ops::RangeInclusive<Status> = 900..=908;
/// Work is still under way, which is an answer and no error.
pub(crate) const NOT_READY: Status = 600;
/// The legacy stream was asked about while another stream is captured.
pub(crate) const ERROR_CAPTURE_IMPLICIT: Status = 906;

pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// Nobody asks when it happened, which makes events cheap.
pub(crate) const EVENT_WITHOUT_TIMING: c_uint = 2;
pub(crate) const HOST_ALLOC_PORTABLE: c_uint = 1;
pub(crate) const CAPTURE_NONE: c_int = 0;

pub(crate) const ATTRIBUTE_MEMORY_TYPE: c_uint = 2;
pub(crate) const ATTRIBUTE_IS_MANAGED: c_uint = 8;
pub(crate) const ATTRIBUTE_DEVICE_ORDINAL: c_uint = 9;
pub(crate) const ATTRIBUTE_IS_LEGACY_IPC_CAPABLE: c_uint = 10;
pub(crate) const ATTRIBUTE_MEMPOOL_HANDLE: c_uint = 17;
pub(crate) const MEMORY_HOST: u64 = 1;
pub(crate) const MEMORY_DEVICE: u64 = 2;

/// CUDA_MEMCPY2D: what is copied by rows.
#[repr(C)]
pub(crate) struct Copy2D {
    pub source: Place,
    pub target: Place,
    pub width: usize,
    pub height: usize,
}

/// One side of it. Which address counts is said by `kind`.
#[repr(C)]
pub(crate) struct Place {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    pitch: usize,
}

impl Place {
    pub(crate) fn new(kind: u64, address: u64, pitch: usize) -> Place {
        let host = (kind == MEMORY_HOST).then_some(address as usize);
        Place {
            x: 0,
            y: 0,
            kind: kind as c_uint,
            host: core::ptr::with_exposed_provenance_mut(host.unwrap_or(0)),
            device: if kind == MEMORY_DEVICE { address } else { 0 },
            array: core::ptr::null_mut(),
            pitch,
        }
    }
}

macro_rules! table {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*);)+) => {
        /// One pointer per function.
        #[derive(Clone, Copy)]
        pub(crate) struct Table {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> Status,)+
        }

        impl Table {
            /// Asks `find` for every function by its NUL-terminated name.
            ///
            /// # Safety
            /// - What `find` returns for a name is the address of the driver function of that name, and stays loaded.
            #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
            pub(crate) unsafe fn resolve(
                find: impl Fn(&'static str) -> Option<unsafe extern "C" fn()>,
            ) -> Result<Table, DeviceError> {
                Ok(Table {$(
                    $field: {
                        let name = $symbol;
                        let found = find(concat!($symbol, "\0")).ok_or(DeviceError::MissingSymbol { name })?;
                        // SAFETY:
                        // - `found` is the driver function of this name by the caller's promise, and this is its
                        //   signature in cuda.h of every version since 11.4.
                        unsafe {
                            core::mem::transmute::<unsafe extern "C" fn(), unsafe extern "C" fn($($arg),*) -> Status>(found)
                        }
                    },
                )+})
            }
        }
    };
}

table! {
    init = "cuInit": fn(c_uint);
    driver_get_version = "cuDriverGetVersion": fn(*mut c_int);
    get_error_name = "cuGetErrorName": fn(Status, *mut *const c_char);
    get_error_string = "cuGetErrorString": fn(Status, *mut *const c_char);
    device_get_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_get_uuid = "cuDeviceGetUuid_v2": fn(*mut [u8; 16], c_int);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain": fn(*mut Object, c_int);
    ctx_get_current = "cuCtxGetCurrent": fn(*mut Object);
    ctx_set_current = "cuCtxSetCurrent": fn(Object);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_int);
    stream_create = "cuStreamCreate": fn(*mut Object, c_uint);
    stream_synchronize = "cuStreamSynchronize": fn(Object);
    stream_is_capturing = "cuStreamIsCapturing": fn(Object, *mut c_int);
    stream_wait_event = "cuStreamWaitEvent": fn(Object, Object, c_uint);
    event_create = "cuEventCreate": fn(*mut Object, c_uint);
    event_record = "cuEventRecord": fn(Object, Object);
    event_query = "cuEventQuery": fn(Object);
    event_synchronize = "cuEventSynchronize": fn(Object);
    memcpy_dtoh_async = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, Object);
    memcpy_htod_async = "cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, Object);
    memcpy_dtod_async = "cuMemcpyDtoDAsync_v2": fn(u64, u64, usize, Object);
    memcpy_2d_async = "cuMemcpy2DAsync_v2": fn(*const Copy2D, Object);
    mem_host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    mem_free_host = "cuMemFreeHost": fn(*mut c_void);
    pointer_get_attributes = "cuPointerGetAttributes": fn(c_uint, *mut c_uint, *mut *mut c_void, u64);
}
