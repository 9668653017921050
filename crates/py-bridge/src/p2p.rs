//! Point-to-point methods: one message each way, in MPI's own signature. Knows no collective.

use mpi_runtime::StatusPtr;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use tensor_comm::engine::Keep;
use tensor_comm::{Arg, Comm, Part, SendMode};

use crate::datatype::Use;
use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::message::{self, Loans, Message, nothing};
use crate::method::Outcome;
use crate::mpi4py::Mpi4py;
use crate::params::{Default, Param, Slots, Takes};
use crate::plain;
use crate::request::Pending;

/// A message up to here takes less time than to wake a thread that carries it.
const SHORT: usize = 64 << 10;

/// A native status is only handed to MPI, on the thread that holds its object.
pub(crate) struct Shared(StatusPtr);

// SAFETY:
// - The closure that carries it runs on this very thread; `detach` asks for `Send` all the same.
unsafe impl Send for Shared {}
// SAFETY:
// - As above: nobody else sees it.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(status: StatusPtr) -> Shared {
        Shared(status)
    }

    pub(crate) fn get(&self) -> StatusPtr {
        self.0
    }
}

/// An address that only goes to MPI.
#[derive(Clone, Copy)]
pub(crate) struct Address(*mut u8);

// SAFETY:
// - As for [`Shared`].
unsafe impl Send for Address {}
// SAFETY:
// - As for [`Shared`].
unsafe impl Sync for Address {}

impl Address {
    pub(crate) fn new(address: *mut u8) -> Address {
        Address(address)
    }

    pub(crate) fn get(&self) -> *mut u8 {
        self.0
    }
}

/// A C `int`: ranks, tags, roots.
///
/// # Errors
/// As for [`whole`]; `OverflowError` where it is too large for a C `int`.
#[inline]
pub fn int(name: &str, obj: &Bound<'_, PyAny>) -> PyResult<i32> {
    if let Some(value) = plain::int(obj) {
        return Ok(value);
    }
    let value = whole(name, obj)?;
    i32::try_from(value)
        .map_err(|_| PyOverflowError::new_err(format!("{name}: {value} does not fit into a C int")))
}

/// An integer of MPI's. A float that is a whole number is one, as in mpi4py; a fraction, which mpi4py cuts off, is none.
///
/// # Errors
/// `TypeError` or `OverflowError` naming the argument.
pub fn whole(name: &str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    let Ok(float) = obj.cast::<PyFloat>() else {
        return crate::counts::integer(name, "the value", obj);
    };
    let value = float.value();
    // Up to here every integer is a float of its own.
    if value.fract() != 0.0 || value.abs() > (1i64 << f64::MANTISSA_DIGITS) as f64 {
        return Err(PyTypeError::new_err(format!(
            "{name}: {value} is no integer"
        )));
    }
    Ok(value as i64)
}

/// The integers of a call in the order of its parameters, defaults filled in.
///
/// # Errors
/// As for [`int`].
pub fn ints<const N: usize>(
    mpi4py: &Mpi4py,
    params: &[Param],
    slots: &Slots<'_, '_>,
) -> PyResult<[i32; N]> {
    let constants = mpi4py.mpi().constants();
    let mut values = [0; N];
    let integers = params
        .iter()
        .zip(slots)
        .filter_map(|(param, slot)| match param.takes {
            Takes::Int(default) => Some((param, slot, default)),
            _ => None,
        });
    for (value, (param, slot, default)) in values.iter_mut().zip(integers) {
        *value = match (slot, default) {
            (Some(obj), _) => int(param.name, obj)?,
            (None, Default::AnySource) => constants.any_source,
            (None, Default::AnyTag) => constants.any_tag,
            (None, Default::Zero | Default::Required) => 0,
        };
    }
    Ok(values)
}

/// One message, or nothing where the peer is `PROC_NULL`: then the argument is not even looked at.
fn part(
    loans: &mut Loans<'_>,
    py: Python<'_>,
    param: &Param,
    slot: Option<&Bound<'_, PyAny>>,
    peer: i32,
) -> PyResult<Option<Part>> {
    if peer == loans.mpi4py.mpi().constants().proc_null {
        return nothing(py, param.name, dlpack_core::DType::U8).map(|view| Some(Part::whole(view)));
    }
    let intent = match param.takes {
        Takes::Received => Intent::Receive,
        _ => Intent::Send,
    };
    let none = py.None();
    let msg = slot.unwrap_or(none.bind(py));
    match message::simple(loans, param.name, msg, intent, Use::Move, 0)? {
        Message::Ours(Arg::Part(part)) => Ok(Some(part)),
        _ => Ok(None),
    }
}

/// `Send` and its modes.
///
/// # Errors
/// What the argument or MPI has to say.
pub fn send<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    mode: SendMode,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let [dest, tag] = ints(mpi4py, params, slots)?;
    let mut loans = Loans::new(mpi4py);
    let Some(part) = part(&mut loans, py, &params[0], slots[0].as_deref(), dest)? else {
        return Ok(Outcome::Raw);
    };
    loans.order.wait(py)?;
    // SAFETY:
    // - `loans` keeps the tensor's memory.
    let send = || unsafe { tensor_comm::send(&comm, mode, &part, dest, tag) };
    interrupt::wait(py, send).map_err(|error| errors::operation(py, error))?;
    Ok(Outcome::Done)
}

/// `Recv`.
///
/// # Errors
/// What the argument, MPI or a framework has to say.
pub fn recv<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let [source, tag] = ints(mpi4py, params, slots)?;
    let status = Shared(mpi4py.status(slots[3].as_deref())?);
    let mut loans = Loans::new(mpi4py);
    let Some(part) = part(&mut loans, py, &params[0], slots[0].as_deref(), source)? else {
        return Ok(Outcome::Raw);
    };
    loans.order.wait(py)?;
    // SAFETY:
    // - `loans` keeps the tensor's memory.
    let recv = || unsafe { tensor_comm::recv(&comm, &part, source, tag, status.get()) };
    let done = interrupt::wait(py, recv);
    let told = loans.wrote(py);
    done.map_err(|error| errors::operation(py, error))?;
    told?;
    Ok(Outcome::Done)
}

/// `Sendrecv`.
///
/// # Errors
/// As for [`recv`].
pub fn sendrecv<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Outcome> {
    let [dest, sendtag, source, recvtag] = ints(mpi4py, params, slots)?;
    let status = Shared(mpi4py.status(slots[6].as_deref())?);
    let mut loans = Loans::new(mpi4py);
    let send = part(&mut loans, py, &params[0], slots[0].as_deref(), dest)?;
    let recv = part(&mut loans, py, &params[3], slots[3].as_deref(), source)?;
    let (Some(send), Some(recv)) = (send, recv) else {
        return Ok(Outcome::Raw);
    };
    loans.order.wait(py)?;
    // SAFETY:
    // - `loans` keeps the tensors' memory.
    let done = interrupt::wait(py, || unsafe {
        tensor_comm::sendrecv(
            &comm,
            &send,
            dest,
            sendtag,
            &recv,
            source,
            recvtag,
            status.get(),
        )
    });
    let told = loans.wrote(py);
    done.map_err(|error| errors::operation(py, error))?;
    told?;
    Ok(Outcome::Done)
}

/// Begins a `Send`, without a request of MPI's.
///
/// # Errors
/// What the argument or MPI has to say; `TypeError` where the caller means raw memory.
pub fn begin_send<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Pending> {
    let [dest, tag] = ints(mpi4py, params, slots)?;
    let mut loans = Loans::new(mpi4py);
    let part = part(&mut loans, py, &params[0], slots[0].as_deref(), dest)?.ok_or_else(raw)?;
    loans.order.wait(py)?;
    let short = is_short(&part);
    let keep: Box<dyn Keep> = Box::new(loans.into_borrowed());
    // SAFETY:
    // - `keep` keeps the tensor's memory.
    py.detach(|| unsafe { tensor_comm::begin_send(&comm, &part, dest, tag, keep) })
        .map(|handle| Pending::new(handle, None).short(short))
        .map_err(|error| errors::operation(py, error))
}

/// Begins a `Recv`, without a request of MPI's.
///
/// # Errors
/// As for [`begin_send`].
pub fn begin_recv<'py>(
    py: Python<'py>,
    mpi4py: &Mpi4py,
    params: &[Param],
    comm: Comm,
    slots: &Slots<'_, 'py>,
) -> PyResult<Pending> {
    let [source, tag] = ints(mpi4py, params, slots)?;
    let mut loans = Loans::new(mpi4py);
    let part = part(&mut loans, py, &params[0], slots[0].as_deref(), source)?.ok_or_else(raw)?;
    loans.order.wait(py)?;
    let short = is_short(&part);
    let keep: Box<dyn Keep> = Box::new(loans.into_borrowed());
    // SAFETY:
    // - `keep` keeps the tensor's memory.
    py.detach(|| unsafe { tensor_comm::begin_recv(&comm, &part, source, tag, keep) })
        .map(|(handle, envelope)| Pending::new(handle, Some(envelope)).short(short))
        .map_err(|error| errors::operation(py, error))
}

fn is_short(part: &Part) -> bool {
    part.count().saturating_mul(part.view().itemsize()) <= SHORT
}

fn raw() -> PyErr {
    PyTypeError::new_err("buf: raw memory is not taken here, give a tensor")
}
