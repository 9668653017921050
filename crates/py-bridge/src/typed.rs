//! Lending messages with one Datatype per peer to methods of mpi4py.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tensor_comm::{Comm, Flow};

use crate::bounds;
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::table::Row;
use crate::transfer::Lent;

/// `[buffer, counts, displacements, Datatypes]`, as mpi4py takes it, with every block inside the buffer.
///
/// # Errors
/// What cannot be lent; `ValueError` naming the argument and the peer; what MPI reports about a Datatype.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    (row, comm): (&Row, &Bound<'py, PyAny>),
    name: &str,
    msg: &Bound<'py, PyAny>,
    flow: Flow,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let message = delegate::memory(mpi4py, name, msg, &[Intent::of(flow)], lent)?;
    bounds::check_each(mpi4py, name, &message)?;
    if row.name != "Alltoallw" || !is_alone(mpi4py, comm)? {
        return Ok(message);
    }
    Ok(from_the_front(mpi4py, &message, flow)?.unwrap_or(message))
}

/// Whether the communicator has one rank, for which Open MPI (5.0.11) takes the displacements of `MPI_Alltoallw` for numbers
/// of elements, so that it reads and writes beyond the buffers.
fn is_alone(mpi4py: &Mpi4py, comm: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mpi = mpi4py.mpi();
    let raw = mpi4py.comm(comm)?;
    if !tensor_comm::scales_displacements(mpi) || raw == mpi.comm_null() {
        return Ok(false);
    }
    let size = Comm::new(mpi, raw).and_then(|comm| Ok((comm.is_inter()?, comm.size()?)));
    size.map(|size| size == (false, 1))
        .map_err(|error| errors::operation(comm.py(), error))
}

/// The message of one block, in a buffer that begins where the block does; `None` where it is none.
fn from_the_front<'py>(
    mpi4py: &Mpi4py,
    message: &Bound<'py, PyAny>,
    flow: Flow,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = message.py();
    let Ok(items) = message.extract::<Vec<Bound<'py, PyAny>>>() else {
        return Ok(None);
    };
    let one = |numbers: &Bound<'py, PyAny>| match numbers.extract::<Vec<i64>>().as_deref() {
        Ok(&[number]) => Some(number),
        _ => None,
    };
    let (buffer, numbers, types) = match &items[..] {
        [buffer, both, types] => match both.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>() {
            Ok((counts, displs)) => (buffer, (one(&counts), one(&displs)), types),
            Err(_) => return Ok(None),
        },
        [buffer, counts, displs, types] => (buffer, (one(counts), one(displs)), types),
        _ => return Ok(None),
    };
    let (Some(count), Some(displ @ 1..)) = numbers else {
        return Ok(None);
    };
    if mpi4py.is_bottom(buffer) {
        return Ok(None);
    }
    let class = mpi4py.module(py).getattr(intern!(py, "buffer"))?;
    let bytes = class.call_method1(intern!(py, "frombuffer"), (buffer, flow == Flow::Out))?;
    let all = bytes.len()? as isize;
    let rest = bytes.get_item(pyo3::types::PySlice::new(py, displ as isize, all, 1))?;
    let one = |number: i64| PyList::new(py, [number]).map(Bound::into_any);
    let items = [rest, one(count)?, one(0)?, types.clone()];
    PyList::new(py, items).map(|list| Some(list.into_any()))
}
