//! Methods that mpi4py carries out, on memory that we lend: which of their arguments are tensors, in
//! which form they are lent, and what holds them until the operation has ended. One function for all
//! of them; what differs is in the rows.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use tensor_comm::{Comm, Flow, Op};

use crate::announce::Together;
use crate::carried;
use crate::collective::{self, Role};
use crate::datatype::Use;
use crate::delegate::{Values, invoke};
use crate::early;
use crate::elements::{self, Asks};
use crate::errors;
use crate::lane::Short;
use crate::memory::{self, Division, Given};
use crate::mpi4py::Mpi4py;
use crate::p2p::whole;
use crate::packed;
use crate::params::{Param, Slots, Takes};
use crate::post::{self, Post};
use crate::receipt;
use crate::repeated::{self, Repeated};
use crate::sides::Sides;
use crate::staged;
use crate::table::{Class, Row};
use crate::target;
use crate::transfer::{self, Lent};
use crate::typed;

/// How a method reads its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One message, or one block per peer, in logical order.
    Elements(Sides),
    /// The same for an operation that goes on after the tensor was looked at: in logical order where it
    /// lies.
    Dense(Sides),
    /// The tensor's memory as it lies, as mpi4py takes it.
    Memory,
    /// The same with one Datatype per peer, so that counts are mpi4py's to read.
    Types,
    /// Elements of the Datatype whose method it is on the side of this flow, packed bytes on the other.
    Packed(Flow),
}

/// What a method gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// The operation is over.
    Result,
    /// A request of an operation under way.
    Request,
    /// A request of an operation that can be started again and again.
    Persistent,
    /// Nothing: the operation is over when its window or file says so.
    Later,
    /// The operation that was begun before is over.
    End,
}

/// What a method that lends does.
#[derive(Clone, Copy, Debug)]
pub struct Lend {
    /// How it reads its messages.
    pub form: Form,
    /// What it gives back.
    pub gives: Gives,
    /// The short way of a non-blocking message.
    pub post: Option<Post>,
    /// Another short way, where there is one.
    pub short: Option<Short>,
}

/// Calls mpi4py's method `real` with the tensors of this call lent to it.
///
/// # Errors
/// What an argument, mpi4py or a framework has to say.
pub fn call<'py>(
    mpi4py: &'static Mpi4py,
    row: &'static Row,
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
    if matches!(row.class, Class::Comm | Class::Intracomm | Class::Topocomm)
        && mpi4py.comm(slf)? == mpi4py.mpi().comm_null()
    {
        return Err(mpi4py.null(slf));
    }
    if row.class == Class::Message && slf.eq(mpi4py.module(py).getattr("MESSAGE_NULL")?)? {
        // Open MPI 5.0.11 ends the job.
        return Err(mpi4py.exception(py, mpi4py.mpi().constants().err_request));
    }
    let mut own = None;
    if lend.gives == Gives::Persistent {
        match repeated::create(mpi4py, row, slf, slots)? {
            Repeated::Request(request) => return Ok(request),
            Repeated::Op(at, op) => own = Some((at, op)),
            Repeated::Plain => {}
        }
    }
    let together = Together::of(mpi4py, row, lend, slf)?;
    let (mut values, mut lent) = match ready(mpi4py, row, lend, slf, slots, own) {
        Ok(ready) => ready,
        Err(why) => {
            together.refuse(py, &why);
            return Err(why);
        }
    };
    lent.unsure = lend.gives == Gives::Request && !tensor_comm::tells_of_pairs(mpi4py.mpi()) && {
        let names = |name| row.params.iter().any(|param| param.name == name);
        names("dest") && names("source")
    };
    let announced = match (lend.gives, &together) {
        (Gives::Persistent, _) if is_collective(row) => {
            carried::undisturbed(slf)?;
            None
        }
        // In its turn among the others of the communicator.
        (Gives::Request, Together::Started(_, kind)) => {
            return carried::start(mpi4py, (row, *kind), real, slf, values, lent);
        }
        _ => together.announce(py)?,
    };
    let status = match (lend.gives, lent.room) {
        (Gives::Result, Some(room)) => status(mpi4py, py, row, &mut values)?.map(|s| (room, s)),
        _ => None,
    };
    let result = invoke(real, row, slf, values);
    if let (Ok(_), Some(mut announced)) = (&result, announced) {
        announced.ended_well();
    }
    match lend.gives {
        Gives::Request => transfer::follow(mpi4py, result?, lent),
        Gives::Persistent if lent.staged => {
            let partitions = given(row, slots, "partitions").map_or(Ok(0), |n| n.extract())?;
            staged::keep(mpi4py, row, result?, partitions, lent)
        }
        Gives::Persistent => transfer::persist(mpi4py, result?, lent),
        Gives::Later => {
            let result = result?;
            let key = peer(row, slots, "target_rank");
            let held = Bound::new(py, transfer::Hold::new(lent))?;
            slf.call_method1(pyo3::intern!(py, "_hold"), (key, held))?;
            Ok(result)
        }
        Gives::End => {
            let ended = lent.end(py);
            slf.call_method0(pyo3::intern!(py, "_release"))?;
            let result = result?;
            ended.map(|()| result)
        }
        Gives::Result => {
            let ended = lent.end(py);
            if let (Err(error), Some((room, status))) = (&result, &status) {
                receipt::explain(mpi4py.mpi(), *room, error.value(py), Some(status))?;
            }
            let result = result?;
            ended?;
            if let Some((room, status)) = status {
                receipt::judge(mpi4py.mpi(), room, &status)?;
            }
            Ok(result)
        }
    }
}

/// What mpi4py's method is given: everything that can be refused on this rank is refused here.
fn ready<'py>(
    mpi4py: &Mpi4py,
    row: &'static Row,
    lend: &Lend,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
    own: Option<(usize, Bound<'py, PyAny>)>,
) -> PyResult<(Values<'py>, Lent)> {
    let usage = usage(mpi4py, row, slots)?;
    let (mut values, mut lent) = lend_all(mpi4py, row, lend, slf, slots, usage, Given::AsItLies)?;
    if let (Gives::Persistent, Some(given)) = (lend.gives, lent.apart(mpi4py.mpi())) {
        (values, lent) = lend_all(mpi4py, row, lend, slf, slots, usage, given)?;
    }
    if let (Gives::Persistent, Some((at, op))) = (lend.gives, own) {
        values[at] = Some(op);
    }
    if let (Form::Elements(sides), [send, recv]) = (lend.form, &lent.buffers[..])
        && (sides.send, sides.recv) == (Role::Whole, Role::Whole)
        && send.get().overlaps(recv.get())
    {
        return Err(PyValueError::new_err(
            "sendbuf and recvbuf share memory, which MPI does not allow here; use the form with _replace, or send a copy",
        ));
    }
    if row.class == Class::Win {
        target::window(mpi4py, row, slf, slots, &values)?;
    }
    if row.params.iter().any(|param| param.name == "partitions") {
        target::partitioned(mpi4py, row, slf, slots)?;
    }
    if let Form::Packed(elements) = lend.form {
        packed::check(mpi4py, slf, row, &values, elements)?;
    }
    Ok((values, lent))
}

/// The values of all arguments, and what was lent; `sent`: how MPI is given what is sent.
fn lend_all<'py>(
    mpi4py: &Mpi4py,
    row: &Row,
    lend: &Lend,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
    usage: Use,
    sent: Given,
) -> PyResult<(Values<'py>, Lent)> {
    let mut lent = Lent::default();
    let mut values: Values<'py> = Default::default();
    for ((param, slot), value) in row.params.iter().zip(slots).zip(&mut values) {
        let Some(msg) = slot else { continue };
        let mut lend = |flow| {
            let to_mpi = match flow {
                Flow::Out => sent,
                _ => Given::AsItLies,
            };
            let side = Side {
                row,
                param,
                flow,
                to_mpi,
            };
            side.lend(mpi4py, lend.form, slf, slots, msg, usage, &mut lent)
        };
        *value = Some(match param.takes {
            Takes::Sent => lend(Flow::Out)?,
            Takes::Received => lend(Flow::In)?,
            Takes::Through => lend(Flow::Through)?,
            Takes::Either => match lend(Flow::In) {
                Ok(message) => message,
                Err(refused) => lend(Flow::Out).map_err(|_| refused)?,
            },
            // mpi4py would cut a fraction off.
            Takes::Int(_) if !msg.is_exact_instance_of::<PyInt>() => {
                whole(param.name, msg)?.into_pyobject(msg.py())?.into_any()
            }
            Takes::Number => number(param.name, msg)?,
            _ => Bound::clone(msg),
        });
    }
    Ok((values, lent))
}

/// A displacement, an offset or a number of things. Open MPI 5.0.11 takes negative ones, and crashes.
fn number<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let value = whole(name, given)?;
    if value < 0 {
        return Err(PyValueError::new_err(format!(
            "{name}: expected 0 or more, got {value}"
        )));
    }
    Ok(value.into_pyobject(given.py())?.into_any())
}

/// One tensor argument of a call.
struct Side<'a> {
    row: &'a Row,
    param: &'a Param,
    flow: Flow,
    /// How MPI is given it.
    to_mpi: Given,
}

impl Side<'_> {
    #[allow(clippy::too_many_arguments, reason = "the parts of one call")]
    fn lend<'py>(
        &self,
        mpi4py: &Mpi4py,
        form: Form,
        slf: &Bound<'py, PyAny>,
        slots: &Slots<'_, 'py>,
        msg: &Bound<'py, PyAny>,
        usage: Use,
        lent: &mut Lent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let &Side {
            row,
            param,
            flow,
            to_mpi,
        } = self;
        let name = param.name;
        let unmatched = row.class == Class::Message
            && slf.eq(mpi4py.module(slf.py()).getattr("MESSAGE_NO_PROC")?)?;
        if unmatched || idle(mpi4py, row, slots, flow) {
            return Ok(msg.clone());
        }
        match form {
            Form::Elements(sides) => {
                let blocks = sides.of(mpi4py, row, slf, slots, flow)?;
                let direct = || gives_device_memory(mpi4py, row, slf, slots, flow);
                let exceeds = |bytes| early::exceeds(mpi4py, row, slf, slots, bytes);
                let asks = Asks {
                    direct: &direct,
                    exceeds: &exceeds,
                };
                elements::lend(mpi4py, name, msg, flow, blocks, &asks, lent)
            }
            Form::Dense(sides) => {
                let (role, blocks) = sides.of(mpi4py, row, slf, slots, flow)?;
                let division = Division {
                    blocks,
                    vector: role == Role::Vector,
                    logical: true,
                    message: !is_collective(row),
                    to_mpi,
                };
                memory::lend(mpi4py, name, msg, flow, usage, division, lent)
            }
            Form::Memory => {
                let division = Division {
                    blocks: 0,
                    vector: false,
                    logical: false,
                    message: false,
                    to_mpi: Given::AsItLies,
                };
                memory::lend(mpi4py, name, msg, flow, usage, division, lent)
            }
            Form::Types => typed::lend(mpi4py, (row, slf), name, msg, flow, lent),
            Form::Packed(elements) => {
                let datatype = (flow == elements).then_some(slf);
                packed::lend(mpi4py, name, datatype, msg, flow, lent)
            }
        }
    }
}

/// Whether it is a collective of a communicator, and no message to or from one rank.
pub(crate) fn is_collective(row: &Row) -> bool {
    matches!(row.class, Class::Comm | Class::Intracomm | Class::Topocomm)
        && !row
            .params
            .iter()
            .any(|param| matches!(param.name, "dest" | "source"))
}

/// Whether this is a message in which MPI takes device memory.
fn gives_device_memory(
    mpi4py: &Mpi4py,
    row: &Row,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
    flow: Flow,
) -> PyResult<bool> {
    let rank = match flow {
        Flow::Out => peer(row, slots, "dest"),
        // By default from any rank, which is none of the communicator's.
        Flow::In => Some(peer(row, slots, "source").unwrap_or(-1)),
        Flow::Through => None,
    };
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let core = |error| errors::operation(py, error);
    match (row.class, rank) {
        (Class::Comm, Some(rank)) if !is_collective(row) => {
            let comm = Comm::new(mpi, mpi4py.comm(slf)?).map_err(core)?;
            tensor_comm::takes_device_memory(mpi, Some((comm, rank))).map_err(core)
        }
        // Nothing tells the communicator of a message that was matched.
        (Class::Message, _) => tensor_comm::takes_device_memory(mpi, None).map_err(core),
        _ => Ok(false),
    }
}

/// The argument of this name, where it is given.
pub(crate) fn given<'a, 'py>(
    row: &Row,
    slots: &'a Slots<'_, 'py>,
    name: &str,
) -> Option<&'a Bound<'py, PyAny>> {
    let at = row.params.iter().position(|param| param.name == name)?;
    slots[at].as_deref()
}

/// The status that mpi4py's method will fill: the caller's, or one of our own in its place.
fn status<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    row: &Row,
    values: &mut Values<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(at) = row.params.iter().position(|p| p.takes == Takes::Status) else {
        return Ok(None);
    };
    let Some(value) = values.get_mut(at) else {
        return Ok(None);
    };
    let status = match value.take() {
        Some(given) if !given.is_none() => given,
        _ => mpi4py.module(py).getattr("Status")?.call0()?,
    };
    *value = Some(status.clone());
    Ok(Some(status))
}

/// The rank in the argument of this name.
fn peer(row: &Row, slots: &Slots<'_, '_>, name: &str) -> Option<i32> {
    given(row, slots, name)?.extract().ok()
}

/// What happens to the elements. Operations that dlmpi does not know are the caller's, or move elements.
fn usage(mpi4py: &Mpi4py, row: &Row, slots: &Slots<'_, '_>) -> PyResult<Use> {
    let Some(at) = row.params.iter().position(|param| param.takes == Takes::Op) else {
        return Ok(Use::Move);
    };
    let name = row.params[at].name;
    match collective::operation(mpi4py, name, slots[at].as_deref())? {
        Op::Builtin(_) => Ok(Use::Reduce),
        Op::Native(_) => Ok(Use::UserOp),
        Op::Avg => Err(PyValueError::new_err(format!(
            "{name}: dlmpi.AVG is for dlmpi's own reductions; use MPI.SUM and divide"
        ))),
    }
}

/// Whether there is no peer: then mpi4py does not even look at the message.
fn idle(mpi4py: &Mpi4py, row: &Row, slots: &Slots<'_, '_>, flow: Flow) -> bool {
    let null = mpi4py.mpi().constants().proc_null;
    let none = |name: &str| peer(row, slots, name) == Some(null);
    let message = match flow {
        Flow::Out => none("dest"),
        Flow::In => none("source"),
        Flow::Through => none("dest") && none("source"),
    };
    message || none("target_rank")
}
