//! Hands a call to mpi4py's own method: the caller's Datatype means raw memory, as in mpi4py. Tensors
//! without a buffer slot are lent to it as PEP 3118 buffers. Knows no operation.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use smallvec::SmallVec;

use crate::avg::Avg;
use crate::borrow::Borrowed as Lent;
use crate::buffer;
use crate::framework::Intent;
use crate::message::Spec;
use crate::mpi4py;
use crate::params::{Slots, Takes};
use crate::table::Row;

/// Calls `real`, mpi4py's method, with the arguments of this call.
///
/// # Errors
/// What mpi4py raised, or why a tensor cannot be lent as raw memory.
pub fn call<'py>(
    real: &Bound<'py, PyAny>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let keywords = PyDict::new(py);
    let mut lent: SmallVec<[Bound<'py, Lent>; 2]> = SmallVec::new();
    for (param, slot) in row.params.iter().zip(slots) {
        let Some(obj) = slot else { continue };
        let value = match param.takes {
            Takes::Sent => message(param.name, obj, &[Intent::Send], &mut lent)?,
            Takes::Received => message(param.name, obj, &[Intent::Receive], &mut lent)?,
            Takes::Either => message(param.name, obj, &[Intent::Receive, Intent::Send], &mut lent)?,
            Takes::Op if obj.is_instance_of::<Avg>() => {
                return Err(pyo3::exceptions::PyValueError::new_err(format!(
                    "{}: dlmpi.AVG has no meaning for a Datatype that reads raw memory",
                    param.name
                )));
            }
            _ => Bound::clone(obj),
        };
        keywords.set_item(param.name, value)?;
    }
    let result = real.call((slf,), Some(&keywords));
    for buffer in lent {
        buffer.get().end(py)?;
    }
    result
}

/// The message with its tensor lent, by the first intent that the tensor allows.
fn message<'py>(
    name: &str,
    msg: &Bound<'py, PyAny>,
    intents: &[Intent],
    lent: &mut SmallVec<[Bound<'py, Lent>; 2]>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    let mpi4py = mpi4py::bound()?;
    // For the tensor alone; whatever is behind it goes to mpi4py as it is.
    let tensor =
        match msg.is_instance_of::<PyList>() || msg.is_instance_of::<pyo3::types::PyTuple>() {
            true => Spec::unpack(mpi4py, name, msg, true)
                .map(|spec| spec.tensor)
                .unwrap_or(msg.clone()),
            false => msg.clone(),
        };
    if mpi4py.is_in_place(&tensor) || mpi4py.is_bottom(&tensor) || buffer::has_buffer(&tensor) {
        return Ok(msg.clone());
    }
    let mut refused = None;
    for &intent in intents {
        match Lent::new(name, &tensor, intent) {
            Ok(buffer) => {
                let buffer = Bound::new(py, buffer)?;
                lent.push(buffer.clone());
                if tensor.is(msg) {
                    return Ok(buffer.into_any());
                }
                let items: Vec<Bound<'py, PyAny>> = msg.try_iter()?.collect::<PyResult<_>>()?;
                let rest = items.into_iter().skip(1);
                return PyList::new(
                    py,
                    std::iter::once(buffer.into_any())
                        .chain(rest)
                        .collect::<Vec<_>>(),
                )
                .map(Bound::into_any);
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(crate::errors::unbound))
}
