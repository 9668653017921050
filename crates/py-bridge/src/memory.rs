//! A tensor's memory as it lies, lent to a method of mpi4py's: windows, files, persistent operations. Counts
//! and displacements are elements of the caller's Datatype, else of the tensor's dtype, and are checked.

use dlpack_core::DType;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tensor_comm::{Capacity, Flow, Shaped};

use crate::borrow::Borrowed;
use crate::bounds::Reach;
use crate::buffer;
use crate::cargo::Cargo;
use crate::datatype::{self, Use};
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::loan::Loan;
use crate::message::Spec;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::raw::Bytes;
use crate::registry;
use crate::transfer::Lent;

/// How a message is divided.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// Blocks of equal size; with `vector`, peers with a count and a displacement each.
    pub blocks: usize,
    /// One count and displacement per peer.
    pub vector: bool,
    /// The elements are meant in logical order, so memory in another order is not what is meant.
    pub logical: bool,
    /// It is a message to or from one rank.
    pub message: bool,
}

/// The message as `[buffer, count, displacement, Datatype]`.
///
/// # Errors
/// What the tensor, its counts or its dtype have to say.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    flow: Flow,
    usage: Use,
    division: Division,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    let intent = Intent::of(flow);
    let spec = Spec::unpack(mpi4py, name, msg, division.vector)?;
    if mpi4py.is_in_place(&spec.tensor) || mpi4py.is_bottom(&spec.tensor) {
        return Ok(msg.clone());
    }
    let given = spec.datatype(mpi4py)?;
    let mut order = StreamOrder::default();
    let loan = match registry::lend(name, &spec.tensor, intent, &mut order) {
        Ok(loan) => loan,
        // Elements that have no meaning here are still bytes under a Datatype.
        Err(_) if given.is_some() && buffer::has_buffer(&spec.tensor) => {
            return delegate::memory(mpi4py, name, msg, &[intent], lent);
        }
        Err(error) => return Err(error),
    };
    let (dtype, itemsize) = (loan.view().dtype(), loan.view().itemsize());
    let numel = loan.view().numel();
    // A Datatype that says no more than the tensor does.
    let natural_number = tensor_comm::mpi_datatype(mpi4py.mpi(), dtype);
    let given = match given {
        Some(given) if division.message && Some(mpi4py.datatype(&given)?) == natural_number => None,
        given => given,
    };
    let own = given.is_none();
    let whole = own && spec.range(name).is_ok_and(|range| range == (None, None));
    let undivided = division.blocks == 0 && !division.vector;
    if division.logical
        && usage == Use::Move
        && whole
        && undivided
        && !loan.view().layout().is_c_contiguous()
        && loan.view().device().is_host_addressable()
    {
        order.wait(py)?;
        let received = division.message && flow != Flow::Out;
        if received {
            lent.room = Some(Capacity::whole(loan.view()));
        }
        return shaped(mpi4py, py, loan, intent, received, lent);
    }
    let bytes = Bytes::of(loan.view()).map_err(|error| error.named(py, name))?;
    order.wait(py)?;
    let received = division.message && undivided && flow != Flow::Out;
    let (datatype, units) = match given {
        Some(given) => {
            if usage == Use::Reduce {
                datatype::reading(mpi4py, name, dtype, &given, usage)?;
            }
            (given, 1)
        }
        None if received => receiving(mpi4py, py, dtype, itemsize)?,
        None => natural(mpi4py, py, name, dtype, itemsize, usage)?,
    };
    if division.logical && own && !loan.view().layout().is_c_contiguous() {
        return Err(PyBufferError::new_err(format!(
            "{name}: its elements do not lie in C order, and this operation works on memory as it lies; pass a contiguous copy"
        )));
    }
    let handle = mpi4py.datatype(&datatype)?;
    let check = |py| Reach::of(py, mpi4py.mpi(), handle);
    let (counts, displs) = if division.vector {
        // Counts of elements that travel as several units each are said anew.
        let blocks = match units {
            1 => spec.given_blocks(name, division.blocks)?,
            _ => Some(spec.blocks(name, numel, division.blocks)?),
        };
        let scaled = blocks.map(|(mut counts, mut displs)| {
            for number in counts.iter_mut().chain(&mut displs) {
                *number = number.saturating_mul(units);
            }
            (counts, displs)
        });
        if let Some((counts, displs)) = &scaled {
            let reach = check(py)?;
            for (&count, &displ) in counts.iter().zip(displs) {
                reach.check(name, if count == 0 { 0 } else { displ }, count, bytes.len)?;
            }
        }
        match scaled {
            Some((counts, displs)) if units != 1 => {
                let list = |numbers| PyList::new(py, numbers).map(Bound::into_any);
                (list(counts)?, list(displs)?)
            }
            _ => spec.raw_counts(py),
        }
    } else {
        let (count, displ) = spec.range(name)?;
        if received && own {
            let all = (numel as i64).saturating_sub(displ.unwrap_or(0));
            lent.room = Some(Capacity {
                elements: usize::try_from(count.unwrap_or(all)).unwrap_or(0),
                dtype,
                itemsize,
            });
        }
        let scaled = |value: i64| value.saturating_mul(units);
        let (count, displ) = (count.map(scaled), displ.map(scaled));
        if let Some(count) = count {
            let all = count.saturating_mul(division.blocks.max(1) as i64);
            check(py)?.check(name, displ.unwrap_or(0), all, bytes.len)?;
        }
        (count.into_pyobject(py)?, displ.into_pyobject(py)?)
    };
    let cargo = Cargo::raw(loan.split().1, intent);
    let buffer = lent.lend(py, Borrowed::lending(bytes, cargo))?;
    let items = [buffer, counts, displs, datatype];
    PyList::new(py, items).map(Bound::into_any)
}

/// A whole strided tensor as one element of a Datatype of its own.
fn shaped<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    loan: Loan,
    intent: Intent,
    received: bool,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = Shaped::new(mpi4py.mpi(), loan.view(), received);
    let shape = shape.map_err(|error| errors::operation(py, error))?;
    let datatype = mpi4py.datatype_object(py, shape.datatype())?;
    let bytes = Bytes::untyped(loan.view().data(), loan.view().itemsize());
    let cargo = Cargo::raw(loan.split().1, intent);
    let buffer = lent.lend(py, Borrowed::lending(bytes, cargo))?;
    let items = [buffer, 1i64.into_pyobject(py)?.into_any(), datatype];
    lent.shapes.push(shape);
    PyList::new(py, items).map(Bound::into_any)
}

/// The Datatype by which elements of a dtype are received, and how many of it are one element.
fn receiving<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    dtype: DType,
    itemsize: usize,
) -> PyResult<(Bound<'py, PyAny>, i64)> {
    let (datatype, units) = tensor_comm::receiver(mpi4py.mpi(), dtype, itemsize)
        .map_err(|error| errors::operation(py, error))?;
    Ok((mpi4py.datatype_object(py, datatype)?, units as i64))
}

/// The Datatype of a dtype, and how many of it are one element.
fn natural<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    name: &str,
    dtype: DType,
    itemsize: usize,
    usage: Use,
) -> PyResult<(Bound<'py, PyAny>, i64)> {
    let mpi = mpi4py.mpi();
    let number = match tensor_comm::mpi_datatype(mpi, dtype) {
        Some(number) => Some(mpi4py.datatype_object(py, number)?),
        None if dtype == DType::F16 => mpi4py.half(py)?,
        None => None,
    };
    match (number, usage) {
        (Some(number), _) => Ok((number, 1)),
        (None, Use::Reduce) => Err(PyValueError::new_err(format!(
            "{name}: MPI has no arithmetic for {dtype} here; convert to float32, or use a collective of dlmpi"
        ))),
        (None, _) => {
            let (carrier, units) = tensor_comm::carrier(mpi, dtype, itemsize)
                .map_err(|error| errors::operation(py, error))?;
            Ok((mpi4py.datatype_object(py, carrier)?, units as i64))
        }
    }
}
