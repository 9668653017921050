//! The short way of messages of plain arrays.

use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::lane::{self, Carried, Replacing};
use tensor_comm::{Comm, Result};

use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::mpi4py::Mpi4py;
use crate::p2p::{self, Shared};
use crate::params::Slots;
use crate::plain;
use crate::table::{Body, Row};

/// `Send` in its modes, `Recv` and `Sendrecv`.
#[inline]
pub fn attempt(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    row: &Row,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<Result<()>> {
    let mpi = mpi4py.mpi();
    let null = mpi.constants().proc_null;
    let comm = Comm::new(mpi, comm).ok()?;
    let carried = |slot: usize, intent| {
        let (flat, held) = plain::flat(mpi4py, slots[slot].as_ref()?, intent, 1)?;
        let carried = match intent {
            Intent::Send => Carried::sent(mpi, flat),
            Intent::Receive => Carried::received(mpi, flat),
        };
        Some((carried?, held))
    };
    Some(match row.body {
        Body::Send(mode) => {
            let [dest, tag] = p2p::ints(mpi4py, row.params, slots).ok()?;
            let (sent, _held) = carried(0, Intent::Send).filter(|_| dest != null)?;
            // SAFETY:
            // - the array is held.
            interrupt::wait(py, || unsafe { lane::send(comm, mode, sent, dest, tag) })
        }
        Body::Recv => {
            let [source, tag] = p2p::ints(mpi4py, row.params, slots).ok()?;
            let (room, _held) = carried(0, Intent::Receive).filter(|_| source != null)?;
            let status = Shared::new(mpi4py.status(slots[3].as_deref()).ok()?);
            // SAFETY:
            // - as above; the caller holds the status.
            interrupt::wait(py, || unsafe {
                lane::recv(comm, room, source, tag, status.get())
            })
        }
        Body::Sendrecv => {
            let [dest, sendtag, source, recvtag] = p2p::ints(mpi4py, row.params, slots).ok()?;
            let apart = dest != null && source != null;
            let (sent, _held) = carried(0, Intent::Send).filter(|_| apart)?;
            let (room, _held_too) =
                carried(3, Intent::Receive).filter(|(room, _)| room.is_apart_from(&sent))?;
            let status = Shared::new(mpi4py.status(slots[6].as_deref()).ok()?);
            let (sent, room) = ((sent, dest, sendtag), (room, source, recvtag));
            // SAFETY:
            // - as above; the two are apart.
            interrupt::wait(py, || unsafe {
                lane::sendrecv(comm, sent, room, status.get())
            })
        }
        _ => return None,
    })
}

/// `Sendrecv_replace`.
#[inline]
pub fn replace(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    row: &Row,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<Result<()>> {
    let mpi = mpi4py.mpi();
    let comm = Comm::new(mpi, comm).ok()?;
    let [dest, sendtag, source, recvtag] = p2p::ints(mpi4py, row.params, slots).ok()?;
    let null = mpi.constants().proc_null;
    if dest == null || source == null {
        return None;
    }
    let (flat, _held) = plain::flat(mpi4py, slots[0].as_ref()?, Intent::Receive, 1)?;
    let status = Shared::new(mpi4py.status(slots[5].as_deref()).ok()?);
    // SAFETY:
    // - the array is held.
    let mut replacing = unsafe { Replacing::new(mpi, flat) }?;
    // SAFETY:
    // - the caller holds the status.
    Some(interrupt::wait(py, || unsafe {
        replacing.run(comm, (dest, sendtag), (source, recvtag), status.get())
    }))
}

/// `Mprobe`: where the length of a message must be known before it is received, the object keeps it.
#[inline]
pub fn probe(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    row: &Row,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let mpi = mpi4py.mpi();
    let comm = Comm::new(mpi, comm).ok()?;
    let [source, tag] = p2p::ints(mpi4py, row.params, slots).ok()?;
    let status = Shared::new(mpi4py.status(slots[2].as_deref()).ok()?);
    let class = &mpi4py.classes().ok()?.message;
    if source == mpi.constants().proc_null {
        return None;
    }
    // SAFETY:
    // - the caller holds the status.
    let probed = interrupt::wait(py, || unsafe {
        lane::probe(comm, source, tag, status.get())
    });
    let made = || {
        let (message, bytes) = probed.map_err(|error| errors::operation(py, error))?;
        let made = class.bind(py).call0()?;
        mpi4py.message_handle(&made)?.set(message.raw());
        if let Some(bytes) = bytes {
            made.setattr(intern!(py, "_bytes"), bytes)?;
        }
        Ok(made.unbind())
    };
    Some(made())
}

/// What mpi4py's own `Mprobe` returned, as an object of ours.
///
/// # Errors
/// What Python raised.
pub fn adopt<'py>(mpi4py: &Mpi4py, message: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let class = mpi4py.classes()?.message.bind(message.py());
    class.call1((message,))
}

/// `Message.Recv`.
#[inline]
pub fn matched(
    mpi4py: &'static Mpi4py,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> Option<Result<()>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    tensor_comm::attend(mpi).ok()?;
    let handle = mpi4py.message_handle(slf).ok()?;
    let (flat, _held) = plain::flat(mpi4py, slots[0].as_ref()?, Intent::Receive, 1)?;
    let room = Carried::received(mpi, flat)?;
    let status = Shared::new(mpi4py.status(slots[1].as_deref()).ok()?);
    if tensor_comm::overruns(mpi) {
        let bytes = slf.getattr_opt(intern!(py, "_bytes")).ok()??;
        if usize::try_from(plain::int(&bytes)?).ok()? > flat.bytes() {
            return None;
        }
    }
    // SAFETY:
    // - mpi4py has it from MPI, and marks in the object that it was received.
    let mut message = unsafe { mpi_runtime::Message::from_raw(handle.get()) };
    if message == mpi.message_null() || message == mpi.message_no_proc() {
        return None;
    }
    // SAFETY:
    // - the array is held, and the status by the caller; where it must, the message fits.
    let done = interrupt::wait(py, || unsafe {
        lane::matched(mpi, room, &mut message, status.get())
    });
    handle.set(message.raw());
    Some(done)
}
