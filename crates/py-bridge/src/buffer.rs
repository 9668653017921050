//! Memory by PEP 3118, the buffer protocol. Knows no framework and no DLPack.

use std::ffi::CStr;
use std::slice;

use dlpack_core::{Device, View};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{ExportError, ExportResult};
use crate::format;
use crate::framework::Intent;

/// Owner of one acquired buffer; released once. Boxed, since an exporter may remember the address.
pub struct Buffer(Box<ffi::Py_buffer>);

// SAFETY:
// - The structure is only read between acquisition and release, and released attached (`Loan`).
unsafe impl Send for Buffer {}
// SAFETY:
// - As above; shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Gives the buffer back to its exporter.
    pub fn release(mut self, _py: Python<'_>) {
        // SAFETY:
        // - The thread is attached; the structure was filled by `PyObject_GetBuffer` and, `self` being
        //   consumed, is released once.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }

    #[inline]
    fn acquire(obj: &Bound<'_, PyAny>, flags: i32) -> PyResult<Buffer> {
        // Zeroed: an exporter may leave out what it was not asked for.
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY:
        // - The thread is attached; `raw` is a Py_buffer to be filled.
        match unsafe { ffi::PyObject_GetBuffer(obj.as_ptr(), &mut *raw, flags) } {
            0 => Ok(Buffer(raw)),
            _ => Err(PyErr::fetch(obj.py())),
        }
    }

    /// The checked description of the memory.
    fn view(&self) -> ExportResult<View> {
        const { assert!(size_of::<ffi::Py_ssize_t>() == size_of::<i64>()) };
        let raw = &*self.0;
        let ndim = usize::try_from(raw.ndim).unwrap_or(0);
        if !raw.suboffsets.is_null() {
            // SAFETY:
            // - PEP 3118: `ndim` values where not NULL.
            let suboffsets = unsafe { slice::from_raw_parts(raw.suboffsets, ndim) };
            if suboffsets.iter().any(|&o| o >= 0) {
                return Err(ExportError::Buffer(
                    "its memory is an array of pointers (PEP 3118 suboffsets); pass a plain array"
                        .to_owned(),
                ));
            }
        }
        let itemsize = usize::try_from(raw.itemsize).unwrap_or(0);
        let format: &[u8] = if raw.format.is_null() {
            b"B"
        } else {
            // SAFETY:
            // - PEP 3118: a C string that lives as long as the buffer.
            unsafe { CStr::from_ptr(raw.format) }.to_bytes()
        };
        let dtype = format::parse(format, itemsize).map_err(ExportError::Buffer)?;
        let flat = [raw.len as i64 / (itemsize.max(1) as i64)];
        let shape: &[i64] = match (raw.shape.is_null(), ndim) {
            (_, 0) => &[],
            // Only exporters that ignore what was asked of them leave the shape out.
            (true, _) => &flat,
            // SAFETY:
            // - PEP 3118: `ndim` values; `Py_ssize_t` is as wide as `i64`, asserted above.
            (false, _) => unsafe { slice::from_raw_parts(raw.shape.cast(), ndim) },
        };
        let strides: Option<&[i64]> = if raw.strides.is_null() || raw.shape.is_null() {
            None
        } else {
            // SAFETY:
            // - As for the shape.
            Some(unsafe { slice::from_raw_parts(raw.strides.cast(), ndim) })
        };
        // SAFETY:
        // - PEP 3118: `buf` is the first logical element of memory with this shape and these strides,
        //   kept by the exporter until the buffer is released.
        let view = unsafe {
            View::from_parts(
                raw.buf.cast(),
                shape,
                strides,
                dtype,
                Device::CPU,
                raw.readonly != 0,
            )
        };
        Ok(view?)
    }
}

/// Has this object's type a buffer slot?
pub fn has_buffer(obj: &Bound<'_, PyAny>) -> bool {
    // SAFETY:
    // - The thread is attached; any object is allowed.
    unsafe { ffi::PyObject_CheckBuffer(obj.as_ptr()) != 0 }
}

/// Refuses memory that holds Python objects or pointers, whatever a Datatype calls it. What cannot be
/// described is not looked at.
///
/// # Errors
/// `BufferError` in words.
pub fn no_objects(name: &str, obj: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(buffer) = Buffer::acquire(obj, ffi::PyBUF_RECORDS_RO) else {
        return Ok(());
    };
    let found = match buffer.0.format.is_null() {
        true => Ok(()),
        false => {
            // SAFETY:
            // - PEP 3118: a NUL-terminated string where not NULL, alive until the release.
            let format = unsafe { CStr::from_ptr(buffer.0.format) };
            format::no_addresses(format.to_bytes())
        }
    };
    buffer.release(obj.py());
    found.map_err(|words| PyBufferError::new_err(format!("{name}: {words}")))
}

/// Acquires the buffer of an object.
///
/// # Errors
/// [`ExportError::Raised`] when the exporter refuses, which says nothing about other protocols;
/// [`ExportError::Buffer`] when it has a buffer that must not be used, which is final.
pub fn export(obj: &Bound<'_, PyAny>, intent: Intent) -> ExportResult<(Buffer, View)> {
    let py = obj.py();
    let buffer = match intent {
        Intent::Send => Buffer::acquire(obj, ffi::PyBUF_RECORDS_RO),
        Intent::Receive => Buffer::acquire(obj, ffi::PyBUF_RECORDS),
    };
    let buffer = match buffer {
        Ok(buffer) => buffer,
        Err(error) if intent == Intent::Receive => {
            // A read-only exporter must not be reached by another door that knows no read-only flag.
            match Buffer::acquire(obj, ffi::PyBUF_RECORDS_RO) {
                Ok(readable) if readable.0.readonly != 0 => {
                    readable.release(py);
                    return Err(ExportError::Buffer(format!(
                        "{} is read-only and cannot receive; pass a writable tensor",
                        crate::framework::type_name(&obj.get_type())
                    )));
                }
                Ok(readable) => readable.release(py),
                Err(_) => {}
            }
            return Err(ExportError::raised(
                py,
                "its buffer cannot be exported",
                error,
            ));
        }
        Err(error) => {
            return Err(ExportError::raised(
                py,
                "its buffer cannot be exported",
                error,
            ));
        }
    };
    match buffer.view() {
        Ok(view) => Ok((buffer, view)),
        Err(error) => {
            buffer.release(py);
            Err(error)
        }
    }
}
