//! A collective method: which of its arguments matter on this rank, and the call made of them. One
//! function for all of them; what differs is in the rows.

mod sides;

use mpi_runtime::BuiltinOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tensor_comm::engine::Keep;
use tensor_comm::{Arg, Call, CallKind, Comm, Error, Kind, Op, ReduceOp};

use crate::avg::Avg;
use crate::counts;
use crate::datatype::Use;
use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::message::{self, Loans, Message};
use crate::method::Outcome;
use crate::mpi4py::Mpi4py;
use crate::params::{Param, Slots, Takes};
use crate::request::{self, Pending};
use crate::table::{Body, Row};

pub use sides::{Collective, Role, Rooted};

/// Tells the other ranks that this one refuses a collective; what is raised here is the cause.
pub(crate) fn refuse(py: Python<'_>, comm: Comm, kind: impl Into<Kind>, why: &PyErr) {
    let kind = kind.into();
    let words = Error::Value(why.value(py).to_string());
    interrupt::wait(py, || tensor_comm::refuse(&comm, kind, words));
}

/// The same for a non-blocking one, without waiting for them.
pub(crate) fn refuse_start(py: Python<'_>, comm: Comm, kind: impl Into<Kind>, why: &PyErr) {
    let kind = kind.into();
    let words = Error::Value(why.value(py).to_string());
    py.detach(|| tensor_comm::refuse_start(&comm, kind, words));
}

/// How the send and the receive side of a call are divided on this rank, and into how many blocks.
pub(crate) fn roles(
    row: &Collective,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, '_>,
) -> PyResult<(Role, Role, usize)> {
    let core = |error| Python::attach(|py| errors::operation(py, error));
    let mut root = 0;
    for (param, slot) in params.iter().zip(slots) {
        if let (Takes::Int(_), Some(given)) = (param.takes, slot) {
            root = crate::p2p::int(param.name, given)?;
        }
    }
    let sides = row.sides_here(comm, root).map_err(core)?;
    let blocks = blocks(row.kind, comm).map_err(core)?;
    Ok((sides.send, sides.recv, blocks))
}

/// Makes the call out of the arguments and runs it.
///
/// # Errors
/// What any argument, MPI or a framework has to say.
pub fn run<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    row: &Collective,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let core = |error| errors::operation(py, error);
    let (mut call, mut loans) = (Call::new(row.kind), Loans::new(mpi4py));
    match fill(py, row, params, comm, slots, &mut call, &mut loans) {
        Ok(true) => {}
        Ok(false) => return Ok(Outcome::Raw),
        Err(why) => {
            refuse(py, comm, row.kind, &why);
            return Err(why);
        }
    }
    // SAFETY:
    // - `loans` keeps the tensors' memory.
    let done = interrupt::wait(py, || unsafe { tensor_comm::run(&comm, &call) });
    // Also after an error: MPI may have written before it failed.
    let told = loans.wrote(py);
    done.map_err(core)?;
    told?;
    Ok(Outcome::Done)
}

/// Makes the call out of the arguments and starts it.
///
/// # Errors
/// What any argument has to say; what MPI has to say comes with the request.
pub fn start<'py>(
    py: Python<'py>,
    mpi4py: &'static Mpi4py,
    row: &Collective,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let (mut call, mut loans) = (Call::new(row.kind), Loans::new(mpi4py));
    let filled = fill(py, row, params, comm, slots, &mut call, &mut loans);
    match filled.and_then(|ours| check_root(py, mpi4py, row, comm, call.root).map(|()| ours)) {
        Ok(true) => {
            let borrowed = loans.into_borrowed();
            request::start(mpi4py, py, comm, &call, borrowed).map(Outcome::Value)
        }
        Ok(false) => Ok(Outcome::Raw),
        Err(why) => {
            refuse_start(py, comm, row.kind, &why);
            Err(why)
        }
    }
}

/// Makes the call out of the arguments and begins it, without a request of MPI's.
///
/// # Errors
/// As for [`start`]; `TypeError` where the caller means raw memory.
pub fn begin<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    row: &Row,
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Pending> {
    let (call, loans) = lent(py, mpi4py, row, comm, slots)?;
    let keep: Box<dyn Keep> = Box::new(loans.into_borrowed());
    // SAFETY:
    // - `keep` keeps the tensors' memory.
    py.detach(|| unsafe { tensor_comm::begin(&comm, &call, keep) })
        .map(|handle| Pending::new(handle, None))
        .map_err(|error| errors::operation(py, error))
}

/// As [`begin`] for a thread that waits: `None` where it is done already.
///
/// # Errors
/// As for [`begin`], and what the operation found.
pub fn attempt<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    row: &Row,
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Option<Pending>> {
    let (call, loans) = lent(py, mpi4py, row, comm, slots)?;
    // SAFETY:
    // - the loans hold the tensors' memory: they are here until the call has ended, or kept by the operation.
    match py.detach(|| unsafe { tensor_comm::attempt(&comm, &call) }) {
        Ok(Some(rest)) => {
            let keep: Box<dyn Keep> = Box::new(loans.into_borrowed());
            let handle = py.detach(|| rest.keep(keep));
            Ok(Some(Pending::new(handle, None)))
        }
        done => {
            // Also after an error: something may have been written before.
            let told = loans.wrote(py);
            done.map_err(|error| errors::operation(py, error))?;
            told.map(|()| None)
        }
    }
}

/// The call, and what its tensors are lent by.
fn lent<'m, 'py>(
    py: Python<'py>,
    mpi4py: &'m Mpi4py,
    row: &Row,
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<(Call, Loans<'m>)> {
    let Body::Start(collective) = &row.body else {
        return Err(PyTypeError::new_err(format!(
            "{} is no collective",
            row.name
        )));
    };
    let (mut call, mut loans) = (Call::new(collective.kind), Loans::new(mpi4py));
    match fill(
        py, collective, row.params, comm, slots, &mut call, &mut loans,
    ) {
        Ok(true) => Ok((call, loans)),
        Ok(false) => Err(PyTypeError::new_err(format!(
            "{}: raw memory is not taken here, give tensors",
            row.name
        ))),
        Err(why) => {
            refuse_start(py, comm, collective.kind, &why);
            Err(why)
        }
    }
}

/// Looks at the arguments without making the call.
///
/// # Errors
/// What any of them has to say.
pub fn check<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    row: &Collective,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<()> {
    let (mut call, mut loans) = (Call::new(row.kind), Loans::new(mpi4py));
    fill(py, row, params, comm, slots, &mut call, &mut loans).map(|_| ())
}

/// Makes the call out of the arguments, with all its memory borrowed and ready; `false` where the caller
/// means raw memory.
fn fill<'py>(
    py: Python<'py>,
    row: &Collective,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
    call: &mut Call,
    loans: &mut Loans<'_>,
) -> PyResult<bool> {
    let mpi4py = loans.mpi4py;
    let core = |error| errors::operation(py, error);
    let (mut sendbuf, mut recvbuf) = (None, None);
    for (param, slot) in params.iter().zip(slots) {
        match (param.takes, slot) {
            (Takes::Sent, Some(obj)) => sendbuf = Some((param.name, obj)),
            (Takes::Received, Some(obj)) => recvbuf = Some((param.name, obj)),
            (Takes::Either, Some(obj)) => {
                sendbuf = Some((param.name, obj));
                recvbuf = sendbuf;
            }
            (Takes::Int(_), Some(obj)) => call.root = crate::p2p::int(param.name, obj)?,
            (Takes::Op, given) => call.op = Some(operation(mpi4py, param.name, given.as_deref())?),
            (Takes::Counts, Some(obj)) if !obj.is_none() => {
                let size = comm.size().map_err(core)?;
                call.recvcounts = Some(counts::sequence(param.name, "counts", obj, size)?);
            }
            _ => {}
        }
    }
    let mut sides = row.sides_here(comm, call.root).map_err(core)?;

    if let (Role::Whole | Role::Blocks | Role::Vector, Some((name, msg))) = (sides.send, sendbuf) {
        if sides.send_in_place && mpi4py.is_in_place(msg) && !is_inter(row, comm).map_err(core)? {
            call.send = Arg::InPlace;
            if row.kind == CallKind::ReduceScatterBlock {
                sides.recv = Role::Blocks;
            }
        } else {
            let whole = sides.send == Role::Whole;
            if !(whole && message::alone(loans, name, msg, Intent::Send, &mut call.send)?) {
                match side(loans, name, msg, Intent::Send, sides.send, call, comm)? {
                    Message::Ours(arg) => call.send = arg,
                    Message::Raw => return Ok(false),
                }
            }
        }
    }
    if let (Role::Whole | Role::Blocks | Role::Vector, Some((name, msg))) = (sides.recv, recvbuf) {
        if sides.recv_in_place && mpi4py.is_in_place(msg) {
            call.recv = Arg::InPlace;
        } else if !(sides.recv == Role::Whole
            && message::alone(loans, name, msg, Intent::Receive, &mut call.recv)?)
        {
            match side(loans, name, msg, Intent::Receive, sides.recv, call, comm)? {
                Message::Ours(arg) => call.recv = arg,
                Message::Raw => return Ok(false),
            }
        }
    }
    if let Some(Op::Native(op)) = call.op
        && OTHERS.iter().any(|other| mpi4py.mpi().op(*other) == op)
    {
        return Err(PyValueError::new_err(
            "op: MAXLOC and MINLOC are for pairs of a value and an index, REPLACE and NO_OP for windows",
        ));
    }
    loans.order.wait(py)?;
    Ok(true)
}

/// Refuses a root that does not exist, as MPI would when the turn of a non-blocking call has come.
fn check_root(
    py: Python<'_>,
    mpi4py: &Mpi4py,
    row: &Collective,
    comm: Comm,
    root: i32,
) -> PyResult<()> {
    let exists = || -> tensor_comm::Result<bool> {
        if !comm.is_inter()? {
            let ranks = comm.size()?;
            return Ok(usize::try_from(root).is_ok_and(|root| root < ranks));
        }
        let constants = comm.mpi().constants();
        let ranks = comm.mpi().comm_remote_size(comm.raw())?;
        Ok((0..ranks).contains(&root) || [constants.root, constants.proc_null].contains(&root))
    };
    let core = |error| errors::operation(py, error);
    if row.rooted == Rooted::No || exists().map_err(core)? {
        return Ok(());
    }
    let class = mpi4py.mpi().constants().err_root;
    let handled = py.detach(|| comm.mpi().comm_call_errhandler(comm.raw(), class));
    handled.map_err(|error| errors::mpi(py, &error))?;
    Err(mpi4py.exception(py, class))
}

/// One buffer argument.
fn side(
    loans: &mut Loans<'_>,
    name: &str,
    msg: &Bound<'_, PyAny>,
    intent: Intent,
    role: Role,
    call: &Call,
    comm: Comm,
) -> PyResult<Message> {
    let blocks = || blocks(call.kind, comm).map_err(|error| errors::operation(msg.py(), error));
    match role {
        Role::Absent => Ok(Message::Ours(Arg::Absent)),
        Role::Whole => message::simple(loans, name, msg, intent, Use::by(call.op), 0),
        Role::Blocks => message::simple(loans, name, msg, intent, Use::by(call.op), blocks()?),
        Role::Vector => message::vector(loans, name, msg, intent, blocks()?),
    }
}

/// How many blocks a buffer with one block per peer has.
fn blocks(kind: CallKind, comm: Comm) -> tensor_comm::Result<usize> {
    if kind != CallKind::ReduceScatterBlock && comm.is_inter()? {
        Ok(comm.mpi().comm_remote_size(comm.raw())? as usize)
    } else {
        comm.size()
    }
}

fn is_inter(row: &Collective, comm: Comm) -> tensor_comm::Result<bool> {
    // Scans exist on intracommunicators only; asking is cheap elsewhere.
    if matches!(row.kind, CallKind::Scan | CallKind::Exscan) {
        Ok(false)
    } else {
        comm.is_inter()
    }
}

/// Operations of MPI's own that combine no numbers.
const OTHERS: [BuiltinOp; 4] = [
    BuiltinOp::Maxloc,
    BuiltinOp::Minloc,
    BuiltinOp::Replace,
    BuiltinOp::NoOp,
];

/// The operations that have the same meaning on every MPI because dlmpi knows them.
const KNOWN: [(BuiltinOp, ReduceOp); 10] = [
    (BuiltinOp::Sum, ReduceOp::Sum),
    (BuiltinOp::Prod, ReduceOp::Prod),
    (BuiltinOp::Max, ReduceOp::Max),
    (BuiltinOp::Min, ReduceOp::Min),
    (BuiltinOp::Land, ReduceOp::Land),
    (BuiltinOp::Lor, ReduceOp::Lor),
    (BuiltinOp::Lxor, ReduceOp::Lxor),
    (BuiltinOp::Band, ReduceOp::Band),
    (BuiltinOp::Bor, ReduceOp::Bor),
    (BuiltinOp::Bxor, ReduceOp::Bxor),
];

/// The operation of a reduction: `SUM` where none is given, as in mpi4py.
pub(crate) fn operation(
    mpi4py: &Mpi4py,
    name: &str,
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<Op> {
    let Some(given) = given else {
        return Ok(Op::Builtin(ReduceOp::Sum));
    };
    if given.is_instance_of::<Avg>() {
        return Ok(Op::Avg);
    }
    let handle = mpi4py.op(given).map_err(|cause| {
        let error = PyTypeError::new_err(format!(
            "{name}: expected an MPI.Op or dlmpi.AVG, got {}",
            crate::framework::type_name(&given.get_type())
        ));
        error.set_cause(given.py(), Some(cause));
        error
    })?;
    if handle == mpi4py.mpi().op_null() {
        return Err(PyValueError::new_err(format!(
            "{name}: OP_NULL is no operation"
        )));
    }
    let known = KNOWN.iter().find(|row| mpi4py.mpi().op(row.0) == handle);
    Ok(known.map_or(Op::Native(handle), |row| Op::Builtin(row.1)))
}
