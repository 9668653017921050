//! What a receive that mpi4py completed has to say of its message: `mpi4py.MPI.Status` and exception in, words out.

use mpi_runtime::Mpi;
use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::{Arrived, Capacity};

use crate::errors;
use crate::mpi4py;

/// Raises what was not right about a message that came into `room`, whatever MPI said of it.
///
/// # Errors
/// `mpi4py.MPI.Exception` where it was longer, `ValueError` where it is no whole number of elements.
pub fn judge(mpi: &Mpi, room: Capacity, status: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = status.py();
    match room.judge(mpi, arrived(mpi, status)?) {
        Ok(()) => Ok(()),
        // Of a receive that was cancelled the length is nothing that came.
        Err(_)
            if status
                .call_method0(intern!(py, "Is_cancelled"))?
                .is_truthy()? =>
        {
            Ok(())
        }
        Err(error) => Err(errors::operation(py, error)),
    }
}

/// Adds to `error` which room was too small for which message, where that is the error and, for the message, where there
/// is a status of it.
///
/// # Errors
/// What Python raised.
pub fn explain(
    mpi: &Mpi,
    room: Capacity,
    error: &Bound<'_, PyAny>,
    status: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = error.py();
    if !error.is_instance(
        &mpi4py::bound()?
            .module(py)
            .getattr(intern!(py, "Exception"))?,
    )? {
        // Refused by mpi4py itself.
        return Ok(());
    }
    let class: i32 = error
        .call_method0(intern!(py, "Get_error_class"))?
        .extract()?;
    if class == mpi.constants().err_truncate {
        let came = status.map(|status| arrived(mpi, status)).transpose()?;
        let words = room.too_long(came.unwrap_or(Arrived::unknown()));
        error.call_method1(intern!(py, "add_note"), (words,))?;
    }
    Ok(())
}

fn arrived(mpi: &Mpi, status: &Bound<'_, PyAny>) -> PyResult<Arrived> {
    let native = mpi4py::bound()?.status(Some(status))?;
    // SAFETY:
    // - it is the status of a living object, which mpi4py has filled in or made empty.
    unsafe { Arrived::of(mpi, native) }.map_err(|error| errors::operation(status.py(), error))
}
