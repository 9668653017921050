//! `Wait` and `Test` of a request of a message that is received, as real method descriptors: no Python frame between the
//! caller and MPI. What is not plain is left to the class's own methods, which are written in Python.

use std::sync::OnceLock;

use mpi_runtime::StatusBuf;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyType};

use crate::errors;
use crate::method::{Entry, called, define};
use crate::mpi4py::Mpi4py;
use crate::params::{Param, Slots, Takes};

const PARAMS: &[Param] = &[Param {
    name: "status",
    takes: Takes::Status,
    required: false,
}];

/// Which method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Done,
    Asked,
}

/// The class's own methods, in that order.
static OWN: [OnceLock<Py<PyAny>>; 2] = [const { OnceLock::new() }; 2];

/// Puts them into the class of receipts, in front of its own.
///
/// # Errors
/// What Python raised.
pub fn put_before(class: &Bound<'_, PyType>) -> PyResult<()> {
    let methods: [(&str, &str, Entry); 2] = [
        ("Wait", "Wait for the message.", wait),
        ("Test", "Test for the completion of the message.", test),
    ];
    for ((name, words, entry), own) in methods.into_iter().zip(&OWN) {
        let real = class.getattr(name)?;
        let doc = format!("{name}($self, status=None)\n--\n\n{words}");
        class.setattr(name, define(class, name, &doc, entry)?)?;
        let _ = own.set(real.unbind());
    }
    Ok(())
}

/// # Safety
/// - The contract of a fast method with keywords: attached, `slf` of the class that the descriptor was made for, `nargs`
///   arguments and one per name in `kwnames` alive during the call.
unsafe extern "C" fn wait(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - the caller's promise.
    unsafe { call(Until::Done, slf, args, nargs, kwnames) }
}

/// # Safety
/// - As for [`wait`].
unsafe extern "C" fn test(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - the caller's promise.
    unsafe { call(Until::Asked, slf, args, nargs, kwnames) }
}

/// # Safety
/// - As for [`wait`].
#[inline]
unsafe fn call(
    until: Until,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let name = match until {
        Until::Done => "Wait",
        Until::Asked => "Test",
    };
    // SAFETY:
    // - CPython has found it to be of the descriptor's class.
    let body = |slf: &Bound<'_, PyAny>, slots: &Slots<'_, '_>| match unsafe {
        plain(until, slf, slots)
    }? {
        Some(done) => Ok(PyBool::new(slf.py(), done).to_owned().into_any().unbind()),
        None => Python::attach(|py| {
            let own = OWN[until as usize].get().ok_or_else(errors::unbound)?;
            own.call1(py, (slf, slots[0].as_deref()))
        }),
    };
    // SAFETY:
    // - the caller's promise.
    unsafe { called((name, PARAMS), (slf, args), nargs, kwnames, body) }
}

/// What MPI says, where nothing else is to be done.
///
/// # Safety
/// - `slf` is a receipt.
#[inline]
unsafe fn plain(
    until: Until,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> PyResult<Option<bool>> {
    let Some(mpi4py) = Mpi4py::get() else {
        return Ok(None);
    };
    // SAFETY:
    // - the caller's promise.
    let track = unsafe { mpi4py.classes()?.receipt.track(slf) };
    let Some(track) = track.filter(|track| track.get().is_plain()) else {
        return Ok(None);
    };
    let (given, mut own) = (mpi4py.status(slots[0].as_deref())?, StatusBuf::new());
    let status = match given.is_ignore() {
        true => own.as_ptr(),
        false => given,
    };
    let track = track.get();
    // SAFETY:
    // - the status is the caller's or our own.
    unsafe {
        match until {
            Until::Done => track.wait(slf.py(), status).map(|()| Some(true)),
            Until::Asked => track.test(slf.py(), status).map(Some),
        }
    }
}
