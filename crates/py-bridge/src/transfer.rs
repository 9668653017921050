//! Requests of MPI's own for operations that mpi4py starts on memory that we lend: what the request
//! object of the caller holds on to, until it is completed, freed or dropped.
//!
//! mpi4py releases the lent buffers inside the call that completes a request, and there results settle
//! (borrow.rs). What is left for here is a request that ends in another way.

use std::sync::{Mutex, PoisonError};

use mpi_runtime::{Mpi, Request};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::Shaped;

use crate::borrow::Borrowed;
use crate::loan::Held;
use crate::mpi4py::{Handle, Mpi4py};
use crate::orphans::{self, Orphan};

/// Buffers lent to one operation, and objects that mpi4py took as they are.
#[derive(Default)]
pub struct Lent {
    /// Ours.
    pub buffers: SmallVec<[Py<Borrowed>; 2]>,
    /// Theirs.
    pub objects: SmallVec<[Py<PyAny>; 2]>,
    /// Datatypes of the call that starts the operation.
    pub shapes: Vec<Shaped>,
    /// Memory that nothing is left to do with.
    pub loans: Mutex<SmallVec<[Held; 1]>>,
}

impl Lent {
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
    /// MPI says that the operation is complete, though the request is not: settles.
    fn arrived(&self, py: Python<'_>) -> PyResult<()> {
        self.lent
            .buffers
            .iter()
            .map(|buffer| buffer.get().arrived(py))
            .fold(Ok(()), PyResult::and)
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
            buffer.get().end_on_release();
        }
    }
    let py = request.py();
    let ours = mpi4py.classes()?.transfer.bind(py).call1((&request,))?;
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
) -> PyResult<Bound<'py, PyAny>> {
    let ours = mpi4py.classes()?.transfer.bind(py).call0()?;
    mpi4py.request_handle(&ours)?.set(request.raw());
    let lent = Lent {
        loans: Mutex::new(SmallVec::from_iter([loan])),
        ..Lent::default()
    };
    keep(mpi4py, &ours, lent)?;
    Ok(ours)
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
