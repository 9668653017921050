//! Elements of a tensor in the form in which they travel once, lent to a method of mpi4py's. Knows no
//! operation.

use mpi_runtime::Mpi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;
use tensor_comm::{Arg, Counts, Flow, Posted, View};

use crate::borrow::Borrowed;
use crate::cargo::Cargo;
use crate::collective::Role;
use crate::datatype::Use;
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::loan::Held;
use crate::message::{self, Loans, Message};
use crate::mpi4py::Mpi4py;
use crate::raw::Bytes;
use crate::transfer::Lent;

/// What is asked of the message where it matters.
pub struct Asks<'a> {
    /// Whether MPI takes device memory in it.
    pub direct: &'a dyn Fn() -> PyResult<bool>,
    /// Whether it is there already and longer than so many bytes.
    pub exceeds: &'a dyn Fn(usize) -> PyResult<bool>,
}

/// The message as `[buffer, counts, Datatype]`, its elements in logical order.
///
/// # Errors
/// What the tensor, its counts or its dtype have to say.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    flow: Flow,
    (role, peers): (Role, usize),
    asks: &Asks<'_>,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    let intent = Intent::of(flow);
    let mut loans = Loans::new(mpi4py);
    let read = read(
        &mut loans,
        name,
        msg,
        (intent, Use::Move),
        (peers, role == Role::Vector),
    );
    let Message::Ours(arg) = read? else {
        return delegate::memory(mpi4py, name, msg, &[intent], lent);
    };
    loans.order.wait(py)?;
    let elsewhere = |view: &View| !view.device().is_host_addressable();
    let direct = arg.view().is_some_and(elsewhere) && (asks.direct)()?;
    let Some(held) = loans.into_borrowed().only() else {
        // `[None, 0, datatype]`: nothing to lend.
        return Ok(msg.clone());
    };
    let exceeded = match &arg {
        Arg::Part(part) if flow != Flow::Out && role == Role::Whole => {
            let bytes = part.count().saturating_mul(part.view().itemsize());
            let unguarded = direct || bytes >= tensor_comm::LARGE;
            unguarded && tensor_comm::overruns(mpi4py.mpi()) && (asks.exceeds)(bytes)?
        }
        _ => false,
    };
    let with = (direct, exceeded);
    let posted = posted(mpi4py.mpi(), py, &arg, name, peers, (flow, with))?;
    if flow != Flow::Out && role == Role::Whole {
        lent.room = Some(posted.capacity());
    }
    let datatype = mpi4py.datatype_object(py, posted.datatype())?;
    let counts = posted.counts().clone();
    let buffer = hand_over(py, held, posted, intent, lent)?;
    spec(buffer, counts, datatype)
}

/// A message of so many blocks, or with a count and a displacement for each.
///
/// # Errors
/// As for [`message::simple`].
pub fn read(
    loans: &mut Loans<'_>,
    name: &str,
    msg: &Bound<'_, PyAny>,
    (intent, usage): (Intent, Use),
    (blocks, vector): (usize, bool),
) -> PyResult<Message> {
    match vector {
        true => message::vector(loans, name, msg, intent, blocks),
        false => message::simple(loans, name, msg, intent, usage, blocks),
    }
}

/// `[buffer, counts, Datatype]`, as mpi4py takes it.
///
/// # Errors
/// What Python raised.
pub fn spec<'py>(
    buffer: Bound<'py, PyAny>,
    counts: Counts,
    datatype: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let items: SmallVec<[Bound<'py, PyAny>; 4]> = match counts {
        Counts::One(count) => {
            let count = count.into_pyobject(py)?.into_any();
            SmallVec::from_iter([buffer, count, datatype])
        }
        Counts::Each(counts, displs) => {
            let counts = PyList::new(py, counts)?.into_any();
            let displs = PyList::new(py, displs)?.into_any();
            SmallVec::from_iter([buffer, counts, displs, datatype])
        }
    };
    PyList::new(py, items).map(Bound::into_any)
}

/// The elements of `arg` in the form in which they travel; `with`: as for [`Posted::new`].
///
/// # Errors
/// What their memory or the library cannot do.
pub fn posted(
    mpi: &'static Mpi,
    py: Python<'_>,
    arg: &Arg,
    name: &str,
    blocks: usize,
    (flow, with): (Flow, (bool, bool)),
) -> PyResult<Posted> {
    // SAFETY:
    // - The caller's loans keep the memory, as long as the request that works on it.
    let make = || unsafe { Posted::new(mpi, arg, name, blocks, flow, with) };
    match in_place(arg) {
        true => make(),
        false => py.detach(make),
    }
    .map_err(|error| errors::operation(py, error))
}

/// Those elements as a buffer that is lent.
///
/// # Errors
/// What Python raised.
pub fn hand_over<'py>(
    py: Python<'py>,
    held: Held,
    posted: Posted,
    intent: Intent,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = Bytes::untyped(posted.ptr(), posted.bytes());
    let cargo = Cargo::posted(held, posted, intent);
    lent.lend(py, Borrowed::lending(bytes, cargo))
}

/// Whether the elements travel from where they lie, so that making them ready is no work.
fn in_place(arg: &Arg) -> bool {
    arg.view()
        .is_none_or(|view| view.layout().is_c_contiguous() && view.device().is_host_addressable())
}
