//! Methods that mpi4py carries out, on memory that we lend: which of their arguments are tensors, in
//! which form they are lent, and what holds them until the operation has ended. One function for all
//! of them; what differs is in the rows.

use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;
use tensor_comm::{Arg, Counts, Flow, Posted};

use crate::borrow::Borrowed;
use crate::cargo::Cargo;
use crate::collective::Role;
use crate::datatype::Use;
use crate::delegate::{self, Values, invoke};
use crate::errors;
use crate::framework::Intent;
use crate::memory;
use crate::message::{self, Loans, Message};
use crate::mpi4py::Mpi4py;
use crate::params::{Slots, Takes};
use crate::post::{self, Post};
use crate::raw::Bytes;
use crate::table::Row;
use crate::transfer::{self, Lent};

/// How a method reads its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One message, its elements in logical order.
    Message,
    /// One message, or one block per neighbor of a topology, in logical order.
    Neighbors {
        /// The send side.
        send: Role,
        /// The receive side.
        recv: Role,
    },
    /// The tensor's memory as it lies, as mpi4py takes it.
    Memory,
}

/// What a method gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// The operation is over.
    Result,
    /// A request of an operation under way.
    Request,
}

/// What a method that lends does.
#[derive(Clone, Copy, Debug)]
pub struct Lend {
    /// How it reads its messages.
    pub form: Form,
    /// What it gives back.
    pub gives: Gives,
    /// The short way, where there is one.
    pub post: Option<Post>,
}

/// Calls mpi4py's method `real` with the tensors of this call lent to it.
///
/// # Errors
/// What an argument, mpi4py or a framework has to say.
pub fn call<'py>(
    mpi4py: &Mpi4py,
    row: &Row,
    lend: &Lend,
    real: &Bound<'py, PyAny>,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    tensor_comm::attend(mpi4py.mpi()).map_err(|error| errors::operation(py, error))?;
    if let Some(post) = lend.post
        && let Some(request) = post::start(mpi4py, post, row, slf, slots)?
    {
        return Ok(request);
    }
    let usage = usage(mpi4py, row, slots)?;
    let mut lent = Lent::default();
    let mut values: Values<'py> = Default::default();
    for ((param, slot), value) in row.params.iter().zip(slots).zip(&mut values) {
        let Some(msg) = slot else { continue };
        let flow = match param.takes {
            Takes::Sent => Flow::Out,
            Takes::Received => Flow::In,
            Takes::Through => Flow::Through,
            _ => {
                *value = Some(Bound::clone(msg));
                continue;
            }
        };
        *value = Some(match lend.form {
            Form::Message if idle(mpi4py, row, slots, flow) => Bound::clone(msg),
            Form::Message => elements(mpi4py, param.name, msg, flow, Role::Whole, 0, &mut lent)?,
            Form::Neighbors { send, recv } => {
                let (role, degree) = match flow {
                    Flow::Out => (send, "outdegree"),
                    _ => (recv, "indegree"),
                };
                let peers = match role {
                    Role::Whole | Role::Absent => 0,
                    Role::Blocks | Role::Vector => slf.getattr(degree)?.extract()?,
                };
                elements(mpi4py, param.name, msg, flow, role, peers, &mut lent)?
            }
            Form::Memory => memory::lend(mpi4py, param.name, msg, flow, usage, &mut lent)?,
        });
    }
    let result = invoke(real, row, slf, values);
    match lend.gives {
        Gives::Request => transfer::follow(mpi4py, result?, lent),
        Gives::Result => {
            let ended = lent.end(py);
            let result = result?;
            ended.map(|()| result)
        }
    }
}

/// What happens to the elements: an operation that replaces moves them.
fn usage(mpi4py: &Mpi4py, row: &Row, slots: &Slots<'_, '_>) -> PyResult<Use> {
    let Some(at) = row.params.iter().position(|param| param.takes == Takes::Op) else {
        return Ok(Use::Move);
    };
    match slots[at].as_deref() {
        Some(op) if mpi4py.replaces(op)? => Ok(Use::Move),
        _ => Ok(Use::Reduce),
    }
}

/// Whether there is no peer: then mpi4py does not even look at the message.
fn idle(mpi4py: &Mpi4py, row: &Row, slots: &Slots<'_, '_>, flow: Flow) -> bool {
    let null = mpi4py.mpi().constants().proc_null;
    let none = |peer: &str| {
        let at = row.params.iter().position(|param| param.name == peer);
        let given = at.and_then(|at| slots[at].as_deref());
        given.is_some_and(|given| given.extract::<i32>().is_ok_and(|rank| rank == null))
    };
    match flow {
        Flow::Out => none("dest"),
        Flow::In => none("source"),
        Flow::Through => none("dest") && none("source"),
    }
}

/// The message as `[buffer, counts, Datatype]`, its elements in logical order.
fn elements<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    flow: Flow,
    role: Role,
    peers: usize,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    let intent = match flow {
        Flow::Out => Intent::Send,
        Flow::In | Flow::Through => Intent::Receive,
    };
    let mut loans = Loans::new(mpi4py);
    let read = match role {
        Role::Vector => message::vector(&mut loans, name, msg, intent, peers)?,
        _ => message::simple(&mut loans, name, msg, intent, Use::Move, peers)?,
    };
    let Message::Ours(arg) = read else {
        return delegate::memory(mpi4py, name, msg, &[intent], lent);
    };
    loans.order.wait(py)?;
    let mpi = mpi4py.mpi();
    let make = || Posted::new(mpi, &arg, name, peers, flow);
    let posted = match in_place(&arg) {
        true => make(),
        false => py.detach(make),
    }
    .map_err(|error| errors::operation(py, error))?;
    let datatype = mpi4py.datatype_object(py, posted.datatype())?;
    let counts = posted.counts().clone();
    let bytes = Bytes::untyped(posted.ptr(), posted.bytes());
    let Some(held) = loans.into_borrowed().only() else {
        // `[None, 0, datatype]`: nothing to lend.
        return Ok(msg.clone());
    };
    let buffer = Bound::new(
        py,
        Borrowed::lending(bytes, Cargo::posted(held, posted, intent)),
    )?;
    lent.buffers.push(buffer.clone().unbind());
    let buffer = buffer.into_any();
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

/// Whether the elements travel from where they lie, so that making them ready is no work.
fn in_place(arg: &Arg) -> bool {
    arg.view()
        .is_none_or(|view| view.layout().is_c_contiguous() && view.device().is_host_addressable())
}
