//! Requests of the non-blocking operations that dlmpi's engine carries: MPI's own generalized requests,
//! so that every way to complete a request in mpi4py works on them.
//!
//! Knows how an operation's end reaches MPI and Python, not what it did.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpi_runtime::{GeneralizedRequest, Mpi, StatusPtr};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::engine::{self, Envelope, Handle, Keep, Landed};
use tensor_comm::{Begun, Call};

use crate::loan::Held;
use crate::mpi4py::Mpi4py;
use crate::track::Holds;
use crate::{callbacks, errors, transfer};

/// The loans of an operation under way, and the call that describes their tensors.
pub struct Borrowed {
    /// Tensors that are read.
    pub sent: SmallVec<[Held; 1]>,
    /// Tensors that are written.
    pub received: SmallVec<[Held; 1]>,
}

impl Borrowed {
    /// The loan of the one tensor that was borrowed, if one was.
    pub fn only(mut self) -> Option<Held> {
        self.received.pop().or_else(|| self.sent.pop())
    }
}

impl Keep for Borrowed {
    fn done(&mut self, written: bool) {
        // Without an interpreter the loans leak themselves (loan.rs).
        let _ = Python::try_attach(|py| {
            for loan in self.received.drain(..) {
                if let (true, Err(error)) = (written, loan.wrote(py)) {
                    error.write_unraisable(py, None);
                }
            }
            self.sent.clear();
        });
    }
}

/// The exception of an operation that failed in Python; copies are of the same operation.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Leaves it for whoever waits.
    pub fn leave(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// What was left.
    pub fn raised(&self, py: Python<'_>) -> Option<PyErr> {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.as_ref().map(|error| error.clone_ref(py))
    }
}

/// The end of an operation, as the Python object that waits for it sees it.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Pending {
    handle: Handle,
    /// What a receive learns of its message.
    envelope: Option<Arc<Envelope>>,
    failure: Failure,
    /// A short message: its caller waits at once, as a rule.
    short: bool,
}

impl Pending {
    /// Of an operation under way, and what it learns if it is a receive.
    pub fn new(handle: Handle, envelope: Option<Arc<Envelope>>) -> Pending {
        Pending {
            handle,
            envelope,
            failure: Failure::default(),
            short: false,
        }
    }

    /// The same for a short message.
    pub fn short(self, short: bool) -> Pending {
        Pending { short, ..self }
    }

    /// Leaves it to the engine.
    ///
    /// # Errors
    /// [`tensor_comm::Error::State`] once the engine has stopped.
    pub fn carry(&self) -> tensor_comm::Result<()> {
        match self.short {
            true => engine::carry_soon(&self.handle),
            false => engine::carry(&self.handle),
        }
    }

    /// The same for an operation that leaves its exception there.
    pub fn failing_with(self, failure: Failure) -> Pending {
        Pending { failure, ..self }
    }

    /// The operation.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

#[pymethods]
impl Pending {
    /// The rank whose message was received; `None` before it came and for other operations.
    fn source(&self) -> Option<i32> {
        self.envelope.as_ref()?.source()
    }

    /// Calls `callback()` on a thread for such calls when the operation has ended. It may wait for other
    /// operations.
    fn then(&self, callback: Py<PyAny>) {
        self.handle.on_done(move |_| callbacks::call(callback));
    }

    /// Whether the operation has ended.
    fn done(&self) -> bool {
        self.handle.is_done()
    }

    /// The exception of an operation that failed; `None` while it is under way and when it ended well.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        let error = self.handle.result()?.err()?;
        Some(
            self.failure
                .raised(py)
                .unwrap_or_else(|| errors::operation(py, error)),
        )
    }

    /// Asks the other ranks who has not made this call and what they are doing; in words, within
    /// `timeout` seconds.
    #[pyo3(signature = (timeout=3.0))]
    fn arrivals(&self, py: Python<'_>, timeout: f64) -> String {
        let limit = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        py.detach(|| self.handle.arrivals(limit)).to_string()
    }

    /// Waits until the operation has ended, at most `timeout` seconds; says whether it has. Two
    /// interrupts end the wait: Python's own handler runs in between.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        wait(py, std::slice::from_ref(&self.handle), timeout)
    }
}

/// Waits until operations have ended, at most `timeout` seconds, and carries them on; says whether they
/// have. Where one has failed the others may never end, so they are not waited for much longer. Python's signal
/// handlers run in between.
///
/// # Errors
/// What a signal handler raised; the operations go on then, if the engine has them.
pub fn wait(py: Python<'_>, handles: &[Handle], timeout: Option<f64>) -> PyResult<bool> {
    const STEP: f64 = 0.1;
    let mut left = timeout.unwrap_or(f64::INFINITY);
    loop {
        let step = Duration::from_secs_f64(left.clamp(0.0, STEP));
        if py.detach(|| Handle::wait_for_all(handles, step)) {
            return Ok(true);
        }
        py.check_signals()?;
        left -= STEP;
        let failed = |handle: &Handle| matches!(handle.result(), Some(Err(_)));
        if left <= 0.0 || handles.iter().any(failed) {
            return Ok(false);
        }
    }
}

/// What MPI asks of a generalized request.
struct Progress {
    mpi: &'static Mpi,
    handle: Handle,
    /// Of a message that is received.
    landed: Option<Landed>,
}

impl GeneralizedRequest for Progress {
    unsafe fn query(&self, status: StatusPtr) -> Result<(), i32> {
        let constants = self.mpi.constants();
        let came = self.landed.as_ref().and_then(|landed| landed.get());
        let (source, tag, bytes) = match came {
            Some(came) => (came.source, came.tag, came.bytes.unwrap_or(0)),
            None => (constants.undefined, constants.undefined, 0),
        };
        // SAFETY:
        // - MPI passes a status to fill.
        unsafe { self.mpi.status_set(status, source, tag, constants.success) };
        if let Some(byte) = self.mpi.datatype(mpi_runtime::Basic::Byte) {
            // SAFETY:
            // - as above. A failure leaves a count that nobody asks a collective for.
            let _ = unsafe { self.mpi.status_set_elements(status, byte, bytes as i64) };
        }
        // SAFETY:
        // - as above.
        let _ = unsafe { self.mpi.status_set_cancelled(status, false) };
        match self.handle.result() {
            Some(Err(tensor_comm::Error::Mpi(mpi_runtime::Error::Mpi(error)))) => Err(error.code),
            Some(Err(_)) => Err(constants.err_other),
            _ => Ok(()),
        }
    }

    fn cancel(&self, _complete: bool) -> Result<(), i32> {
        // Collectives cannot be cancelled (MPI 4.1 §6.12).
        Err(self.mpi.constants().err_request)
    }
}

/// The pieces of a Python request: MPI's handle as a number, and its end.
///
/// # Errors
/// What MPI reports when it cannot make a request; the operation goes on then.
pub fn make(py: Python<'_>, mpi: &'static Mpi, handle: Handle) -> PyResult<(u64, Pending)> {
    make_of_message(py, mpi, handle, None)
}

/// The same of an operation that may be a message that is received.
///
/// # Errors
/// As for [`make`].
pub fn make_of_message(
    py: Python<'_>,
    mpi: &'static Mpi,
    handle: Handle,
    landed: Option<Landed>,
) -> PyResult<(u64, Pending)> {
    let progress = Progress {
        mpi,
        handle: handle.clone(),
        landed,
    };
    let request = mpi
        .grequest_start(progress)
        .map_err(|error| errors::mpi(py, &error))?;
    handle.on_done(move |_| {
        // SAFETY:
        // - the request was just started, is completed here once, and cannot be freed before.
        let completed = unsafe { mpi.grequest_complete(request) };
        if let Err(error) = completed {
            // Whoever waits for it would wait for ever.
            eprintln!(
                "dlmpi: MPI cannot be told that an operation has ended, so the job ends: {error}"
            );
            mpi.abort(mpi.comm_world(), 1);
        }
    });
    Ok((request.raw(), Pending::new(handle, None)))
}

/// The request object of a collective that begins: MPI's own request where MPI carries it, else one of the engine's.
///
/// # Errors
/// What can be refused on this rank.
pub fn start(
    mpi4py: &'static Mpi4py,
    py: Python<'_>,
    comm: tensor_comm::Comm,
    call: &Call,
    borrowed: Borrowed,
) -> PyResult<Py<PyAny>> {
    let core = |error| errors::operation(py, error);
    // A framework is told at the end, which MPI's own request does not tell us.
    let lets_go = !borrowed.received.iter().any(Held::must_tell);
    // SAFETY:
    // - `borrowed` keeps the tensors' memory, and goes to the request object or to the operation.
    let begun = py.detach(|| unsafe { tensor_comm::begin_here(&comm, call, lets_go) });
    match begun.map_err(core)? {
        Begun::Mpi(flight) => {
            let loans = borrowed.sent.into_iter().chain(borrowed.received);
            let holds = Holds {
                loans: loans.collect(),
                keeps: flight.keeps,
                ..Holds::default()
            };
            transfer::hold(mpi4py, py, flight.request, holds, None).map(Bound::unbind)
        }
        Begun::Rest(rest) => {
            let keep: Box<dyn Keep> = Box::new(borrowed);
            let handle = py.detach(|| {
                let handle = rest.keep(keep);
                engine::carry(&handle).map(|()| handle)
            });
            let (number, pending) = make(py, comm.mpi(), handle.map_err(core)?)?;
            mpi4py.request(py, number, pending)
        }
    }
}
