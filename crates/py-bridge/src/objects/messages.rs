//! Messages of objects: `recv` of a pickle in which no tensor lies, and `sendrecv` of what is made of builtins alone. mpi4py's
//! messages, so the peer need not come through here.

use mpi_runtime::{Basic, Datatype, Message, Mpi, Request, StatusBuf, StatusPtr};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use tensor_comm::{Comm, lane};

use super::Asked;
use super::pickled::is_stock;
use crate::p2p::Shared;
use crate::params::Takes;
use crate::pickles::is_builtin;
use crate::{errors, interrupt};

pub fn recv<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let Some(incoming) = Incoming::of(asked, [0, 1, 2]) else {
        return asked.otherwise();
    };
    let mpi = asked.mpi4py.mpi();
    let comm =
        Comm::new(mpi, incoming.comm).map_err(|error| errors::operation(asked.py(), error))?;
    let mut own = StatusBuf::new();
    let status = incoming.status(asked, &mut own)?;
    // SAFETY:
    // - the status is the caller's, who has it during the call, or our own.
    let found = interrupt::wait(asked.py(), || unsafe {
        mpi.mprobe(incoming.source, incoming.tag, comm.raw(), status.get())
    });
    let message = found.map_err(|error| errors::mpi(asked.py(), &error))?;
    finish(asked, message, &status, None)
}

pub fn sendrecv<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let obj = asked.required(0)?;
    let null = asked.mpi4py.mpi().constants().proc_null;
    let (dest, sendtag) = (number(asked, 1, null), number(asked, 2, 0));
    let incoming = Incoming::of(asked, [3, 4, 5]);
    let (Some(incoming), Some(dest), Some(sendtag), true) = (
        incoming,
        dest.filter(|dest| *dest != null),
        sendtag,
        is_builtin(obj),
    ) else {
        return asked.otherwise();
    };
    let (py, mpi) = (asked.py(), asked.mpi4py.mpi());
    let comm = Comm::new(mpi, incoming.comm).map_err(|error| errors::operation(py, error))?;
    let mut own = StatusBuf::new();
    let status = incoming.status(asked, &mut own)?;
    let pickle = asked.hooks.dump(obj)?;
    let (bytes, datatype) = (pickle.as_bytes(), byte(mpi));
    let begun = interrupt::wait(py, || {
        let (from, size) = (bytes.as_ptr(), bytes.len() as i64);
        // SAFETY:
        // - the pickle is held until the request has completed, or for ever; nobody writes it.
        let request = unsafe { mpi.isend(from, size, datatype, dest, sendtag, comm.raw()) }?;
        // SAFETY:
        // - the status is the caller's, who has it during the call, or our own.
        let found = unsafe { mpi.mprobe(incoming.source, incoming.tag, comm.raw(), status.get()) };
        Ok((request, found))
    });
    let failed = |error: mpi_runtime::Error| errors::mpi(py, &error);
    let (request, found) = begun.map_err(failed)?;
    let sent = Outgoing {
        mpi,
        request,
        pickle: Some(pickle.unbind()),
    };
    finish(asked, found.map_err(failed)?, &status, Some(sent))
}

/// A message to receive, where it is simple.
#[derive(Clone, Copy)]
struct Incoming {
    comm: mpi_runtime::Comm,
    source: i32,
    tag: i32,
}

impl Incoming {
    /// `at` has the places of room, source and tag.
    fn of(asked: &Asked<'_, '_>, [room, source, tag]: [usize; 3]) -> Option<Incoming> {
        let mpi = asked.mpi4py.mpi();
        let constants = mpi.constants();
        let source = number(asked, source, constants.any_source)?;
        let tag = number(asked, tag, constants.any_tag)?;
        let comm = asked.mpi4py.comm(asked.slf).ok()?;
        let simple = asked.slots[room].as_ref().is_none_or(|room| room.is_none())
            && source != constants.proc_null
            && comm != mpi.comm_null()
            && is_stock()
            && lane::is_open();
        simple.then_some(Incoming { comm, source, tag })
    }

    /// The caller's status, or room for one.
    fn status(self, asked: &Asked<'_, '_>, own: &mut StatusBuf) -> PyResult<Shared> {
        let given = asked
            .mpi4py
            .status(asked.given(|takes| takes == Takes::Status))?;
        Ok(Shared::new(match given.is_ignore() {
            true => own.as_ptr(),
            false => given,
        }))
    }
}

/// A pickle that MPI sends.
struct Outgoing {
    mpi: &'static Mpi,
    request: Request,
    pickle: Option<Py<PyBytes>>,
}

impl Outgoing {
    fn wait(&mut self) -> Result<(), mpi_runtime::Error> {
        // SAFETY:
        // - it was begun by the caller, and is completed here alone.
        unsafe { self.mpi.wait(&mut self.request, StatusPtr::ignore()) }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if self.request != self.mpi.request_null() {
            // What came first has failed, and the message is not to be waited for: MPI may read it for ever.
            std::mem::forget(self.pickle.take());
        }
    }
}

/// Receives a message that was matched, and waits for the one that was sent.
fn finish<'py>(
    asked: &Asked<'_, 'py>,
    mut message: Message,
    status: &Shared,
    mut sent: Option<Outgoing>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, mpi) = (asked.py(), asked.mpi4py.mpi());
    let failed = |error: mpi_runtime::Error| errors::mpi(py, &error);
    let mut wait = || sent.as_mut().map_or(Ok(()), Outgoing::wait);
    // SAFETY:
    // - MPI_Mprobe has just filled it.
    let size = unsafe { mpi.get_elements(status.get(), byte(mpi)) }.map_err(failed)?;
    let size = size.and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size < asked.hooks.whole) else {
        let class = asked.mpi4py.module(py).getattr(intern!(py, "Message"))?;
        let message = class.call_method1(intern!(py, "fromhandle"), (message.raw(),))?;
        let given = asked.given(|takes| takes == Takes::Status);
        let room = asked
            .hooks
            .recv_rest
            .bind(py)
            .call1((message, size, given))?;
        interrupt::wait(py, &mut wait).map_err(failed)?;
        return room.call_method0(intern!(py, "objects"))?.get_item(0);
    };
    let bytes = PyBytes::new_with(py, size, |room| {
        let received = interrupt::wait(py, || {
            let (room, size, status) = (room.as_mut_ptr(), size as i64, status.get());
            // SAFETY:
            // - the room is of as many bytes, and nobody else has it; the message was matched here. The status is the
            //   caller's, who has it during the call, or our caller's.
            let received = unsafe { mpi.mrecv(room, size, byte(mpi), &mut message, status) };
            // The message that was sent may never end where this one has failed.
            received.and_then(|()| wait())
        });
        received.map_err(failed)
    })?;
    match size {
        // A message without a pickle, as mpi4py has it.
        0 => Ok(py.None().into_bound(py)),
        _ => asked.hooks.load(&bytes),
    }
}

/// An integer, if it is one of Python's; its default where nothing was given. Python says what `None` is.
fn number(asked: &Asked<'_, '_>, at: usize, default: i32) -> Option<i32> {
    match &asked.slots[at] {
        Some(given) => given.cast_exact::<PyInt>().ok()?.extract().ok(),
        None => Some(default),
    }
}

fn byte(mpi: &Mpi) -> Datatype {
    mpi.datatype(Basic::Byte)
        .unwrap_or_else(|| mpi.datatype_null())
}
