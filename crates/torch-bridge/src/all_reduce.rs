//! torch's most frequent call, the sum of one dense tensor that is waited for at once, without the Python
//! that serves all other forms of `ProcessGroup.allreduce`.
//!
//! Knows torch's options and when they ask for nothing else, not how an operation is made.

use py_bridge::starter::Starter;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

/// Reductions of one group.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct AllReduce {
    starter: Py<Starter>,
    /// MPI's operations for a number of torch's, a dtype and the ranks, where nothing else is to be done.
    known: Py<PyDict>,
    options: Py<PyType>,
    /// Whether a profiler wants to see calls.
    profiled: Py<PyAny>,
    in_place: Py<PyAny>,
    ranks: usize,
    patience: f64,
}

#[pymethods]
impl AllReduce {
    /// `starter` is the group's `Iallreduce`, which is carried on in the calling thread for `patience` seconds.
    #[new]
    fn new(
        starter: Py<Starter>,
        known: Py<PyDict>,
        options: Py<PyType>,
        profiled: Py<PyAny>,
        in_place: Py<PyAny>,
        ranks: usize,
        patience: f64,
    ) -> AllReduce {
        AllReduce {
            starter,
            known,
            options,
            profiled,
            in_place,
            ranks,
            patience,
        }
    }

    /// `None` if this call is another one's business: nothing was done. `True` when it is done; else the
    /// engine goes on with what is returned.
    #[pyo3(signature = (core, tensors, opts, /))]
    fn __call__<'py>(
        &self,
        core: &Bound<'py, PyAny>,
        tensors: &Bound<'py, PyAny>,
        opts: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = core.py();
        let Ok(tensors) = tensors.cast_exact::<PyList>() else {
            return Ok(None);
        };
        if tensors.len() != 1
            || !opts.get_type().is(self.options.bind(py))
            || opts.getattr(intern!(py, "asyncOp"))?.is_truthy()?
            || !core.getattr(intern!(py, "together"))?.is_none()
            || core.getattr(intern!(py, "closed"))?.is_truthy()?
            || self.profiled.bind(py).call0()?.is_truthy()?
        {
            return Ok(None);
        }
        let tensor = tensors.get_item(0)?;
        if tensor.getattr(intern!(py, "is_sparse"))?.is_truthy()? {
            return Ok(None);
        }
        let kind = opts.getattr(intern!(py, "reduceOp"))?.hash()?;
        let key = (kind, tensor.getattr(intern!(py, "dtype"))?, self.ranks);
        let Some(op) = self.known.bind(py).get_item(key)? else {
            return Ok(None);
        };
        let sequence = intern!(py, "sequence");
        core.setattr(sequence, core.getattr(sequence)?.extract::<u64>()? + 1)?;
        let args = PyTuple::new(py, [self.in_place.bind(py), &tensor, &op])?;
        let starter = self.starter.get();
        match starter.run(py, Some(self.patience), &args)? {
            None => Ok(Some(true.into_pyobject(py)?.to_owned().into_any())),
            Some(pending) => Ok(Some(Bound::new(py, pending)?.into_any())),
        }
    }
}
