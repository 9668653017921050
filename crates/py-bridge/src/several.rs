//! `Waitall` and `Startall` as real class methods: no Python frame between the caller and MPI. What is not plain is left to
//! the class's own methods, which are written in Python.

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyType};

use crate::errors;
use crate::method::{Entry, called, define_of_class};
use crate::params::{Param, Slots, Takes};
use crate::together::{self, Waited};

const fn param(name: &'static str, required: bool) -> Param {
    Param {
        name,
        takes: Takes::Pass("None"),
        required,
    }
}

const WAIT: &[Param] = &[param("requests", true), param("statuses", false)];
const START: &[Param] = &[WAIT[0]];

/// Which method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum All {
    Wait,
    Start,
}

impl All {
    fn name(self) -> &'static str {
        match self {
            All::Wait => "Waitall",
            All::Start => "Startall",
        }
    }

    fn params(self) -> &'static [Param] {
        match self {
            All::Wait => WAIT,
            All::Start => START,
        }
    }
}

/// The classes' own functions, in that order.
static OWN: [OnceLock<Py<PyAny>>; 2] = [const { OnceLock::new() }; 2];

/// Puts `Waitall` and `Startall` into the classes that have them, in front of their own.
///
/// # Errors
/// What Python raised.
pub fn put_before(waiting: &Bound<'_, PyType>, starting: &Bound<'_, PyType>) -> PyResult<()> {
    let methods: [(All, _, &str, Entry); 2] = [
        (
            All::Wait,
            waiting,
            "($type, requests, statuses=None)\n--\n\nWait for all requests to complete.",
            wait_all,
        ),
        (
            All::Start,
            starting,
            "($type, requests)\n--\n\nStart a collection of persistent requests.",
            start_all,
        ),
    ];
    for (all, class, words, entry) in methods {
        let own = class.getattr(all.name())?.getattr("__func__")?;
        let doc = format!("{}{words}", all.name());
        class.setattr(all.name(), define_of_class(class, all.name(), &doc, entry)?)?;
        let _ = OWN[all as usize].set(own.unbind());
    }
    Ok(())
}

/// # Safety
/// - The contract of a fast class method with keywords: attached, `cls` a class, `nargs` arguments and one per name in
///   `kwnames` alive during the call.
unsafe extern "C" fn wait_all(
    cls: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - the caller's promise.
    unsafe { call(All::Wait, cls, args, nargs, kwnames) }
}

/// # Safety
/// - As for [`wait_all`].
unsafe extern "C" fn start_all(
    cls: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - the caller's promise.
    unsafe { call(All::Start, cls, args, nargs, kwnames) }
}

/// # Safety
/// - As for [`wait_all`].
#[inline]
unsafe fn call(
    all: All,
    cls: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let body = |cls: &Bound<'_, PyAny>, slots: &Slots<'_, '_>| match all {
        All::Wait => wait(cls, slots),
        All::Start => start(cls, slots),
    };
    // SAFETY:
    // - the caller's promise.
    unsafe {
        called(
            (all.name(), all.params()),
            (cls, args),
            nargs,
            kwnames,
            body,
        )
    }
}

#[inline]
fn wait(cls: &Bound<'_, PyAny>, slots: &Slots<'_, '_>) -> PyResult<Py<PyAny>> {
    let py = cls.py();
    let requests = slots[0].as_deref().ok_or_else(errors::unbound)?;
    let waited = match slots[1].as_deref().filter(|given| !given.is_none()) {
        None => together::wait_all(requests)?,
        Some(_) => Waited::Not,
    };
    match waited {
        Waited::Done => Ok(PyBool::new(py, true).to_owned().into_any().unbind()),
        Waited::Not => {
            Python::attach(|py| own(All::Wait)?.call1(py, (cls, requests, slots[1].as_deref())))
        }
        Waited::Failed(error, requests, statuses) => Python::attach(|py| {
            let failed = intern!(py, "_failed");
            cls.call_method1(failed, (error, requests, statuses))
                .map(Bound::unbind)
        }),
    }
}

#[inline]
fn start(cls: &Bound<'_, PyAny>, slots: &Slots<'_, '_>) -> PyResult<Py<PyAny>> {
    let requests = slots[0].as_deref().ok_or_else(errors::unbound)?;
    match together::start_all(requests)? {
        true => Ok(cls.py().None()),
        false => Python::attach(|py| own(All::Start)?.call1(py, (cls, requests))),
    }
}

fn own(all: All) -> PyResult<&'static Py<PyAny>> {
    OWN[all as usize].get().ok_or_else(errors::unbound)
}
