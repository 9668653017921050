//! Calls of Python functions where a tuple of arguments would cost as much as the call. Knows no function.

use pyo3::ffi;
use pyo3::prelude::*;

/// `callable(argument)`.
///
/// # Errors
/// What it raised.
#[inline]
pub fn one<'py>(
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let end: *mut ffi::PyObject = std::ptr::null_mut();
    // SAFETY:
    // - The thread is attached, both objects are held, and NULL ends the arguments.
    let result =
        unsafe { ffi::PyObject_CallFunctionObjArgs(callable.as_ptr(), argument.as_ptr(), end) };
    // SAFETY:
    // - A new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// `callable(argument, other)`.
///
/// # Errors
/// What it raised.
#[inline]
pub fn two<'py>(
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let end: *mut ffi::PyObject = std::ptr::null_mut();
    let (callable, first, second) = (callable.as_ptr(), argument.as_ptr(), other.as_ptr());
    // SAFETY:
    // - The thread is attached, all objects are held, and NULL ends the arguments.
    let result = unsafe { ffi::PyObject_CallFunctionObjArgs(callable, first, second, end) };
    // SAFETY:
    // - A new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(argument.py(), result) }
}
