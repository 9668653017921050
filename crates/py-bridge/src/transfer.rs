//! Requests of MPI's own for operations that mpi4py starts on memory that we lend: what the request
//! object of the caller holds on to, until it is completed, freed or dropped.
//!
//! mpi4py releases the lent buffers inside the call that completes a request, and there results settle
//! (borrow.rs). What is left for here is a request that ends in another way.

use std::sync::{Mutex, PoisonError};

use mpi_runtime::{Mpi, Request};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::Capacity;

use crate::borrow::Borrowed;
use crate::framework::Intent;
use crate::loan::{Held, Loan};
use crate::memory::Given;
use crate::mpi4py::{Handle, Mpi4py};
use crate::order::StreamOrder;
use crate::orphans::{self, Orphan};
use crate::spans::{self, Span};
use crate::{receipt, registry};

/// Buffers lent to one operation, and objects that mpi4py took as they are.
#[derive(Default)]
pub struct Lent {
    /// Ours.
    pub buffers: SmallVec<[Py<Borrowed>; 2]>,
    /// Theirs.
    pub objects: SmallVec<[Py<PyAny>; 2]>,
    /// Of a message that is received: what there is room for.
    pub room: Option<Capacity>,
    /// Whether the status of its request may be of something else.
    pub unsure: bool,
    /// Of an operation that starts again and again: whether elements are brought into another form each time.
    pub staged: bool,
    /// The bytes that each side reaches whose elements could be copied.
    pub spans: SmallVec<[Vec<Span>; 2]>,
    /// The addresses that MPI is given of the sides of a movement that is divided among ranks.
    pub addresses: SmallVec<[usize; 2]>,
    /// Tensors on which kernels work: an operation that is started waits for them each time.
    pub again: Vec<(Py<PyAny>, Intent)>,
    /// Memory that nothing is left to do with.
    pub loans: Mutex<SmallVec<[Held; 1]>>,
}

impl Lent {
    /// Lends a buffer to a method of mpi4py's until the operation is over.
    ///
    /// # Errors
    /// What Python raised.
    pub fn lend<'py>(&mut self, py: Python<'py>, buffer: Borrowed) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Bound::new(py, buffer)?;
        self.buffers.push(buffer.clone().unbind());
        Ok(buffer.into_any())
    }

    /// How the send side is to be given to MPI, where it cannot be as it was.
    pub fn apart(&self, mpi: &Mpi) -> Option<Given> {
        if matches!(&self.spans[..], [one, other] if spans::meet(one, other)) {
            return Some(Given::Copied);
        }
        let alike = matches!(self.addresses[..], [one, other] if one == other);
        (alike && tensor_comm::takes_one_address_for_in_place(mpi)).then_some(Given::Shifted)
    }

    /// Waits until the work that is queued on the tensors by now is done.
    ///
    /// # Errors
    /// What an export or a device has to say.
    pub fn wait_again(&self, py: Python<'_>) -> PyResult<()> {
        let mut order = StreamOrder::default();
        let lend = |(tensor, intent): &(Py<PyAny>, Intent)| {
            registry::lend("tensor", tensor.bind(py), *intent, &mut order)
        };
        let held: Vec<Loan> = self.again.iter().map(lend).collect::<PyResult<_>>()?;
        order.wait(py)?;
        drop(held);
        Ok(())
    }

    /// What went wrong when mpi4py let go of the buffers.
    fn failure(&self) -> Option<PyErr> {
        self.buffers
            .iter()
            .find_map(|buffer| buffer.get().failure())
    }

    /// The operation is over: settles what nobody holds.
    ///
    /// # Errors
    /// The first of what a device or a framework has to say.
    pub fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.buffers
            .iter()
            .map(|buffer| buffer.get().end(py))
            .fold(Ok(()), PyResult::and)
    }
}

/// What the request object of an operation keeps.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Track {
    mpi: &'static Mpi,
    /// Where the handle lies in the request object, which owns this one.
    handle: Handle,
    lent: Lent,
}

// SAFETY:
// - The address is only used by methods of the request object and when it goes, while its memory is there.
unsafe impl Send for Track {}
// SAFETY:
// - As above; all of it runs attached to the interpreter.
unsafe impl Sync for Track {}

impl Track {
    fn request(&self) -> Request {
        // SAFETY:
        // - The request object is alive: it owns this one.
        unsafe { Request::from_raw(self.handle.get()) }
    }

    /// Hands everything to those who wait for nobody.
    fn abandon(&self, py: Python<'_>, owned: bool) {
        let orphan = Orphan {
            mpi: self.mpi,
            request: self.request(),
            owned,
            cargo: self
                .lent
                .buffers
                .iter()
                .filter_map(|buffer| buffer.get().take_cargo())
                .collect(),
            objects: self.lent.objects.iter().map(|o| o.clone_ref(py)).collect(),
            loans: std::mem::take(
                &mut *self
                    .lent
                    .loans
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
            ),
        };
        match tensor_comm::attend(self.mpi) {
            Ok(()) => orphans::adopt(orphan),
            Err(_) => orphan.leak(),
        }
    }
}

#[pymethods]
impl Track {
    /// Raises what was not right about the message that was received: by its status, or because it could not be
    /// brought home.
    fn judge(&self, status: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.lent.room {
            Some(room) if !self.lent.unsure => receipt::judge(self.mpi, room, status),
            _ => Ok(()),
        }?;
        self.lent.failure().map_or(Ok(()), Err)
    }

    /// Says which room was too small for which message, in a note on `error` where that is the error.
    fn explain(&self, error: &Bound<'_, PyAny>, status: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.lent.room {
            Some(room) => {
                let status = (!self.lent.unsure).then_some(status);
                receipt::explain(self.mpi, room, error, status)
            }
            None => Ok(()),
        }
    }

    /// MPI says that the operation is complete, though the request is not: settles.
    fn arrived(&self, py: Python<'_>) -> PyResult<()> {
        self.lent
            .buffers
            .iter()
            .map(|buffer| buffer.get().arrived(py))
            .fold(Ok(()), PyResult::and)
    }

    /// The operation is about to start: waits for what is queued on its tensors.
    fn starts(&self, py: Python<'_>) -> PyResult<()> {
        self.lent.wait_again(py)
    }

    /// The memory was written, and will be again.
    fn wrote(&self, py: Python<'_>) -> PyResult<()> {
        self.lent
            .buffers
            .iter()
            .map(|buffer| buffer.get().tell(py))
            .fold(Ok(()), PyResult::and)
    }

    /// Lets the operation go on without its request object; `False` when there is nothing under way.
    fn free(&self, py: Python<'_>) -> bool {
        let null = self.mpi.request_null();
        if self.request() == null {
            return false;
        }
        self.abandon(py, true);
        self.handle.set(null.raw());
        true
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        let attached = Python::try_attach(|py| {
            if self.request() != self.mpi.request_null() {
                self.abandon(py, false);
            } else if let Err(error) = self.lent.end(py) {
                // Where mpi4py did not hold the buffers itself, this is their end.
                error.write_unraisable(py, None);
            }
            if let Some(error) = self.lent.failure() {
                // Completed by a method that does not ask.
                error.write_unraisable(py, None);
            }
        });
        if attached.is_none() {
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

/// The caller's request object for an operation that mpi4py has started: ours where memory of the caller
/// is under way, mpi4py's own where none is.
///
/// # Errors
/// What Python raised.
pub fn follow<'py>(
    mpi4py: &Mpi4py,
    request: Bound<'py, PyAny>,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    if lent.buffers.is_empty() && lent.objects.is_empty() {
        return Ok(request);
    }
    for buffer in &lent.buffers {
        if buffer.get().is_exported() {
            // A receive's request asks (`judge`).
            buffer.get().end_on_release(lent.room.is_some());
        }
    }
    let py = request.py();
    let ours = class(mpi4py, &lent)?.bind(py).call1((&request,))?;
    keep(mpi4py, &ours, lent)?;
    Ok(ours)
}

/// The caller's request object for an operation that can be started again: its memory is held until the
/// request is freed.
///
/// # Errors
/// What Python raised.
pub fn persist<'py>(
    mpi4py: &Mpi4py,
    request: Bound<'py, PyAny>,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = request.py();
    let ours = mpi4py.classes()?.persistent.bind(py).call1((&request,))?;
    keep(mpi4py, &ours, lent)?;
    Ok(ours)
}

/// Memory that a window or file works on until it says that it is done.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Hold {
    lent: Lent,
}

impl Hold {
    /// Holds what was lent.
    pub fn new(lent: Lent) -> Hold {
        Hold { lent }
    }
}

#[pymethods]
impl Hold {
    /// The operation is over.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.lent.end(py)
    }
}

/// The caller's request object for an operation that was started here, on memory that nothing is left
/// to do with.
///
/// # Errors
/// What Python raised.
pub fn hold<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    request: Request,
    loan: Held,
    room: Option<Capacity>,
) -> PyResult<Bound<'py, PyAny>> {
    let lent = Lent {
        loans: Mutex::new(SmallVec::from_iter([loan])),
        room,
        ..Lent::default()
    };
    let ours = class(mpi4py, &lent)?.bind(py).call0()?;
    mpi4py.request_handle(&ours)?.set(request.raw());
    keep(mpi4py, &ours, lent)?;
    Ok(ours)
}

fn class<'a>(mpi4py: &'a Mpi4py, lent: &Lent) -> PyResult<&'a Py<PyAny>> {
    let classes = mpi4py.classes()?;
    Ok(match lent.room {
        Some(_) => &classes.receipt,
        None => &classes.transfer,
    })
}

fn keep(mpi4py: &Mpi4py, request: &Bound<'_, PyAny>, lent: Lent) -> PyResult<()> {
    let py = request.py();
    orphans::sweep(py, orphans::GLANCE);
    let track = Track {
        mpi: mpi4py.mpi(),
        handle: mpi4py.request_handle(request)?,
        lent,
    };
    request.setattr(pyo3::intern!(py, "_track"), Bound::new(py, track)?)
}
