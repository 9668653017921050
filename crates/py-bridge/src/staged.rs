//! Persistent operations on tensors that are brought into another form at each start, and home at each end:
//! what a derived Datatype cannot describe, or memory that is sent from and received into.
//!
//! MPI's persistent request works on the copy; the caller's request is a generalized one while it is active,
//! so that every way to complete it works, and `REQUEST_NULL` while it is not.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mpi_runtime::{MpiError, Request};
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::engine::{self, Keep, Landed, Started};
use tensor_comm::{Counts, Flow, Posted};

use crate::borrow::Borrowed;
use crate::datatype::Use;
use crate::elements;
use crate::errors;
use crate::framework::Intent;
use crate::memory::{self, Division};
use crate::message::{Loans, Message};
use crate::mpi4py::{self, Mpi4py};
use crate::request::{self, Pending};
use crate::table::Row;
use crate::transfer::Lent;

/// The message as `[buffer, counts, Datatype]`, its elements in memory of their own.
///
/// # Errors
/// What the tensor, its counts or its dtype have to say.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    (flow, usage): (Flow, Use),
    division: Division,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, mpi) = (msg.py(), mpi4py.mpi());
    let core = |error| errors::operation(py, error);
    engine::allowed(mpi).map_err(core)?;
    let (intent, blocks) = (Intent::of(flow), division.blocks);
    let mut loans = Loans::new(mpi4py);
    let divided = (blocks, division.vector);
    let Message::Ours(arg) = elements::read(&mut loans, name, msg, (intent, usage), divided)?
    else {
        return Err(PyBufferError::new_err(format!(
            "{name}: memory under a Datatype of its own cannot be copied at each start; leave the Datatype out"
        )));
    };
    // SAFETY:
    // - The loans keep the memory, as long as what is made of this.
    let posted = unsafe { Posted::copied(mpi, &arg, name, blocks, flow) }.map_err(core)?;
    let Some(held) = loans.into_borrowed().only() else {
        return Ok(msg.clone());
    };
    let mut counts = posted.counts().clone();
    let mut datatype = mpi4py.datatype_object(py, posted.datatype())?;
    if let (Counts::One(count), Some(view), false) = (&mut counts, arg.view(), usage == Use::Move) {
        let (dtype, itemsize) = (view.dtype(), view.itemsize());
        let (natural, units) = memory::natural(mpi4py, py, name, dtype, itemsize, usage)?;
        let elements = posted.bytes() / itemsize.max(1) / blocks.max(1);
        (*count, datatype) = (elements as i64 * units, natural);
    }
    let buffer = elements::hand_over(py, held, posted, intent, lent)?;
    lent.staged = true;
    elements::spec(buffer, counts, datatype)
}

/// Where a request is in its life.
#[derive(Default)]
struct Life {
    starting: bool,
    active: bool,
    freed: bool,
}

/// What the operation needs while it is under way, whatever becomes of the request object.
struct Shared {
    /// mpi4py's request, on our copies.
    inner: Py<PyAny>,
    lent: Lent,
    life: Mutex<Life>,
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to start it, while it is inactive.
    fn turn(&self) -> Option<Turn<'_>> {
        let mut life = self.life();
        let free = !life.starting && !life.active && !life.freed;
        life.starting |= free;
        free.then_some(Turn(self))
    }

    fn each(&self, work: impl Fn(&Borrowed) -> PyResult<()>) -> PyResult<()> {
        let buffers = self.lent.buffers.iter();
        buffers
            .map(|buffer| work(buffer.get()))
            .fold(Ok(()), PyResult::and)
    }
}

/// Nobody else starts the operation.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.life().starting = false;
    }
}

struct Keeper(Arc<Shared>);

impl Keep for Keeper {
    fn done(&mut self, _written: bool) {
        // Without an interpreter everything stays where it is.
        let _ = Python::try_attach(|py| {
            let shared = &self.0;
            let home = shared.each(|buffer| {
                // SAFETY:
                // - The operation has ended, and is not started again before it is inactive.
                let home = unsafe { buffer.bring_home(py, None) };
                home.and(buffer.tell(py))
            });
            let freed = {
                let mut life = shared.life();
                life.active = false;
                life.freed
            };
            let gone = match freed {
                true => shared.inner.call_method0(py, intern!(py, "Free")).map(drop),
                false => Ok(()),
            };
            if let Err(error) = home.and(gone) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// What the caller's request object keeps.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Stage {
    shared: Arc<Shared>,
    name: &'static str,
    partitions: usize,
    /// It is a message that is received.
    receives: bool,
    asking: Arc<Mutex<()>>,
}

#[pymethods]
impl Stage {
    /// Starts the operation; `request`, which is null, becomes that of it.
    fn start(&self, py: Python<'_>, request: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let mpi4py = mpi4py::bound()?;
        let core = |error| errors::operation(py, error);
        let place = mpi4py.request_handle(request)?;
        let shared = &self.shared;
        let turn = shared.turn().ok_or_else(|| not_to_start(py, mpi4py))?;
        shared.lent.wait_again(py)?;
        // SAFETY:
        // - It is inactive, and nobody else starts it.
        shared.each(|buffer| unsafe { buffer.refresh(py, None) })?;
        let inner = shared.inner.bind(py);
        inner.call_method0(intern!(py, "Start"))?;
        shared.life().active = true;
        drop(turn);
        let landed = self.receives.then(|| Landed::from(OnceLock::new()));
        // SAFETY:
        // - the handle of a living object, which nobody else completes.
        let number = unsafe { Request::from_raw(mpi4py.request_handle(inner)?.get()) };
        let started = Started {
            mpi: mpi4py.mpi(),
            request: number,
            asking: Arc::clone(&self.asking),
            landed: landed.clone(),
        };
        let (keep, name) = (Box::new(Keeper(Arc::clone(shared))), self.name);
        let carry = || {
            // SAFETY:
            // - it was just started; `Life` frees it when the keeper has heard of the end, and the object is
            //   the keeper's.
            unsafe { started.carry(name, keep) }
        };
        let handle = py.detach(carry).map_err(core)?;
        let (handle, pending) = request::make_of_message(py, mpi4py.mpi(), handle, landed)?;
        place.set(handle);
        Ok(pending)
    }

    /// Partitions `low..=high` may be sent.
    fn ready(&self, py: Python<'_>, low: i64, high: i64) -> PyResult<()> {
        self.shared.lent.wait_again(py)?;
        let of = self.partitions;
        // Those that are not there are MPI's to refuse.
        for index in (low.max(0)..=high)
            .map(|index| index as usize)
            .take_while(|&i| i < of)
        {
            // SAFETY:
            // - MPI leaves a partition alone until it is marked, and the caller marks it once.
            let refresh = |buffer: &Borrowed| unsafe { buffer.refresh(py, Some((index, of))) };
            self.shared.each(refresh)?;
        }
        let inner = self.shared.inner.bind(py);
        inner
            .call_method1(intern!(py, "Pready_range"), (low, high))
            .map(drop)
    }

    /// Whether a partition has arrived; then it is in place.
    fn arrived(&self, py: Python<'_>, partition: i64) -> PyResult<bool> {
        let inner = self.shared.inner.bind(py);
        let arrived: bool = {
            // Not now where somebody else asks: nobody waits for a lock with the interpreter in his hands.
            let Ok(_asking) = self.asking.try_lock() else {
                return Ok(false);
            };
            if !self.shared.life().active {
                return Ok(true);
            }
            let answer = inner.call_method1(intern!(py, "Parrived"), (partition,))?;
            answer.extract()?
        };
        if let (true, Ok(index)) = (arrived, usize::try_from(partition)) {
            let part = Some((index, self.partitions));
            // SAFETY:
            // - MPI says that it has arrived.
            let bring_home = |buffer: &Borrowed| unsafe { buffer.bring_home(py, part) };
            self.shared.each(bring_home)?;
        }
        Ok(arrived)
    }

    /// The request is freed now, or when the operation under way has ended.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut life = self.shared.life();
            life.freed = true;
            if life.active {
                return Ok(());
            }
        }
        self.shared
            .inner
            .call_method0(py, intern!(py, "Free"))
            .map(drop)
    }
}

/// The error of starting what is under way or freed.
fn not_to_start(py: Python<'_>, mpi4py: &Mpi4py) -> PyErr {
    let code = mpi4py.mpi().constants().err_request;
    let error = MpiError {
        code,
        class: code,
        call: "MPI_Start",
    };
    errors::mpi(py, &mpi_runtime::Error::Mpi(error))
}

/// The caller's request object for an operation that mpi4py has made.
///
/// # Errors
/// What Python raised.
pub fn keep<'py>(
    mpi4py: &Mpi4py,
    row: &'static Row,
    inner: Bound<'py, PyAny>,
    partitions: usize,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = inner.py();
    let stage = Stage {
        shared: Arc::new(Shared {
            inner: inner.unbind(),
            lent,
            life: Mutex::default(),
        }),
        name: row.name,
        partitions,
        receives: row.params.iter().any(|param| param.name == "source"),
        asking: Arc::default(),
    };
    let ours = mpi4py.classes()?.staged.bind(py).call0()?;
    ours.setattr(intern!(py, "_stage"), Bound::new(py, stage)?)?;
    Ok(ours)
}
