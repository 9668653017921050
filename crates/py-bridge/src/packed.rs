//! `Datatype.Pack` and its like: elements of a tensor on one side, the bytes that they are packed into on
//! the other. Elements are in logical order where the Datatype is that of the tensor's own, else memory
//! as it lies. Knows no communicator.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensor_comm::{Arg, DType, Flow, Part};

use crate::borrow::Borrowed;
use crate::bounds::{self, Reach};
use crate::buffer;
use crate::cargo::Cargo;
use crate::datatype::{self, Reading, Use};
use crate::delegate::{self, Values};
use crate::elements;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::raw::Bytes;
use crate::registry;
use crate::table::Row;
use crate::transfer::Lent;

/// One side as a buffer: elements of `datatype`, or without one the packed bytes.
///
/// # Errors
/// What the tensor has to say.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    datatype: Option<&Bound<'py, PyAny>>,
    tensor: &Bound<'py, PyAny>,
    flow: Flow,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, intent) = (tensor.py(), Intent::of(flow));
    if mpi4py.is_bottom(tensor) {
        return Ok(tensor.clone());
    }
    let mut order = StreamOrder::default();
    let loan = match registry::lend(name, tensor, intent, &mut order) {
        Ok(loan) => loan,
        // Elements that have no meaning here are still bytes.
        Err(_) if buffer::has_buffer(tensor) => {
            return delegate::memory(mpi4py, name, tensor, &[intent], lent);
        }
        Err(error) => return Err(error),
    };
    let view = loan.view();
    let logical = match datatype {
        Some(datatype) => is_its_own(mpi4py, name, view.dtype(), datatype)?,
        None => false,
    };
    let staged = !view.device().is_host_addressable() && view.layout().is_c_contiguous();
    if !logical && !staged {
        let bytes = Bytes::of(view).map_err(|error| error.named(py, name))?;
        order.wait(py)?;
        let cargo = Cargo::raw(loan.split().1, intent);
        return lent.lend(py, Borrowed::lending(bytes, cargo));
    }
    order.wait(py)?;
    let (view, held) = loan.split();
    let arg = Arg::Part(Part::whole(view));
    let posted = elements::posted(mpi4py.mpi(), py, &arg, name, 1, (flow, (false, false)))?;
    elements::hand_over(py, held, posted, intent, lent)
}

/// Whether the elements are what the Datatype says; an integer of their size stands for what MPI has no
/// type for.
fn is_its_own(
    mpi4py: &Mpi4py,
    name: &str,
    dtype: DType,
    datatype: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    if datatype::reading(mpi4py, name, dtype, datatype, Use::Move)? == Reading::Natural {
        return Ok(true);
    }
    let carrier = datatype::element(mpi4py, datatype)?;
    Ok(tensor_comm::mpi_datatype(mpi4py.mpi(), dtype).is_none()
        && carrier.is_some_and(|carrier| carrier.is_int() && carrier.bits == dtype.bits))
}

/// Checks what is packed from or unpacked to `position` on: MPI believes it. `elements` is the flow of the
/// side of the elements.
///
/// # Errors
/// `ValueError` naming the argument; what mpi4py raised.
pub fn check(
    mpi4py: &Mpi4py,
    datatype: &Bound<'_, PyAny>,
    row: &Row,
    values: &Values<'_>,
    elements: Flow,
) -> PyResult<()> {
    let given = |name: &str| {
        let at = row.params.iter().position(|param| param.name == name)?;
        values.get(at)?.as_ref()
    };
    let (tensor, packed) = match elements {
        Flow::Out => ("inbuf", "outbuf"),
        Flow::In | Flow::Through => ("outbuf", "inbuf"),
    };
    let (Some(memory), Some(bytes), Some(position)) =
        (given(tensor), given(packed), given("position"))
    else {
        return Ok(());
    };
    if mpi4py.is_bottom(memory) || mpi4py.is_bottom(bytes) {
        return Ok(());
    }
    let handle = mpi4py.datatype(datatype)?;
    // mpi4py raises what MPI says about the null handle.
    if handle == mpi4py.mpi().datatype_null() {
        return Ok(());
    }
    let reach = Reach::of(datatype.py(), mpi4py.mpi(), handle)?;
    let count = reach.check_all(tensor, bounds::length(memory)?)?;
    let size: i64 = match (given("datarep"), given("comm")) {
        (Some(datarep), _) => datatype.call_method1("Pack_external_size", (datarep, count))?,
        (None, Some(comm)) => datatype.call_method1("Pack_size", (count, comm))?,
        (None, None) => return Ok(()),
    }
    .extract()?;
    let (position, length): (i64, _) = (position.extract()?, bounds::length(bytes)?);
    if position < 0 {
        return Err(PyValueError::new_err(format!(
            "position: expected 0 or more, got {position}"
        )));
    }
    if i128::from(position) + i128::from(size) > length as i128 {
        return Err(PyValueError::new_err(format!(
            "{packed}: the {count} elements of {tensor} take {size} bytes from byte {position} on, but it has {length}"
        )));
    }
    Ok(())
}
