//! torch's most frequent call, the sum of one dense tensor that is waited for at once, without the Python
//! that serves all other forms of `ProcessGroup.allreduce`.
//!
//! Knows torch's options and when they ask for nothing else, not how an operation is made.

use py_bridge::starter::Starter;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

/// `allreduce` of one group.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct AllReduce {
    /// The group's own: counts its calls, and says whether they are collected, profiled or refused.
    core: Py<PyAny>,
    starter: Py<Starter>,
    /// MPI's operations for a number of torch's, a dtype and the ranks, where nothing else is to be done.
    known: Py<PyDict>,
    options: Py<PyType>,
    /// Whether a profiler wants to see calls.
    profiled: Py<PyAny>,
    in_place: Py<PyAny>,
    ranks: usize,
    patience: f64,
    /// `allreduce` in all other forms.
    others: Py<PyAny>,
}

#[pymethods]
impl AllReduce {
    /// `starter` is the group's `Iallreduce`, which is carried on in the calling thread for `patience` seconds.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "given once, by position")]
    fn new(
        core: Py<PyAny>,
        starter: Py<Starter>,
        known: Py<PyDict>,
        options: Py<PyType>,
        profiled: Py<PyAny>,
        in_place: Py<PyAny>,
        ranks: usize,
        patience: f64,
        others: Py<PyAny>,
    ) -> AllReduce {
        AllReduce {
            core,
            starter,
            known,
            options,
            profiled,
            in_place,
            ranks,
            patience,
            others,
        }
    }

    /// `None` when it is done; else what the other forms return.
    #[pyo3(signature = (*args, **keywords))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = args.py();
        if let (Ok((tensors, opts)), None) = (two(args), keywords)
            && let Some((tensor, op)) = self.common(&tensors, &opts)?
        {
            let core = self.core.bind(py);
            let sequence = intern!(py, "sequence");
            core.setattr(sequence, core.getattr(sequence)?.extract::<u64>()? + 1)?;
            let args = PyTuple::new(py, [self.in_place.bind(py), &tensor, &op])?;
            if let Some(pending) = self.starter.get().run(py, Some(self.patience), &args)? {
                let late = ("all_reduce", Bound::new(py, pending)?, opts);
                core.call_method1(intern!(py, "overdue"), late)?;
            }
            return Ok(None);
        }
        self.others.bind(py).call(args, keywords).map(Some)
    }
}

fn two<'py>(args: &Bound<'py, PyTuple>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    args.extract()
}

impl AllReduce {
    /// The tensor and MPI's operation, if this call asks for nothing else.
    fn common<'py>(
        &self,
        tensors: &Bound<'py, PyAny>,
        opts: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let py = tensors.py();
        let (core, Ok(tensors)) = (self.core.bind(py), tensors.cast_exact::<PyList>()) else {
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
        let op = self.known.bind(py).get_item(key)?;
        Ok(op.map(|op| (tensor, op)))
    }
}
