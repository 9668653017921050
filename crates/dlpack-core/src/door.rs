//! The door: the one place where a foreign `DLTensor` is read, each field checked before it is used.
//! Knows no owner: who keeps the memory alive is `foreign.rs`'s business.

use core::slice;

use crate::abi::{self, DLTensor};
use crate::view::{checked_itemsize, packed};
use crate::{DType, Device, DeviceKind, DoorError, Layout, LayoutError, MAX_NDIM, TypeCode, View};

impl View {
    /// A view of a `DLTensor` that somebody else owns, e.g. from the C exchange API.
    ///
    /// # Safety
    /// - `tensor` is readable and its `shape` and `strides`, where not NULL, are readable for `ndim` values.
    /// - The memory it describes stays for as long as anyone acts on the view.
    #[inline]
    pub unsafe fn from_dltensor(tensor: *const DLTensor, flags: u64) -> Result<View, DoorError> {
        // SAFETY:
        // - The caller's promise is the same.
        unsafe { check(tensor, flags) }
    }
}

/// Checks everything a `DLTensor` says.
///
/// # Safety
/// - As for [`View::from_dltensor`].
#[inline]
pub(crate) unsafe fn check(tensor: *const DLTensor, flags: u64) -> Result<View, DoorError> {
    if tensor.is_null() {
        return Err(DoorError::NullTensor);
    }
    if flags & !abi::FLAGS_KNOWN != 0 {
        return Err(DoorError::UnknownFlags { flags });
    }
    // SAFETY:
    // - `tensor` is readable by the caller's promise; a producer may hand out any alignment.
    let tensor = unsafe { tensor.read_unaligned() };
    let dtype = DType::new(
        TypeCode(tensor.dtype.code),
        tensor.dtype.bits,
        tensor.dtype.lanes,
    );
    let device = Device::new(
        DeviceKind(tensor.device.device_type),
        tensor.device.device_id,
    );

    // Before anything is read through a pointer whose length this is.
    let ndim = match usize::try_from(tensor.ndim) {
        Ok(ndim) if ndim <= MAX_NDIM => ndim,
        _ => {
            return Err(LayoutError::Ndim {
                ndim: i64::from(tensor.ndim),
            }
            .into());
        }
    };
    // SAFETY:
    // - Readable for `ndim` values by the caller's promise, and `ndim` is bounded.
    let shape = unsafe { array(tensor.shape, ndim) };
    let shape = shape.ok_or(DoorError::BadArray {
        what: "shape",
        ndim: tensor.ndim,
    })?;
    let strides = if tensor.strides.is_null() {
        None
    } else {
        // SAFETY:
        // - As for `shape`.
        let strides = unsafe { array(tensor.strides, ndim) };
        Some(strides.ok_or(DoorError::BadArray {
            what: "strides",
            ndim: tensor.ndim,
        })?)
    };

    let (layout, dtype, packed) = match foreign_itemsize(dtype)? {
        Some(itemsize) => (
            Layout::from_elements(shape, strides, itemsize)?,
            dtype,
            None,
        ),
        None if flags & abi::FLAG_IS_SUBBYTE_TYPE_PADDED != 0 => {
            // Same numbers in other bytes than the packed form: must not pass for the same type.
            let itemsize = dtype.bits_total().div_ceil(8);
            let raw = u16::try_from(itemsize).map_or(dtype, DType::raw);
            (Layout::from_elements(shape, strides, itemsize)?, raw, None)
        }
        None => packed(dtype, shape, strides)?,
    };
    View::assemble(
        tensor.data.cast(),
        tensor.byte_offset,
        layout,
        dtype,
        device,
        flags,
        packed,
    )
}

/// `ndim` values, or `None` where they cannot be read.
///
/// # Safety
/// - `ptr`, where not NULL, is readable for `ndim` values and nobody changes them meanwhile.
#[inline]
unsafe fn array<'a>(ptr: *const i64, ndim: usize) -> Option<&'a [i64]> {
    if ndim == 0 {
        return Some(&[]);
    }
    if ptr.is_null() || !ptr.is_aligned() {
        return None;
    }
    // SAFETY:
    // - Not NULL, aligned, readable for `ndim` values by the caller's promise; `ndim` is at most 64.
    Some(unsafe { slice::from_raw_parts(ptr, ndim) })
}

/// [`checked_itemsize`], and the rules that bind producers only.
#[inline]
fn foreign_itemsize(dtype: DType) -> Result<Option<usize>, DoorError> {
    if dtype.is_own() {
        let why = "type codes from 200 on are dlmpi's own and no producer may use them";
        return Err(DoorError::DType { dtype, why });
    }
    if dtype.code == TypeCode::OPAQUE_HANDLE {
        let why = "opaque handles are addresses of this process and mean nothing in another one";
        return Err(DoorError::DType { dtype, why });
    }
    match dtype.code.fixed_bits() {
        Some(bits) if bits != dtype.bits => Err(DoorError::DType {
            dtype,
            why: "its width is not the one that its name says",
        }),
        _ => checked_itemsize(dtype),
    }
}
