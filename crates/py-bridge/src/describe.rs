//! `_native.describe`: what dlmpi sees of a tensor, for tests and `info`. Moves nothing.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::framework::Intent;
use crate::order::StreamOrder;
use crate::registry;

/// `describe(tensor, writable=False)`: shape, strides (bytes), dtype, device, readonly, framework, path.
///
/// # Errors
/// The exception that passing the tensor to a method would raise.
#[pyfunction]
#[pyo3(signature = (tensor, writable = false))]
pub fn describe<'py>(tensor: &Bound<'py, PyAny>, writable: bool) -> PyResult<Bound<'py, PyDict>> {
    let py = tensor.py();
    let intent = if writable {
        Intent::Receive
    } else {
        Intent::Send
    };
    // Nothing is touched, so that nothing is waited for.
    let loan = registry::lend("tensor", tensor, intent, &mut StreamOrder::default())?;
    let view = loan.view();
    let framework = registry::exporter(tensor).map_err(|error| error.named(py, "tensor"))?;
    let dict = PyDict::new(py);
    dict.set_item("shape", PyTuple::new(py, view.layout().shape())?)?;
    dict.set_item("strides", PyTuple::new(py, view.layout().strides())?)?;
    dict.set_item("dtype", view.dtype().to_string())?;
    dict.set_item("itemsize", view.itemsize())?;
    dict.set_item("device", view.device().to_string())?;
    dict.set_item("readonly", view.readonly())?;
    dict.set_item("address", view.data().addr())?;
    dict.set_item("framework", framework.framework())?;
    dict.set_item("path", loan.path())?;
    Ok(dict)
}
