//! Arguments of a native method, sorted into the slots of its row. Knows names and positions, not what
//! the arguments mean.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The most parameters that any row has.
pub const MAX_PARAMS: usize = 7;

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A message that is read.
    Sent,
    /// A message that is written.
    Received,
    /// Read at the root, written elsewhere.
    Either,
    /// A message that is read, then written.
    Through,
    /// A rank, a tag or a root, with its default.
    Int(Default),
    /// `MPI.Status`, or `None`.
    Status,
    /// `MPI.Op`, default `SUM`.
    Op,
    /// Counts per rank, or `None`.
    Counts,
    /// A displacement, an offset, a number of partitions: an integer that goes to mpi4py; 0 by default.
    Number,
    /// Anything that goes to mpi4py as it is; its default as a text signature has it.
    Pass(&'static str),
}

/// A default value of an integer, by MPI's name where its number differs between libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Default {
    /// There is none: the argument must be given.
    Required,
    /// 0
    Zero,
    /// `MPI.ANY_SOURCE`
    AnySource,
    /// `MPI.ANY_TAG`
    AnyTag,
}

/// One parameter of a method.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// mpi4py's name for it.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// Must it be given?
    pub required: bool,
}

/// The arguments of one call, by parameter. Borrowed from the caller, who holds them.
pub type Slots<'a, 'py> = [Option<Borrowed<'a, 'py, PyAny>>; MAX_PARAMS];

/// Sorts positional and keyword arguments into slots.
///
/// # Errors
/// `TypeError` in CPython's words: missing, superfluous, unknown or doubled arguments.
///
/// # Safety
/// - `args` holds `nargs` objects followed by one per name in `kwnames`, which is NULL or a tuple of
///   strings, all alive for `'a`: the contract of a vectorcall.
#[inline]
pub unsafe fn sort<'a, 'py>(
    py: Python<'py>,
    method: &str,
    params: &[Param],
    args: *const *mut ffi::PyObject,
    nargs: usize,
    kwnames: *mut ffi::PyObject,
) -> PyResult<Slots<'a, 'py>> {
    let mut slots: Slots<'a, 'py> = [None; MAX_PARAMS];
    // SAFETY:
    // - the caller's promise.
    unsafe { sort_into(py, method, params, args, nargs, kwnames, &mut slots) }?;
    Ok(slots)
}

/// The same into slots that are empty, which stay where they are.
///
/// # Errors
/// As [`sort`].
///
/// # Safety
/// - As for [`sort`].
#[inline]
pub unsafe fn sort_into<'a, 'py>(
    py: Python<'py>,
    method: &str,
    params: &[Param],
    args: *const *mut ffi::PyObject,
    nargs: usize,
    kwnames: *mut ffi::PyObject,
    slots: &mut Slots<'a, 'py>,
) -> PyResult<()> {
    if nargs > params.len() {
        return Err(PyTypeError::new_err(format!(
            "{method}() takes at most {} arguments ({nargs} given)",
            params.len()
        )));
    }
    for (i, slot) in slots.iter_mut().enumerate().take(nargs) {
        // SAFETY:
        // - `i` is below `nargs`; the objects live for `'a` by the caller's promise.
        *slot = Some(unsafe { Borrowed::from_ptr(py, *args.add(i)) });
    }
    if !kwnames.is_null() {
        // SAFETY:
        // - `kwnames` is a tuple that lives for `'a`.
        let names = unsafe { ffi::PyTuple_Size(kwnames) };
        for i in 0..names {
            // SAFETY:
            // - `i` is below the tuple's size, which keeps its items; one object per name follows the positional ones.
            let (name, value) = unsafe {
                let name = Borrowed::from_ptr(py, ffi::PyTuple_GetItem(kwnames, i));
                (name, Borrowed::from_ptr(py, *args.add(nargs + i as usize)))
            };
            place(method, params, slots, &name, value)?;
        }
    }
    for (i, param) in params.iter().enumerate() {
        if param.required && slots[i].is_none() {
            return Err(PyTypeError::new_err(format!(
                "{method}() missing required argument '{}' (pos {})",
                param.name,
                i + 1
            )));
        }
    }
    Ok(())
}

/// Whether a string is this name, which is ASCII.
fn is_named(string: &Bound<'_, PyAny>, name: &str) -> bool {
    let mut size = 0;
    // SAFETY:
    // - it is a string, whose text stays as long as it does.
    unsafe {
        let text = ffi::PyUnicode_AsUTF8AndSize(string.as_ptr(), &raw mut size);
        if text.is_null() {
            ffi::PyErr_Clear();
            return false;
        }
        std::slice::from_raw_parts(text.cast::<u8>(), size as usize) == name.as_bytes()
    }
}

fn place<'a, 'py>(
    method: &str,
    params: &[Param],
    slots: &mut Slots<'a, 'py>,
    name: &Bound<'py, PyAny>,
    value: Borrowed<'a, 'py, PyAny>,
) -> PyResult<()> {
    let Some(i) = params.iter().position(|param| is_named(name, param.name)) else {
        let name: std::borrow::Cow<'_, str> = name.extract()?;
        return Err(PyTypeError::new_err(format!(
            "{method}() got an unexpected keyword argument '{name}'"
        )));
    };
    if slots[i].is_some() {
        return Err(PyTypeError::new_err(format!(
            "{method}() got multiple values for argument '{}'",
            params[i].name
        )));
    }
    slots[i] = Some(value);
    Ok(())
}
