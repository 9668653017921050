//! Arguments as they are now, for a call that is made later: the caller may change his lists of counts, and
//! free his Datatypes. The memory of tensors stays what it is.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::mpi4py::Mpi4py;
use crate::params::{Param, Takes};

/// The argument of this parameter. Derived Datatypes are duplicated, into `made` too, whose owner frees them.
///
/// # Errors
/// What Python raised.
pub fn argument(
    mpi4py: &Mpi4py,
    param: &Param,
    value: &Bound<'_, PyAny>,
    made: &mut Vec<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let is_message = matches!(
        param.takes,
        Takes::Sent | Takes::Received | Takes::Either | Takes::Through
    );
    copy(mpi4py, value, is_message, made)
}

/// A copy of what can be walked; `message` is a whole message, whose memory comes first and stays.
fn copy(
    mpi4py: &Mpi4py,
    value: &Bound<'_, PyAny>,
    message: bool,
    made: &mut Vec<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let py = value.py();
    if mpi4py.is_datatype(value) {
        if value.getattr("is_predefined")?.is_truthy()? {
            return Ok(value.clone().unbind());
        }
        let own = value.call_method0("Dup")?.unbind();
        made.push(own.clone_ref(py));
        return Ok(own);
    }
    let is_sequence = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    if message && !is_sequence || value.is_instance_of::<PyString>() {
        return Ok(value.clone().unbind());
    }
    // What cannot be walked is mpi4py's to judge.
    let Ok(items) = value.try_iter() else {
        return Ok(value.clone().unbind());
    };
    let mut copied = Vec::new();
    for (at, item) in items.enumerate() {
        let item = item?;
        copied.push(match message && at == 0 {
            true => item.unbind(),
            false => copy(mpi4py, &item, false, made)?,
        });
    }
    // mpi4py tells counts with displacements, a tuple, from counts alone.
    match value.is_instance_of::<PyTuple>() {
        true => Ok(PyTuple::new(py, copied)?.into_any().unbind()),
        false => Ok(PyList::new(py, copied)?.into_any().unbind()),
    }
}
