//! Requests of MPI's own for operations that mpi4py starts on memory that we lend: what the request
//! object of the caller holds on to, until it is completed, freed or dropped.
//!
//! mpi4py releases the lent buffers inside the call that completes a request, and there results settle
//! (borrow.rs). What is left for here is a request that ends in another way.

use std::sync::{Mutex, PoisonError};

use mpi_runtime::{Mpi, Request, StatusArray, StatusBuf, StatusPtr};
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;
use tensor_comm::{Arrived, Capacity};

use crate::borrow::Borrowed;
use crate::framework::Intent;
use crate::loan::{Held, Loan};
use crate::memory::Given;
use crate::mpi4py::{self, Handle, Mpi4py};
use crate::order::StreamOrder;
use crate::orphans::{self, Orphan};
use crate::p2p::Shared;
use crate::spans::{self, Span};
use crate::{errors, interrupt, receipt, registry};

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

impl Track {
    /// Whether nothing is left to do when the request completes but to judge what came and to let go.
    fn is_plain(&self) -> bool {
        let lent = &self.lent;
        let nothing = lent.buffers.is_empty() && lent.objects.is_empty() && lent.again.is_empty();
        nothing && !lent.unsure
    }

    /// What became of a message, by what MPI says and by the status that it has filled in.
    ///
    /// # Safety
    /// - `status` is a status of this library that MPI has filled in, or that is as it was made.
    unsafe fn outcome(
        &self,
        done: Result<(), mpi_runtime::Error>,
        status: StatusPtr,
    ) -> tensor_comm::Result<()> {
        let (mpi, Some(room)) = (self.mpi, self.lent.room) else {
            return done.map_err(tensor_comm::Error::from);
        };
        // SAFETY:
        // - the caller's promise.
        let came = unsafe { Arrived::of(mpi, status) }?;
        match done {
            Err(error) => Err(room.explain(mpi, error.into(), came)),
            Ok(()) => match room.judge(mpi, came) {
                // Of a receive that was cancelled the length is nothing that came.
                // SAFETY:
                // - as above.
                Err(_) if unsafe { mpi.test_cancelled(status) }? => Ok(()),
                judged => judged,
            },
        }
    }
}

/// Waits for the requests of messages, where each of these is one that nothing is left to do with; `false` where another
/// way must be taken, and nothing was done. After an error `statuses` has one for each request.
///
/// # Errors
/// `mpi4py.MPI.Exception` of what MPI reports, or what was not right about a message.
pub fn wait_all(requests: &Bound<'_, PyList>, statuses: &Bound<'_, PyList>) -> PyResult<bool> {
    let (py, mpi4py) = (requests.py(), mpi4py::bound()?);
    let (mpi, classes) = (mpi4py.mpi(), mpi4py.classes()?);
    let mut tracks: SmallVec<[Bound<'_, Track>; 16]> = SmallVec::new();
    for request in requests {
        let ty = request.get_type();
        if !ty.is(&classes.receipt) && !ty.is(&classes.transfer) {
            return Ok(false);
        }
        match request.getattr_opt(pyo3::intern!(py, "_track"))? {
            Some(track) => tracks.push(track.cast_into::<Track>()?),
            None => return Ok(false),
        }
        if !tracks.last().is_some_and(|track| track.get().is_plain()) {
            return Ok(false);
        }
    }
    let mut handles: SmallVec<[Request; 16]> = tracks.iter().map(|t| t.get().request()).collect();
    let mut native = StatusArray::new(mpi, handles.len());
    let all = Shared::new(native.as_ptr());
    // SAFETY:
    // - mpi4py's own `Waitall` may complete them, too; there is a status for each.
    let done = interrupt::wait(py, || unsafe { mpi.waitall(&mut handles, all.get()) });
    for (track, handle) in tracks.iter().zip(&handles) {
        track.get().handle.set(handle.raw());
    }
    if let Err(error) = done {
        let class = mpi4py.module(py).getattr("Status")?;
        for at in 0..handles.len() {
            let status = class.call0()?;
            if let Some(from) = native.get(at) {
                let into = mpi4py.status(Some(&status))?;
                // SAFETY:
                // - both are statuses of this library, of as many bytes, and apart.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        from.0.cast::<u8>(),
                        into.0.cast(),
                        mpi.status_bytes(),
                    );
                }
            }
            statuses.append(status)?;
        }
        return Err(match error.mpi() {
            Some(inner) => mpi4py.exception(py, inner.code),
            None => errors::mpi(py, &error),
        });
    }
    for (at, track) in tracks.iter().enumerate() {
        if let Some(status) = native.get(at) {
            // SAFETY:
            // - MPI has filled it in.
            unsafe { track.get().outcome(Ok(()), status) }
                .map_err(|error| errors::operation(py, error))?;
        }
    }
    Ok(true)
}

#[pymethods]
impl Track {
    /// Waits for the message and judges it, where nothing else is left to do; `False` where mpi4py's method must do it.
    #[pyo3(signature = (status=None, /))]
    fn wait(&self, py: Python<'_>, status: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        if !self.is_plain() {
            return Ok(false);
        }
        let (given, mut own) = (mpi4py::bound()?.status(status)?, StatusBuf::new());
        let status = match given.is_ignore() {
            true => own.as_ptr(),
            false => given,
        };
        let (mut request, shared) = (self.request(), Shared::new(status));
        // SAFETY:
        // - the request object has this handle, whose methods complete it; the status is the caller's or our own.
        let done = interrupt::wait(py, || unsafe { self.mpi.wait(&mut request, shared.get()) });
        self.handle.set(request.raw());
        // SAFETY:
        // - MPI has filled it in.
        unsafe { self.outcome(done, status) }
            .map_err(|error| errors::operation(py, error))
            .map(|()| true)
    }

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
    let classes = mpi4py.classes()?;
    let tells = lent.buffers.iter().any(|buffer| buffer.get().tells());
    let class = match lent.room.is_some() || tells || !lent.again.is_empty() {
        true => &classes.persistent,
        false => &classes.kept,
    };
    let ours = class.bind(py).call1((&request,))?;
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
    loans: SmallVec<[Held; 1]>,
    room: Option<Capacity>,
) -> PyResult<Bound<'py, PyAny>> {
    let lent = Lent {
        loans: Mutex::new(loans),
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
