//! Non-blocking collectives that mpi4py describes to MPI, on memory that we lend: called in their turn on
//! the private duplicate and carried by the engine, as those that dlmpi describes are. Knows no operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpi_runtime::{Error as MpiCallError, MpiError, Request};
use pyo3::prelude::*;
use tensor_comm::engine::{self, Issue, Keep};
use tensor_comm::{Comm, Error, ForeignBegun, Kind, Result};

use crate::delegate::{Values, invoke};
use crate::errors;
use crate::mpi4py::Mpi4py;
use crate::params::MAX_PARAMS;
use crate::request::{self, Failure};
use crate::snapshot;
use crate::table::Row;
use crate::transfer::{self, Lent};

/// The call until it is made, then what mpi4py holds on to.
struct Calling {
    real: Py<PyAny>,
    row: &'static Row,
    values: Option<[Option<Py<PyAny>>; MAX_PARAMS]>,
    /// Datatypes made for the call alone.
    datatypes: Vec<Py<PyAny>>,
    request: Option<Py<PyAny>>,
    lent: Lent,
}

/// The call, shared by the operation, its keeper and whoever starts it.
struct Shared {
    mpi4py: &'static Mpi4py,
    calling: Mutex<Calling>,
    failure: Failure,
}

#[derive(Clone)]
struct Carried(Arc<Shared>);

impl Carried {
    fn lock(&self) -> MutexGuard<'_, Calling> {
        let calling = &self.0.calling;
        calling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls mpi4py's method on this communicator; its request becomes the caller's.
    fn call(&self, py: Python<'_>, comm: mpi_runtime::Comm) -> PyResult<Request> {
        let mpi4py = self.0.mpi4py;
        let (real, row, values, datatypes) = {
            let mut calling = self.lock();
            let values = calling.values.take().ok_or_else(errors::unbound)?;
            let datatypes = std::mem::take(&mut calling.datatypes);
            (calling.real.clone_ref(py), calling.row, values, datatypes)
        };
        let class = mpi4py.module(py).getattr("Comm")?;
        let slf = class.call_method1("fromhandle", (comm.raw(),))?;
        let values = values.map(|value| value.map(|value| value.into_bound(py)));
        let result = invoke(real.bind(py), row, &slf, values);
        mpi4py.forget(&slf)?;
        for datatype in datatypes {
            datatype.call_method0(py, "Free")?;
        }
        let result = result?;
        let slot = mpi4py.request_handle(&result)?;
        // SAFETY:
        // - the handle of a request of the library that both use; the object forgets it here.
        let request = unsafe { Request::from_raw(slot.get()) };
        slot.set(mpi4py.mpi().request_null().raw());
        let mut calling = self.lock();
        calling.request = Some(result.unbind());
        Ok(request)
    }

    /// The call waits for its turn, and its caller may change or free meanwhile what MPI lets him: lists of
    /// counts, and Datatypes.
    fn own(&self, py: Python<'_>) -> PyResult<()> {
        let Some(values) = self.lock().values.take() else {
            return Ok(());
        };
        let mut made = Vec::new();
        let params = self.lock().row.params;
        let mut owned = values.each_ref().map(|_| None);
        for ((param, value), owned) in params.iter().zip(&values).zip(&mut owned) {
            let Some(value) = value else { continue };
            let value = snapshot::argument(self.0.mpi4py, param, value.bind(py), &mut made)?;
            *owned = Some(value);
        }
        let mut calling = self.lock();
        calling.values = Some(owned);
        calling.datatypes = made;
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.lock().values.is_some()
    }
}

// SAFETY:
// - The request comes from the call that is made there, and this keeps what the call was given.
unsafe impl Issue for Carried {
    fn issue(&mut self, comm: mpi_runtime::Comm) -> Result<Request> {
        // The interpreter's lock is waited for here, like any other call of mpi4py's.
        let issued = Python::try_attach(|py| {
            self.call(py, comm).map_err(|error| {
                let words = error.to_string();
                let code = error.value(py).getattr("error_code");
                let code = code.and_then(|code| code.extract::<i32>());
                self.0.failure.leave(error);
                match code {
                    Ok(code) => Error::Mpi(MpiCallError::Mpi(MpiError {
                        code,
                        class: code,
                        call: "a non-blocking collective of mpi4py",
                    })),
                    Err(_) => Error::State(words),
                }
            })
        });
        issued.unwrap_or_else(|| Err(Error::State("the interpreter is ending".into())))
    }
}

impl Keep for Carried {
    fn done(&mut self, _written: bool) {
        // Without an interpreter everything stays where it is.
        let _ = Python::try_attach(|py| {
            let (request, lent) = {
                let mut calling = self.lock();
                (calling.request.take(), std::mem::take(&mut calling.lent))
            };
            // mpi4py lets go of the lent buffers with its request, outside the lock: Python code may run.
            drop(request);
            if let Err(error) = lent.end(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// Starts a collective of mpi4py's with these values, and gives the caller's request.
///
/// # Errors
/// What mpi4py, MPI or a framework has to say; where the call waits for its turn, the request brings it.
pub fn start<'py>(
    mpi4py: &'static Mpi4py,
    (row, kind): (&'static Row, Kind),
    real: &Bound<'py, PyAny>,
    slf: &Bound<'py, PyAny>,
    values: Values<'py>,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let core = |error| errors::operation(py, error);
    let raw = mpi4py.comm(slf)?;
    let carried = Carried(Arc::new(Shared {
        mpi4py,
        calling: Mutex::new(Calling {
            real: real.clone().unbind(),
            row,
            values: Some(values.map(|value| value.map(Bound::unbind))),
            datatypes: Vec::new(),
            request: None,
            lent,
        }),
        failure: Failure::default(),
    }));
    let begun = match raw == mpi.comm_null() {
        // mpi4py raises what MPI says about it.
        true => Ok(ForeignBegun::Yours),
        false => {
            let comm = Comm::new(mpi, raw).map_err(core)?;
            let (issue, keep) = (Box::new(carried.clone()), Box::new(carried.clone()));
            let small = carried.lock().lent.is_within(py, tensor_comm::lane::SMALL);
            py.detach(|| tensor_comm::begin_foreign(&comm, (kind, row.name), issue, keep, small))
        }
    };
    let failure = &carried.0.failure;
    match begun {
        Err(why) => Err(failure.raised(py).unwrap_or_else(|| core(why))),
        Ok(ForeignBegun::Yours) => {
            let (values, lent) = {
                let mut calling = carried.lock();
                (calling.values.take(), std::mem::take(&mut calling.lent))
            };
            let values = values.ok_or_else(errors::unbound)?;
            let values = values.map(|value| value.map(|value| value.into_bound(py)));
            let result = invoke(real, row, slf, values)?;
            transfer::follow(mpi4py, result, lent)
        }
        Ok(ForeignBegun::Mpi(flight)) => {
            let (result, mut lent) = {
                let mut calling = carried.lock();
                (calling.request.take(), std::mem::take(&mut calling.lent))
            };
            let result = result.ok_or_else(errors::unbound)?.into_bound(py);
            mpi4py.request_handle(&result)?.set(flight.request.raw());
            // It has the arrays of counts and Datatypes.
            lent.objects.push(result.clone().unbind());
            lent.keeps = flight.keeps;
            transfer::follow(mpi4py, result, lent)
        }
        Ok(ForeignBegun::Carried(handle)) => {
            if carried.is_waiting() {
                carried.own(py)?;
            }
            engine::carry(&handle).map_err(core)?;
            let (number, pending) = request::make(py, mpi, handle)?;
            let pending = pending.failing_with(failure.clone());
            mpi4py
                .request(py, number, pending)
                .map(|request| request.into_bound(py))
        }
    }
}

/// Waits as [`tensor_comm::undisturbed`] does.
///
/// # Errors
/// `TypeError` when it is no communicator; what MPI reports.
pub fn undisturbed(comm: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, mpi4py) = (comm.py(), crate::mpi4py::bound()?);
    let core = |error| errors::operation(py, error);
    let comm = Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?).map_err(core)?;
    py.detach(|| tensor_comm::undisturbed(&comm)).map_err(core)
}
