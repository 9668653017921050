//! The C structs of DLPack 1.x and of the legacy form before it, and nothing that acts on them.
//!
//! Frozen by the specification inside major version 1. Codes are plain integers: a Rust `enum` read
//! from foreign memory would be undefined behaviour for every code added after this was written.
#![allow(
    missing_docs,
    reason = "field names and meanings are the specification's"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{offset_of, size_of};

/// Major version this crate reads.
pub const MAJOR: u32 = 1;
/// Newest minor version this crate knows all values of.
pub const MINOR: u32 = 3;

/// The producer promises nothing to whoever writes: receive buffers must not carry it.
pub const FLAG_READ_ONLY: u64 = 1;
/// The data is a copy made for this export: writes would be lost.
pub const FLAG_IS_COPIED: u64 = 2;
/// Elements smaller than a byte take a whole byte each instead of being packed.
pub const FLAG_IS_SUBBYTE_TYPE_PADDED: u64 = 4;
/// Every flag whose meaning is known here.
pub const FLAGS_KNOWN: u64 = FLAG_READ_ONLY | FLAG_IS_COPIED | FLAG_IS_SUBBYTE_TYPE_PADDED;

/// Capsule name of an unconsumed [`DLManagedTensor`].
pub const NAME_LEGACY: &CStr = c"dltensor";
/// Capsule name after a consumer took the [`DLManagedTensor`].
pub const NAME_LEGACY_USED: &CStr = c"used_dltensor";
/// Capsule name of an unconsumed [`DLManagedTensorVersioned`].
pub const NAME_VERSIONED: &CStr = c"dltensor_versioned";
/// Capsule name after a consumer took the [`DLManagedTensorVersioned`].
pub const NAME_VERSIONED_USED: &CStr = c"used_dltensor_versioned";
/// Capsule name of a [`DLPackExchangeAPI`].
pub const NAME_EXCHANGE_API: &CStr = c"dlpack_exchange_api";

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Everything up to and including `flags` keeps its place in every major version.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}

/// Tells the caller of an allocator why it failed: context, kind, message.
pub type SetError = Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPIHeader {
    pub version: DLPackVersion,
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// The function table that a framework publishes on its tensor type. None of these synchronises a
/// stream; `-1` means that a Python exception is set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPI {
    pub header: DLPackExchangeAPIHeader,
    pub managed_tensor_allocator: Option<
        unsafe extern "C" fn(
            *mut DLTensor,
            *mut *mut DLManagedTensorVersioned,
            *mut c_void,
            SetError,
        ) -> c_int,
    >,
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int>,
    pub dltensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int>,
    pub current_work_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

macro_rules! at {
    ($($struct:ident { $($field:ident: $offset:expr),+ } = $size:expr;)+) => {$(
        const _: () = assert!(size_of::<$struct>() == $size);
        $(const _: () = assert!(offset_of!($struct, $field) == $offset);)+
    )+};
}

#[cfg(target_pointer_width = "64")]
at! {
    DLPackVersion { major: 0, minor: 4 } = 8;
    DLDevice { device_type: 0, device_id: 4 } = 8;
    DLDataType { code: 0, bits: 1, lanes: 2 } = 4;
    DLTensor { data: 0, device: 8, ndim: 16, dtype: 20, shape: 24, strides: 32, byte_offset: 40 } = 48;
    DLManagedTensor { dl_tensor: 0, manager_ctx: 48, deleter: 56 } = 64;
    DLManagedTensorVersioned { version: 0, manager_ctx: 8, deleter: 16, flags: 24, dl_tensor: 32 } = 80;
    DLPackExchangeAPIHeader { version: 0, prev_api: 8 } = 16;
    DLPackExchangeAPI {
        header: 0, managed_tensor_allocator: 16, managed_tensor_from_py_object_no_sync: 24,
        managed_tensor_to_py_object_no_sync: 32, dltensor_from_py_object_no_sync: 40,
        current_work_stream: 48
    } = 56;
}
