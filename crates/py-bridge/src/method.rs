//! Native methods as real method descriptors: no Python frame between the caller and MPI. Knows how a
//! call gets in and out, not what a row does.

use std::ffi::CString;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tensor_comm::Comm;

use crate::mpi4py::{self, Mpi4py};
use crate::params::{Default, Param, Slots, Takes, sort, sort_into};
use crate::table::{Body, METHODS, ROWS, Row};
use crate::{collective, delegate, errors, lane, lend, p2p, reduce_local};

/// How a method ended.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is done, or under way, and gives this.
    Value(Py<PyAny>),
    /// The caller means raw memory: mpi4py's own method does it.
    Raw,
}

/// What CPython calls: a fast method with keywords.
pub(crate) type Entry = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// mpi4py's own methods, by row.
static REAL: OnceLock<Vec<Py<PyAny>>> = OnceLock::new();

/// What CPython calls for row `ROW`.
///
/// # Safety
/// - The contract of a fast method with keywords: attached, `slf` of the class that the descriptor was made
///   for, `nargs` arguments and one per name in `kwnames` alive during the call.
unsafe extern "C" fn entry<const ROW: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - CPython calls it attached. What is done without the count that `attach` keeps drops no object.
    let py = unsafe { Python::assume_attached() };
    let short = catch_unwind(|| {
        let (mpi4py, row) = (Mpi4py::get()?, ROWS.get(ROW)?);
        // SAFETY:
        // - CPython holds `slf` and the arguments during the call.
        let slf = unsafe { Borrowed::from_ptr(py, slf) };
        let (nargs, mut slots) = (count(nargs), Slots::default());
        // SAFETY:
        // - As above; this is the contract of the calling convention.
        unsafe { sort_into(py, row.name, row.params, args, nargs, kwnames, &mut slots) }.ok()?;
        // SAFETY:
        // - CPython has found it to be of the descriptor's class, which is the row's.
        unsafe { lane::attempt(mpi4py, row, &slf, &slots) }
    });
    let short = match short {
        Ok(Some(Ok(value))) => return value.into_ptr(),
        other => other,
    };
    Python::attach(|py| {
        let called = catch_unwind(AssertUnwindSafe(|| {
            if let Some(Err(error)) = short.map_err(|panic| errors::panicked(&*panic))? {
                return Err(error);
            }
            let row = ROWS.get(ROW).ok_or_else(errors::unbound)?;
            // SAFETY:
            // - CPython holds `slf` and the arguments during the call.
            let slf = unsafe { Borrowed::from_ptr(py, slf) };
            // SAFETY:
            // - As above; this is the contract of the calling convention.
            let slots = unsafe { sort(py, row.name, row.params, args, count(nargs), kwnames) }?;
            let real = || {
                let real = REAL.get().and_then(|real| real.get(ROW));
                real.map(|real| real.bind(py)).ok_or_else(errors::unbound)
            };
            if let Body::Lend(lend) = &row.body {
                let mpi4py = mpi4py::bound()?;
                return lend::call(mpi4py, row, lend, real()?, &slf, &slots).map(Bound::unbind);
            }
            match row.body {
                Body::Flush(_) => {
                    return lane::flush_by(real()?, row, &slf, &slots).map(Bound::unbind);
                }
                Body::ReduceLocal => {
                    return reduce_local::call(real()?, row, &slf, &slots).map(Bound::unbind);
                }
                _ => {}
            }
            match dispatch(py, row, &slf, &slots)? {
                Outcome::Done => Ok(py.None()),
                Outcome::Value(value) => Ok(value),
                Outcome::Raw if matches!(row.body, Body::Mprobe) => {
                    let made = delegate::call(real()?, row, &slf, &slots)?;
                    lane::adopt(mpi4py::bound()?, made).map(Bound::unbind)
                }
                Outcome::Raw => delegate::call(real()?, row, &slf, &slots).map(Bound::unbind),
            }
        }));
        hand_back(py, called)
    })
}

/// A call of a fast method with keywords that is carried out by `body`, which gets what it is called on and its arguments.
/// `body` runs without the count that `attach` keeps: what drops objects attaches itself.
///
/// # Safety
/// - The contract of a fast method with keywords: attached, `nargs` arguments and one per name in `kwnames` alive during the
///   call, as is `slf`, the object or class.
#[inline]
pub(crate) unsafe fn called(
    (name, params): (&str, &[Param]),
    (slf, args): (*mut ffi::PyObject, *const *mut ffi::PyObject),
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
    body: impl FnOnce(&Bound<'_, PyAny>, &Slots<'_, '_>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY:
    // - the caller's promise.
    let py = unsafe { Python::assume_attached() };
    let called = catch_unwind(AssertUnwindSafe(|| {
        let mut slots = Slots::default();
        // SAFETY:
        // - CPython holds it and the arguments during the call; this is the contract of the calling convention.
        let slf = unsafe {
            sort_into(py, name, params, args, count(nargs), kwnames, &mut slots)?;
            Borrowed::from_ptr(py, slf)
        };
        body(&slf, &slots)
    }));
    match called {
        Ok(Ok(value)) => value.into_ptr(),
        other => Python::attach(|py| hand_back(py, other)),
    }
}

/// What CPython gets of a call: a new reference, or NULL with an exception set, also after a panic.
pub(crate) fn hand_back(
    py: Python<'_>,
    called: std::thread::Result<PyResult<Py<PyAny>>>,
) -> *mut ffi::PyObject {
    match called.unwrap_or_else(|panic| Err(errors::panicked(&*panic))) {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

fn count(nargs: ffi::Py_ssize_t) -> usize {
    usize::try_from(nargs).unwrap_or(0)
}

#[inline]
fn dispatch<'py>(
    py: Python<'py>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let mpi4py = mpi4py::bound()?;
    let raw = mpi4py.comm(slf)?;
    if raw == mpi4py.mpi().comm_null() {
        return Err(mpi4py.null(slf));
    }
    let comm = Comm::new(mpi4py.mpi(), raw).map_err(|error| errors::operation(py, error))?;
    match &row.body {
        Body::Send(mode) => p2p::send(py, mpi4py, *mode, row.params, comm, slots),
        Body::Recv => p2p::recv(py, mpi4py, row.params, comm, slots),
        Body::Sendrecv => p2p::sendrecv(py, mpi4py, row.params, comm, slots),
        Body::Collective(collective) => {
            collective::run(py, mpi4py, collective, row.params, comm, slots)
        }
        Body::Start(collective) => {
            collective::start(py, mpi4py, collective, row.params, comm, slots)
        }
        Body::Mprobe | Body::Flush(_) | Body::ReduceLocal | Body::Lend(_) => Ok(Outcome::Raw),
    }
}

/// One entry point per row, ten at a time.
macro_rules! entries {
    ($($ten:literal)*) => { [$(
        entry::<{ $ten * 10 }>,
        entry::<{ $ten * 10 + 1 }>,
        entry::<{ $ten * 10 + 2 }>,
        entry::<{ $ten * 10 + 3 }>,
        entry::<{ $ten * 10 + 4 }>,
        entry::<{ $ten * 10 + 5 }>,
        entry::<{ $ten * 10 + 6 }>,
        entry::<{ $ten * 10 + 7 }>,
        entry::<{ $ten * 10 + 8 }>,
        entry::<{ $ten * 10 + 9 }>,
    )*] };
}
const ENTRIES: [Entry; 160] = entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
const _: () = assert!(METHODS <= ENTRIES.len());

/// The descriptors of all rows, as `{class: {name: descriptor}}`, for the class bodies of our subclasses.
/// They call mpi4py's own methods where the caller means raw memory.
///
/// # Errors
/// What Python raised; `AttributeError` when mpi4py lacks a class or method.
pub fn descriptors<'py>(py: Python<'py>, mpi4py: &Mpi4py) -> PyResult<Bound<'py, PyDict>> {
    let module = mpi4py.module(py);
    let classes = PyDict::new(py);
    let mut real = Vec::with_capacity(METHODS);
    for (row, entry) in ROWS.iter().zip(ENTRIES) {
        let class = module.getattr(row.class.name())?.cast_into::<PyType>()?;
        real.push(class.getattr(row.name)?.unbind());
        let methods = match classes.get_item(row.class.name())? {
            Some(methods) => methods.cast_into::<PyDict>()?,
            None => {
                let methods = PyDict::new(py);
                classes.set_item(row.class.name(), &methods)?;
                methods
            }
        };
        methods.set_item(row.name, descriptor(&class, row, entry, mpi4py)?)?;
    }
    let _ = REAL.set(real);
    Ok(classes)
}

fn descriptor<'py>(
    class: &Bound<'py, PyType>,
    row: &Row,
    entry: Entry,
    mpi4py: &Mpi4py,
) -> PyResult<Bound<'py, PyAny>> {
    let form = match row.body {
        Body::Start(_) => " Non-blocking: returns a request.",
        _ => "",
    };
    let signature = signature(row.name, row.params, mpi4py);
    let doc = format!("{signature}\n--\n\n{}{form}", row.doc);
    define(class, row.name, &doc, entry)
}

/// A method descriptor of `class`; `doc` begins with a text signature.
///
/// # Errors
/// What Python raised.
pub(crate) fn define<'py>(
    class: &Bound<'py, PyType>,
    name: &str,
    doc: &str,
    entry: Entry,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = definition(name, doc, entry, 0)?;
    // SAFETY:
    // - The thread is attached; `class` is a type; the definition is never freed and its flags say what
    //   the function is.
    let descriptor = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY:
    // - A new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), descriptor) }
}

/// The same of a method of the class itself.
///
/// # Errors
/// What Python raised.
pub(crate) fn define_of_class<'py>(
    class: &Bound<'py, PyType>,
    name: &str,
    doc: &str,
    entry: Entry,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = definition(name, doc, entry, ffi::METH_CLASS)?;
    // SAFETY:
    // - As for `define`.
    let descriptor = unsafe { ffi::PyDescr_NewClassMethod(class.as_type_ptr(), definition) };
    // SAFETY:
    // - A new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), descriptor) }
}

/// Descriptors may outlive everything: their definitions live for ever, once per row and process.
fn definition(
    name: &str,
    doc: &str,
    entry: Entry,
    kind: std::ffi::c_int,
) -> PyResult<&'static mut ffi::PyMethodDef> {
    let (name, doc) = (CString::new(name)?, CString::new(doc)?);
    Ok(Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: Box::leak(name.into_boxed_c_str()).as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: entry,
        },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS | kind,
        ml_doc: Box::leak(doc.into_boxed_c_str()).as_ptr(),
    })))
}

/// The text signature that `inspect` reads, from the row's name and parameters.
pub(crate) fn signature(name: &str, params: &[Param], mpi4py: &Mpi4py) -> String {
    let constants = mpi4py.mpi().constants();
    let mut text = format!("{name}($self");
    for Param {
        name,
        takes,
        required,
    } in params
    {
        text.push_str(", ");
        text.push_str(name);
        if *required {
            continue;
        }
        let _ = match takes {
            Takes::Int(Default::AnySource) => write!(text, "={}", constants.any_source),
            Takes::Int(Default::AnyTag) => write!(text, "={}", constants.any_tag),
            Takes::Int(_) | Takes::Number => write!(text, "=0"),
            // `SUM` cannot be written as a literal.
            Takes::Op => write!(text, "=..."),
            Takes::Pass(default) => write!(text, "={default}"),
            _ => write!(text, "=None"),
        };
    }
    text.push(')');
    text
}
