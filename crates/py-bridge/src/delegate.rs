//! Hands a call to mpi4py's own method: the caller's Datatype means raw memory, as in mpi4py. Tensors
//! are lent to it as PEP 3118 buffers. Knows no operation.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use crate::avg::Avg;
use crate::borrow::Borrowed;
use crate::buffer;
use crate::carried;
use crate::framework::Intent;
use crate::mpi4py::{self, Mpi4py};
use crate::params::{MAX_PARAMS, Slots, Takes};
use crate::table::{Body, Row};
use crate::transfer::Lent;

/// The values of a call by parameter, as mpi4py's method gets them.
pub type Values<'py> = [Option<Bound<'py, PyAny>>; MAX_PARAMS];

/// Calls `real`, mpi4py's method, with the arguments of this call.
///
/// # Errors
/// What mpi4py raised, or why a tensor cannot be lent as raw memory.
pub fn call<'py>(
    real: &Bound<'py, PyAny>,
    row: &'static Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let mpi4py = mpi4py::bound()?;
    let mut lent = Lent::default();
    let mut values: Values<'py> = Default::default();
    for ((param, slot), value) in row.params.iter().zip(slots).zip(&mut values) {
        let Some(obj) = slot else { continue };
        *value = Some(match param.takes {
            Takes::Sent => memory(mpi4py, param.name, obj, &[Intent::Send], &mut lent)?,
            Takes::Received => memory(mpi4py, param.name, obj, &[Intent::Receive], &mut lent)?,
            Takes::Either => {
                let intents = [Intent::Receive, Intent::Send];
                memory(mpi4py, param.name, obj, &intents, &mut lent)?
            }
            Takes::Op if obj.is_instance_of::<Avg>() => {
                return Err(pyo3::exceptions::PyValueError::new_err(format!(
                    "{}: dlmpi.AVG has no meaning for a Datatype that reads raw memory",
                    param.name
                )));
            }
            _ => Bound::clone(obj),
        });
    }
    if let Body::Start(collective) = row.body {
        return carried::start(
            mpi4py,
            (row, Some(collective.kind)),
            real,
            slf,
            values,
            lent,
        );
    }
    let result = invoke(real, row, slf, values);
    let ended = lent.end(py);
    let result = result?;
    ended.map(|()| result)
}

/// Calls `real(slf, *values)`: by position as far as they go without a gap, then by name.
///
/// # Errors
/// What it raised.
pub fn invoke<'py>(
    real: &Bound<'py, PyAny>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    values: Values<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let mut positional: SmallVec<[Bound<'py, PyAny>; 1 + MAX_PARAMS]> = SmallVec::new();
    positional.push(slf.clone());
    let mut keywords = None;
    for (i, (param, value)) in row.params.iter().zip(values).enumerate() {
        let Some(value) = value else { continue };
        if positional.len() == i + 1 {
            positional.push(value);
        } else {
            let keywords = keywords.get_or_insert_with(|| PyDict::new(py));
            keywords.set_item(param.name, value)?;
        }
    }
    real.call(PyTuple::new(py, positional)?, keywords.as_ref())
}

/// The message with its tensor's memory lent, by the first intent that the tensor allows.
///
/// # Errors
/// Why it cannot be lent.
pub fn memory<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    intents: &[Intent],
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    // For the tensor alone; whatever is behind it goes to mpi4py as it is.
    let is_form =
        (msg.is_instance_of::<PyList>() || msg.is_instance_of::<PyTuple>()) && msg.len()? > 0;
    let first = if is_form {
        Some(msg.get_item(0)?)
    } else {
        None
    };
    let tensor = first.as_ref().unwrap_or(msg);
    if mpi4py.is_in_place(tensor) || mpi4py.is_bottom(tensor) {
        return Ok(msg.clone());
    }
    if buffer::has_buffer(tensor) {
        lent.objects.push(tensor.clone().unbind());
        return Ok(msg.clone());
    }
    let mut refused = None;
    for &intent in intents {
        match Borrowed::new(name, tensor, intent) {
            Ok(buffer) => {
                let buffer = Bound::new(py, buffer)?;
                lent.buffers.push(buffer.clone().unbind());
                if !is_form {
                    return Ok(buffer.into_any());
                }
                let items: Vec<Bound<'py, PyAny>> = msg.try_iter()?.collect::<PyResult<_>>()?;
                let rest = items.into_iter().skip(1);
                let items = std::iter::once(buffer.into_any()).chain(rest);
                return PyList::new(py, items.collect::<Vec<_>>()).map(Bound::into_any);
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(crate::errors::unbound))
}
