//! An operation of one communicator that is started again and again without MPI's request object: for
//! callers that have their own, such as a process group's work.
//!
//! Takes the arguments of the method of the same name, by position.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use smallvec::SmallVec;
use tensor_comm::Comm;
use tensor_comm::engine::{self, Handle};

use crate::collective::{self, Collective};
use crate::errors;
use crate::listed::{self, Listed};
use crate::mpi4py;
use crate::p2p;
use crate::params::{MAX_PARAMS, Slots};
use crate::request::{self, Pending};
use crate::table::{Body, ROWS, Row};

/// Operations under way that nobody carries on but this thread. What has not ended goes to the engine.
struct Own(SmallVec<[Handle; 4]>);

impl Own {
    /// Hands over what has not ended.
    fn hand_over(&mut self) -> tensor_comm::Result<()> {
        self.0
            .drain(..)
            .try_for_each(|handle| match handle.is_done() {
                true => Ok(()),
                false => engine::carry(&handle),
            })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // An error is on its way up already; without an engine, the operations stay where they are.
        let _ = self.hand_over();
    }
}

/// One operation of one communicator.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Starter {
    comm: Comm,
    row: &'static Row,
}

impl Starter {
    /// The arguments in their places.
    fn slots<'a, 'py>(&self, args: &'a Bound<'py, PyTuple>) -> PyResult<Slots<'a, 'py>> {
        let Row { params, name, .. } = self.row;
        let given = args.len();
        let needed = params.iter().filter(|param| param.required).count();
        if given < needed || given > params.len().min(MAX_PARAMS) {
            return Err(PyTypeError::new_err(format!(
                "{name} takes {needed} to {} arguments ({given} given)",
                params.len()
            )));
        }
        let mut slots: Slots<'_, 'py> = [None; MAX_PARAMS];
        for (slot, argument) in slots.iter_mut().zip(args.iter_borrowed()) {
            *slot = Some(argument);
        }
        self.comm
            .alive()
            .map_err(|error| errors::operation(args.py(), error))?;
        Ok(slots)
    }

    /// Begins it.
    fn begin<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Pending> {
        let (Row { params, name, .. }, slots) = (self.row, self.slots(args)?);
        let mpi4py = mpi4py::bound()?;
        match &self.row.body {
            Body::Send(_) => p2p::begin_send(py, mpi4py, params, self.comm, &slots),
            Body::Recv => p2p::begin_recv(py, mpi4py, params, self.comm, &slots),
            Body::Start(Collective { .. }) => {
                collective::begin(py, mpi4py, self.row, self.comm, &slots)
            }
            _ => Err(PyTypeError::new_err(format!("{name} cannot be started"))),
        }
    }

    /// The same for a thread that waits: `None` where it is done already.
    fn attempt<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Pending>> {
        match &self.row.body {
            Body::Start(Collective { .. }) => {
                let slots = self.slots(args)?;
                collective::attempt(py, mpi4py::bound()?, self.row, self.comm, &slots)
            }
            _ => self.begin(py, args).map(Some),
        }
    }
}

/// Carries an operation on in this thread, at most `timeout` seconds. `None` when it has ended; else the engine goes on with it.
fn carried_here(
    py: Python<'_>,
    pending: Pending,
    timeout: Option<f64>,
) -> PyResult<Option<Pending>> {
    let handle = pending.handle();
    let core = |error| errors::operation(py, error);
    if let Some(result) = handle.result() {
        return result.map(|()| None).map_err(core);
    }
    let waited = request::wait(py, std::slice::from_ref(handle), timeout);
    if let Some(result) = handle.result() {
        return result.map(|()| None).map_err(core);
    }
    engine::carry(handle).map_err(core)?;
    waited.map(|_| Some(pending))
}

#[pymethods]
impl Starter {
    /// `name` is that of a non-blocking collective, or `Send` or `Recv`. The communicator must live as
    /// long as this object is called.
    #[new]
    fn new(comm: &Bound<'_, PyAny>, name: &str) -> PyResult<Starter> {
        let mpi4py = mpi4py::bound()?;
        let row = ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            PyValueError::new_err(format!("name: there is no operation {name:?}"))
        })?;
        let comm = Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?)
            .map_err(|error| errors::operation(comm.py(), error))?;
        Ok(Starter { comm, row })
    }

    /// Starts it and leaves it to the engine.
    #[pyo3(signature = (*args))]
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Pending> {
        let pending = self.begin(py, args)?;
        let carried = pending.carry();
        carried.map_err(|error| errors::operation(py, error))?;
        Ok(pending)
    }

    /// Starts it and leaves it to the engine; the request object, which is null, becomes that of it.
    #[pyo3(signature = (request, *args))]
    fn restart<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Pending> {
        let mpi4py = mpi4py::bound()?;
        let place = mpi4py.request_handle(request)?;
        let begun = self.begin(py, args)?;
        engine::carry(begun.handle()).map_err(|error| errors::operation(py, error))?;
        let (handle, pending) = request::make(py, mpi4py.mpi(), begun.handle().clone())?;
        place.set(handle);
        Ok(pending)
    }

    /// Starts it and carries it on in this thread, at most `timeout` seconds. `None` when it is done; else
    /// the engine goes on with what is returned.
    ///
    /// # Errors
    /// What the operation found.
    #[pyo3(signature = (timeout, *args))]
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Pending>> {
        match self.attempt(py, args)? {
            Some(pending) => carried_here(py, pending, timeout),
            None => Ok(None),
        }
    }

    /// The same for a collective of short blocks in lists: `sent` and `received` are `None` where this rank has none, a
    /// tensor, or a list with one for each rank. `True` when it is done; `False` when nothing was, since not all of them are
    /// dense, of one dtype and of less than `most` bytes.
    ///
    /// # Errors
    /// What the operation found.
    #[pyo3(signature = (timeout, most, sent, received, root=0, op=None))]
    #[expect(clippy::too_many_arguments, reason = "given by position")]
    fn run_lists<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        most: usize,
        sent: Option<&Bound<'py, PyAny>>,
        received: Option<&Bound<'py, PyAny>>,
        root: i32,
        op: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Body::Start(collective) = &self.row.body else {
            let name = self.row.name;
            return Err(PyTypeError::new_err(format!("{name} is no collective")));
        };
        self.comm
            .alive()
            .map_err(|error| errors::operation(py, error))?;
        let sides = (sent, received);
        let mpi4py = mpi4py::bound()?;
        match listed::attempt(mpi4py, collective, self.comm, most, sides, (root, op), py)? {
            Listed::Otherwise => Ok(PyBool::new(py, false).to_owned().into_any()),
            Listed::Done => Ok(PyBool::new(py, true).to_owned().into_any()),
            Listed::Begun(pending) => match carried_here(py, pending, Some(timeout))? {
                Some(pending) => Ok(Bound::new(py, pending)?.into_any()),
                None => Ok(PyBool::new(py, true).to_owned().into_any()),
            },
        }
    }

    /// Starts operations, each with its arguments, and carries all of them on in this thread, at most
    /// `timeout` seconds; `meanwhile()` runs when all are under way. `None` when all have ended well; else
    /// the engine goes on with what is returned, of which some may have ended, and failed.
    ///
    /// # Errors
    /// What one of them found, where all have ended.
    #[staticmethod]
    fn run_all(
        py: Python<'_>,
        timeout: f64,
        calls: Vec<(Bound<'_, Starter>, Bound<'_, PyTuple>)>,
        meanwhile: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Option<Vec<Pending>>> {
        let mut own = Own(SmallVec::new());
        let mut pendings = Vec::with_capacity(calls.len());
        for (starter, args) in &calls {
            let pending = starter.get().begin(py, args)?;
            own.0.push(pending.handle().clone());
            pendings.push(pending);
        }
        if let Some(meanwhile) = meanwhile {
            meanwhile.call0()?;
        }
        let ended = request::wait(py, &own.0, Some(timeout))?;
        let core = |error| errors::operation(py, error);
        let failed = own
            .0
            .iter()
            .filter_map(Handle::result)
            .find_map(Result::err);
        own.hand_over().map_err(core)?;
        match (ended, failed) {
            (false, _) => Ok(Some(pendings)),
            (true, Some(error)) => Err(core(error)),
            (true, None) => Ok(None),
        }
    }
}
