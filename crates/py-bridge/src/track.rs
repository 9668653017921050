//! What the request object of an operation keeps, until it is completed, freed or dropped: one that goes before its operation
//! leaves what MPI still uses to a list (orphans.rs).

use std::sync::{Mutex, PoisonError};

use mpi_runtime::{Mpi, Request, StatusPtr};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use tensor_comm::{Arrived, Capacity, Keeps};

use crate::borrow::Borrowed;
use crate::loan::Held;
use crate::mpi4py::Handle;
use crate::orphans::{self, Orphan};
use crate::p2p::Shared;
use crate::transfer::Lent;
use crate::{errors, interrupt, receipt};

/// Memory that is held, and with which nothing is left to do at the end.
#[derive(Default)]
pub struct Holds {
    /// Objects that have it.
    pub objects: SmallVec<[Py<PyAny>; 2]>,
    /// Tensors that were lent.
    pub loans: Vec<Held>,
    /// What else MPI uses.
    pub keeps: Keeps,
}

impl Holds {
    /// That of one tensor.
    pub fn loan(held: Held) -> Holds {
        Holds {
            loans: vec![held],
            ..Holds::default()
        }
    }

    /// That of an object.
    pub fn object(object: Py<PyAny>) -> Holds {
        Holds {
            objects: smallvec![object],
            ..Holds::default()
        }
    }
}

/// What the request object of an operation keeps.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Track {
    mpi: &'static Mpi,
    /// Where the handle lies in the request object, which owns this one.
    handle: Handle,
    /// Of a message that is received: what there is room for.
    room: Option<Capacity>,
    /// Whether the status of the request is that of this message.
    sure: bool,
    holds: Mutex<Holds>,
    /// What was lent to mpi4py, where it carries the operation out.
    lent: Option<Box<Lent>>,
}

// SAFETY:
// - The address is only used by methods of the request object and when it goes, while its memory is there.
unsafe impl Send for Track {}
// SAFETY:
// - As above; all of it runs attached to the interpreter.
unsafe impl Sync for Track {}

impl Track {
    /// Of an operation on memory that is held and no more; the handle is that of the object that this one goes to.
    pub fn holding(
        mpi: &'static Mpi,
        handle: Handle,
        holds: Holds,
        room: Option<Capacity>,
        sure: bool,
    ) -> Track {
        Track {
            mpi,
            handle,
            room,
            sure,
            holds: Mutex::new(holds),
            lent: None,
        }
    }

    /// Of an operation of mpi4py's.
    pub fn lending(mpi: &'static Mpi, handle: Handle, mut lent: Lent) -> Track {
        let keeps = std::mem::take(&mut lent.keeps);
        let besides = Holds {
            keeps,
            ..Holds::default()
        };
        Track {
            mpi,
            handle,
            room: lent.room,
            sure: !lent.unsure,
            holds: Mutex::new(besides),
            lent: Some(Box::new(lent)),
        }
    }

    /// MPI's request, as the object has it.
    pub fn request(&self) -> Request {
        // SAFETY:
        // - The request object is alive: it owns this one.
        unsafe { Request::from_raw(self.handle.get()) }
    }

    /// Hands everything to those who wait for nobody.
    fn abandon(&self, py: Python<'_>, owned: bool) {
        let held = self.holds.lock();
        let holds = std::mem::take(&mut *held.unwrap_or_else(PoisonError::into_inner));
        let mut orphan = Orphan {
            mpi: self.mpi,
            request: self.request(),
            owned,
            cargo: SmallVec::new(),
            holds,
        };
        if let Some(lent) = &self.lent {
            let buffers = lent.buffers.iter();
            orphan.cargo = buffers.filter_map(|b| b.get().take_cargo()).collect();
            let objects = lent.objects.iter().map(|object| object.clone_ref(py));
            orphan.holds.objects.extend(objects);
        }
        match tensor_comm::attend(self.mpi) {
            Ok(()) => orphans::adopt(orphan),
            Err(_) => orphan.leak(),
        }
    }
}

impl Track {
    /// Whether nothing is left to do when the request completes but to judge what came and to let go.
    pub fn is_plain(&self) -> bool {
        self.lent.is_none()
    }

    /// Whether the status of the request is that of the message.
    pub fn is_sure(&self) -> bool {
        self.sure
    }

    /// Whether nothing is to be done when it starts.
    pub fn starts_plainly(&self) -> bool {
        self.lent.as_ref().is_none_or(|lent| lent.starts_plainly())
    }

    /// The object has this request from now on.
    pub fn set_request(&self, request: Request) {
        self.handle.set(request.raw());
    }

    /// What went wrong when mpi4py let go of the buffers.
    pub fn failure(&self) -> Option<PyErr> {
        self.lent.as_ref().and_then(|lent| lent.failure())
    }

    fn each(&self, work: impl FnMut(&Borrowed) -> PyResult<()>) -> PyResult<()> {
        let buffers = self.lent.iter().flat_map(|lent| &lent.buffers);
        buffers
            .map(|buffer| buffer.get())
            .map(work)
            .fold(Ok(()), PyResult::and)
    }

    /// Waits for the message and judges it, where nothing else is left to do ([`is_plain`](Self::is_plain)).
    ///
    /// # Errors
    /// What MPI reports, and what was not right about the message.
    ///
    /// # Safety
    /// - `status` is a writable status of this library.
    #[inline]
    pub unsafe fn wait(&self, py: Python<'_>, status: StatusPtr) -> PyResult<()> {
        let (mut request, shared) = (self.request(), Shared::new(status));
        // SAFETY:
        // - the request object has this handle, whose methods complete it; the status is writable.
        let done = interrupt::wait(py, || unsafe { self.mpi.wait(&mut request, shared.get()) });
        self.handle.set(request.raw());
        // SAFETY:
        // - MPI has filled it in.
        unsafe { self.outcome(done, status) }.map_err(|error| errors::operation(py, error))
    }

    /// Asks whether the message has come, and judges it then, as [`wait`](Self::wait).
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    ///
    /// # Safety
    /// - As for [`wait`](Self::wait).
    #[inline]
    pub unsafe fn test(&self, py: Python<'_>, status: StatusPtr) -> PyResult<bool> {
        let (mut request, shared) = (self.request(), Shared::new(status));
        // SAFETY:
        // - as above.
        let done = py.detach(|| unsafe { self.mpi.test(&mut request, shared.get()) });
        self.handle.set(request.raw());
        if let Ok(false) = done {
            return Ok(false);
        }
        // SAFETY:
        // - MPI has filled it in.
        unsafe { self.outcome(done.map(|_| ()), status) }
            .map_err(|error| errors::operation(py, error))
            .map(|()| true)
    }

    /// What became of a message, by what MPI says and by the status that it has filled in.
    ///
    /// # Safety
    /// - `status` is a status of this library that MPI has filled in, or that is as it was made.
    pub unsafe fn outcome(
        &self,
        done: Result<(), mpi_runtime::Error>,
        status: StatusPtr,
    ) -> tensor_comm::Result<()> {
        let (mpi, Some(room)) = (self.mpi, self.room) else {
            return done.map_err(tensor_comm::Error::from);
        };
        if !self.sure {
            return done.map_err(|error| room.explain(mpi, error.into(), Arrived::unknown()));
        }
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

#[pymethods]
impl Track {
    /// Raises what was not right about the message that was received: by its status, or because it could not be
    /// brought home.
    fn judge(&self, status: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.room {
            Some(room) if self.sure => receipt::judge(self.mpi, room, status),
            _ => Ok(()),
        }?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Says which room was too small for which message, in a note on `error` where that is the error.
    fn explain(&self, error: &Bound<'_, PyAny>, status: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.room {
            Some(room) => {
                let status = self.sure.then_some(status);
                receipt::explain(self.mpi, room, error, status)
            }
            None => Ok(()),
        }
    }

    /// MPI says that the operation is complete, though the request is not: settles.
    fn arrived(&self, py: Python<'_>) -> PyResult<()> {
        self.each(|buffer| buffer.arrived(py))
    }

    /// The operation is about to start: waits for what is queued on its tensors.
    fn starts(&self, py: Python<'_>) -> PyResult<()> {
        self.lent
            .as_ref()
            .map_or(Ok(()), |lent| lent.wait_again(py))
    }

    /// The memory was written, and will be again.
    fn wrote(&self, py: Python<'_>) -> PyResult<()> {
        self.each(|buffer| buffer.tell(py))
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
        if self.lent.is_none() && self.request() == self.mpi.request_null() {
            // CPython drops it attached: what is held is let go.
            return;
        }
        let attached = Python::try_attach(|py| {
            if self.request() != self.mpi.request_null() {
                self.abandon(py, false);
            } else if let Some(Err(error)) = self.lent.as_ref().map(|lent| lent.end(py)) {
                // Where mpi4py did not hold the buffers itself, this is their end.
                error.write_unraisable(py, None);
            }
            if let Some(error) = self.failure() {
                // Completed by a method that does not ask.
                error.write_unraisable(py, None);
            }
        });
        if attached.is_none() {
            std::mem::forget((self.lent.take(), std::mem::take(&mut self.holds)));
        }
    }
}
