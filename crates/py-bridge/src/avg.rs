//! `dlmpi.AVG`, the mean, which MPI has no operation for. Knows nothing but its own name.

use pyo3::prelude::*;

/// The mean over the ranks, for floating and complex dtypes; use it as `op=dlmpi.AVG`.
#[pyclass(frozen, module = "dlmpi", name = "AverageOp")]
#[derive(Debug, Default)]
pub struct Avg;

#[pymethods]
impl Avg {
    fn __repr__(&self) -> &'static str {
        "dlmpi.AVG"
    }

    /// Pickled by name: there is one.
    fn __reduce__(&self) -> &'static str {
        "AVG"
    }
}
