//! Pickles of objects, made and read by Python's functions or by the program's. Knows pickles as bytes.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tensor_comm::shares::{Given, LONGEST};

use crate::call;
use crate::pickles::{is_atom, is_builtin};

/// What Python does for the methods of objects; `_objects.py` says what each is.
#[derive(FromPyObject)]
pub struct Hooks {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    /// Of the pickles that these make.
    protocol: Py<PyAny>,
    pickled: Py<PyAny>,
    loaded: Py<PyAny>,
    joined: Py<PyAny>,
    listed: Py<PyAny>,
    pub(super) sum: Py<PyAny>,
    /// Whether reductions are to be combined on their way, as `mpi4py.rc` says.
    pub(super) fast_reduce: bool,
    pub(super) bcast_rest: Py<PyAny>,
    pub(super) scatter_rest: Py<PyAny>,
    pub(super) allgather_rest: Py<PyAny>,
    pub(super) alltoall_rest: Py<PyAny>,
    pub(super) rest: Py<PyAny>,
    pub(super) recv_rest: Py<PyAny>,
    /// Messages of this many bytes and more may hold tensors.
    pub(super) whole: usize,
}

/// Whether the program pickles by Python's own functions, by the protocol of ours.
static STOCK: AtomicBool = AtomicBool::new(false);

/// Says whether it does.
pub fn set_stock(stock: bool) {
    STOCK.store(stock, Ordering::Relaxed);
}

/// Whether it does.
pub(super) fn is_stock() -> bool {
    STOCK.load(Ordering::Relaxed)
}

/// The pickle of an object: in one piece, or in parts of which some may be memory of tensors.
pub(super) enum Pickled<'py> {
    Short(Bound<'py, PyBytes>),
    Long(Bound<'py, PyAny>, u64),
}

impl<'py> Pickled<'py> {
    /// What of it goes into a message with its length.
    pub(super) fn given(&self) -> Given<'_> {
        match self {
            Pickled::Short(bytes) => Given::Short(bytes.as_bytes()),
            Pickled::Long(_, size) => Given::Follows(*size),
        }
    }

    /// As Python's functions take it.
    pub(super) fn object(&self) -> &Bound<'py, PyAny> {
        match self {
            Pickled::Short(bytes) => bytes.as_any(),
            Pickled::Long(parts, _) => parts,
        }
    }
}

impl Hooks {
    /// The pickle of an object.
    pub(super) fn pickle<'py>(&self, obj: &Bound<'py, PyAny>) -> PyResult<Pickled<'py>> {
        let py = obj.py();
        let (pickle, size) = if is_stock() && is_builtin(obj) {
            let bytes = self.dump(obj)?;
            let size = bytes.as_bytes().len();
            (bytes.into_any(), size)
        } else {
            call::one(self.pickled.bind(py), obj)?.extract()?
        };
        Ok(match pickle.cast_into_exact::<PyBytes>() {
            Ok(bytes) if bytes.as_bytes().len() <= LONGEST => Pickled::Short(bytes),
            Ok(bytes) => Pickled::Long(bytes.into_any(), size as u64),
            Err(error) => Pickled::Long(error.into_inner(), size as u64),
        })
    }

    /// By Python's own pickle.
    pub(super) fn dump<'py>(&self, obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = obj.py();
        let pickle = call::two(self.dumps.bind(py), obj, self.protocol.bind(py))?;
        Ok(pickle.cast_into::<PyBytes>()?)
    }

    /// The pickles of one object for each of `ranks`.
    pub(super) fn list<'py>(
        &self,
        obj: &Bound<'py, PyAny>,
        ranks: usize,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let py = obj.py();
        if let Ok(list) = obj.cast_exact::<PyList>()
            && is_stock()
            && list.len() == ranks
            && is_builtin(obj)
        {
            return list.iter().map(|item| self.dump(&item)).collect();
        }
        let pickles: Vec<Bound<'py, PyBytes>> =
            self.listed.bind(py).call1((obj, ranks))?.extract()?;
        match pickles.len() == ranks {
            true => Ok(pickles),
            false => Err(PyValueError::new_err("one pickle for each rank")),
        }
    }

    /// The object of a pickle in one piece, in which no tensor lies.
    pub(super) fn load<'py>(&self, bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        let loads = match is_stock() {
            true => &self.loads,
            false => &self.loaded,
        };
        call::one(loads.bind(bytes.py()), bytes)
    }

    /// The same of bytes.
    pub(super) fn load_of<'py>(
        &self,
        py: Python<'py>,
        value: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        self.load(&PyBytes::new(py, value))
    }

    /// What shares nothing with an object that has this pickle.
    pub(super) fn copy<'py>(
        &self,
        obj: &Bound<'py, PyAny>,
        pickle: &Pickled<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match pickle {
            _ if is_itself(obj) => Ok(obj.clone()),
            Pickled::Short(bytes) => self.load(bytes),
            Pickled::Long(parts, _) => call::one(self.joined.bind(obj.py()), parts),
        }
    }

    /// A copy of an object.
    pub(super) fn copied<'py>(&self, obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match is_itself(obj) {
            true => Ok(obj.clone()),
            false => self.copy(obj, &self.pickle(obj)?),
        }
    }
}

/// Whether a copy of it is nothing else. A pickle of the program's own may make something else of anything.
fn is_itself(obj: &Bound<'_, PyAny>) -> bool {
    is_stock() && is_atom(obj)
}
