//! A tensor's memory as it lies, lent to a method of mpi4py's: windows, files, persistent operations. Counts
//! and displacements are elements of the caller's Datatype, else of the tensor's dtype, and are checked.

use dlpack_core::DType;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tensor_comm::{Capacity, Flow, Moat, Part, Shaped, Shifted};

use crate::borrow::Borrowed;
use crate::bounds::Reach;
use crate::buffer;
use crate::cargo::{Cargo, Described};
use crate::datatype::{self, Reading, Use};
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::loan::Loan;
use crate::message::Spec;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::raw::Bytes;
use crate::registry;
use crate::spans;
use crate::staged;
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
    /// How MPI is given it.
    pub to_mpi: Given,
}

/// How MPI is given memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Where it lies.
    AsItLies,
    /// As a copy of its elements, made at each start: it is also received into.
    Copied,
    /// At an address beside it, as the other side is at its own and the library would take both for one.
    Shifted,
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
    if !order.is_empty() {
        lent.again.push((spec.tensor.clone().unbind(), intent));
    }
    let (dtype, itemsize) = (loan.view().dtype(), loan.view().itemsize());
    let numel = loan.view().numel();
    // A Datatype that says no more than the tensor does.
    let given = match given {
        Some(given)
            if (division.logical || usage == Use::Reduce)
                && datatype::reading(mpi4py, name, dtype, &given, usage)? == Reading::Natural =>
        {
            None
        }
        given => given,
    };
    let own = given.is_none();
    let undivided = division.blocks == 0 && !division.vector;
    // Which elements of memory under a Datatype of the caller's are meant is MPI's to know.
    if division.logical && own {
        let each = spans::parts(&spec, name, numel, (division.blocks, division.vector))?;
        lent.spans.push(spans::of(loan.view(), each.into_iter()));
    }
    let scattered = division.logical && own && !loan.view().layout().is_c_contiguous();
    let partitions = division.message && !undivided;
    if partitions && scattered && tensor_comm::overruns(mpi4py.mpi()) {
        // Open MPI 5.0.11: the first of a partitioned request's messages is lost then.
        return Err(PyBufferError::new_err(format!(
            "{name}: its elements do not lie in C order, and Open MPI's partitioned requests cannot be driven by dlmpi's \
             thread, which would bring them into it; pass a contiguous copy"
        )));
    }
    let to_mpi = division.to_mpi;
    let staged = scattered || (to_mpi == Given::Copied && own);
    if staged && loan.view().device().is_host_addressable() {
        if to_mpi != Given::AsItLies || !undivided || usage != Use::Move {
            drop(loan);
            return staged::lend(mpi4py, name, msg, (flow, usage), division, lent);
        }
        let part = match spec.range(name)? {
            (None, None) => Ok(Part::whole(loan.view().clone())),
            (count, displ) => {
                let displ = displ.unwrap_or(0);
                let rest = (numel as i64).saturating_sub(displ);
                Part::new(loan.view().clone(), name, displ, count.unwrap_or(rest))
            }
        };
        let part = part.map_err(|error| errors::operation(py, error))?;
        order.wait(py)?;
        let received = division.message && flow != Flow::Out;
        if received {
            let elements = part.count();
            lent.room = Some(Capacity {
                elements,
                dtype,
                itemsize,
            });
        }
        lent.addresses.push(part.view().data() as usize);
        return shaped(mpi4py, py, (&part, loan), intent, received, lent);
    }
    let mut bytes = Bytes::of(loan.view()).map_err(|error| error.named(py, name))?;
    order.wait(py)?;
    let received = division.message && undivided && flow != Flow::Out;
    let (mut datatype, units) = match given {
        Some(given) => (given, 1),
        None if received => receiving(mpi4py, py, dtype, itemsize)?,
        None => natural(mpi4py, py, name, dtype, itemsize, usage)?,
    };
    if scattered {
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
    // What MPI writes beyond the end of the room goes nowhere (`guard.rs`).
    let moated = received
        && own
        && tensor_comm::overruns(mpi4py.mpi())
        && lent
            .room
            .is_some_and(|room| room.bytes() < tensor_comm::LARGE);
    let displ: i64 = match moated {
        true => displs.extract::<Option<i64>>()?.unwrap_or(0) / units,
        false => 0,
    };
    // A displacement beyond the tensor is mpi4py's to refuse.
    let within = (0..=numel as i64).contains(&displ);
    if let (true, true, Some(room)) = (moated, within, lent.room) {
        let skipped = displ * itemsize as i64;
        let start = bytes.start.wrapping_offset(skipped as isize);
        let moat = Moat::new(mpi4py.mpi(), start, room.bytes())
            .map_err(|error| errors::operation(py, error))?;
        let room = Bytes::untyped(start, room.bytes());
        return one(
            mpi4py,
            py,
            room,
            (loan, intent),
            Described::Moat(moat),
            lent,
        );
    }
    let divided = division.logical && !division.message && usage == Use::Move && bytes.len > 0;
    if divided && tensor_comm::takes_one_address_for_in_place(mpi4py.mpi()) {
        let first = displs.extract::<i64>().unwrap_or(0);
        let address = check(py)?.address(bytes.start as usize, first);
        lent.addresses.push(address);
    }
    let mut cargo = Cargo::raw(loan.split().1, intent);
    if divided && to_mpi == Given::Shifted {
        let shifted = Shifted::new(mpi4py.mpi(), handle);
        let shifted = shifted.map_err(|error| errors::operation(py, error))?;
        datatype = mpi4py.datatype_object(py, shifted.datatype())?;
        // mpi4py counts elements by the length, and looks at none of them.
        bytes = Bytes::untyped(bytes.start.wrapping_add(Shifted::BY), bytes.len);
        cargo = cargo.described(Described::Shifted(shifted));
    }
    let buffer = lent.lend(py, Borrowed::lending(bytes, cargo))?;
    let items = [buffer, counts, displs, datatype];
    PyList::new(py, items).map(Bound::into_any)
}

/// Elements of a strided tensor as one element of a Datatype of its own.
fn shaped<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    (part, loan): (&Part, Loan),
    intent: Intent,
    received: bool,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = Shaped::new(mpi4py.mpi(), part, received);
    let shape = shape.map_err(|error| errors::operation(py, error))?;
    let view = part.view();
    let bytes = Bytes::untyped(view.data(), view.itemsize());
    one(
        mpi4py,
        py,
        bytes,
        (loan, intent),
        Described::Shaped(shape),
        lent,
    )
}

/// Memory as one of its own Datatype.
fn one<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    bytes: Bytes,
    (loan, intent): (Loan, Intent),
    described: Described,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let datatype = mpi4py.datatype_object(py, described.datatype())?;
    let cargo = Cargo::raw(loan.split().1, intent).described(described);
    let buffer = lent.lend(py, Borrowed::lending(bytes, cargo))?;
    let items = [buffer, 1i64.into_pyobject(py)?.into_any(), datatype];
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
///
/// # Errors
/// `ValueError` where it is to be reduced and MPI has no arithmetic for it.
pub fn natural<'py>(
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
