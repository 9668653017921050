//! The one place where the errors of the crates below become Python exceptions. Knows no operation.
//!
//! `BufferError`: data that cannot be exported or written. `TypeError`: not a tensor. `ValueError`:
//! counts, shapes, operations that do not fit. `mpi4py.MPI.Exception`: what MPI itself reports. The
//! first cause is chained, never masked.

use dlpack_core::DoorError;
use pyo3::exceptions::{
    PyBufferError, PyException, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

use crate::mpi4py::Mpi4py;

pyo3::create_exception!(
    dlmpi,
    MismatchError,
    PyRuntimeError,
    "The ranks of a communicator called different collectives, or one with different arguments.\n\nRaised on every rank; the text says what each rank called. The communicator stays usable."
);

/// Why a Python object could not become a tensor. The argument's name is added by [`ExportError::named`].
#[derive(Debug)]
pub enum ExportError {
    /// The object speaks no protocol that carries memory.
    NotATensor(String),
    /// The data cannot be exported, or not written.
    Buffer(String),
    /// The producer raised; in words what was asked of it.
    Raised(String, PyErr),
    /// Nothing to do with the object: pass on as it is (`KeyboardInterrupt`, `MemoryError`).
    Unrelated(PyErr),
}

/// Result of an export.
pub type ExportResult<T> = Result<T, ExportError>;

impl From<DoorError> for ExportError {
    fn from(error: DoorError) -> Self {
        ExportError::Buffer(error.to_string())
    }
}

impl From<PyErr> for ExportError {
    fn from(error: PyErr) -> Self {
        ExportError::Raised("its export failed".to_owned(), error)
    }
}

impl ExportError {
    /// An error that a producer raised while `doing` something, unless it is not about the tensor.
    pub fn raised(py: Python<'_>, doing: impl Into<String>, error: PyErr) -> ExportError {
        if error.is_instance_of::<PyException>(py)
            && !error.is_instance_of::<pyo3::exceptions::PyMemoryError>(py)
        {
            ExportError::Raised(doing.into(), error)
        } else {
            ExportError::Unrelated(error)
        }
    }

    /// The Python exception, with the name of the argument in front.
    pub fn named(self, py: Python<'_>, name: &str) -> PyErr {
        match self {
            ExportError::NotATensor(words) => PyTypeError::new_err(format!("{name}: {words}")),
            ExportError::Buffer(words) => PyBufferError::new_err(format!("{name}: {words}")),
            ExportError::Raised(doing, cause) => {
                let said = first_words(&cause.value(py).to_string());
                let kind = cause.get_type(py).name().map(|n| n.to_string());
                let kind = kind.unwrap_or_else(|_| "exception".to_owned());
                let error = PyBufferError::new_err(format!("{name}: {doing} ({kind}: {said})"));
                error.set_cause(py, Some(cause));
                error
            }
            ExportError::Unrelated(error) => error,
        }
    }
}

/// The first line of a message, and no more than people read: some frameworks append a backtrace.
fn first_words(text: &str) -> String {
    const ENOUGH: usize = 200;
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default().trim();
    match line.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// The Python exception for an error of an operation.
pub fn operation(py: Python<'_>, error: tensor_comm::Error) -> PyErr {
    use tensor_comm::Error;
    match error {
        Error::Buffer(words) => PyBufferError::new_err(words),
        Error::Memory(words) => PyMemoryError::new_err(words),
        Error::Type(words) => PyTypeError::new_err(words),
        Error::Value(words) => PyValueError::new_err(words),
        Error::Mpi(error) => mpi(py, &error),
        Error::Truncated { error, words } => {
            let error = reported(py, &error);
            noted(py, error, &words)
        }
        Error::Mismatch(words) => MismatchError::new_err(words),
        Error::Told(error) => operation(py, *error),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// `mpi4py.MPI.Exception` for what MPI reports, with a note that names the function, which need not be the one that
/// the caller knows of; a count that the library cannot take is a `ValueError`.
pub fn mpi(py: Python<'_>, error: &mpi_runtime::Error) -> PyErr {
    let raised = reported(py, error);
    match error.mpi() {
        Some(inner) => noted(py, raised, &format!("{} reported it", inner.call)),
        None => raised,
    }
}

/// Without the note the exception is still the right one.
fn noted(py: Python<'_>, error: PyErr, words: &str) -> PyErr {
    let _ = error.value(py).call_method1("add_note", (words,));
    error
}

fn reported(py: Python<'_>, error: &mpi_runtime::Error) -> PyErr {
    match error {
        mpi_runtime::Error::Mpi(error) => match Mpi4py::get() {
            Some(mpi4py) => mpi4py.exception(py, error.code),
            None => PyRuntimeError::new_err(error.to_string()),
        },
        other => PyValueError::new_err(other.to_string()),
    }
}

/// A panic of ours: never the user's fault, never silent, never across the C boundary.
pub fn panicked(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    PyRuntimeError::new_err(format!("dlmpi failed inside; please report this: {words}"))
}

/// A native method was reached before `dlmpi.MPI` was imported.
#[cold]
pub fn unbound() -> PyErr {
    PyRuntimeError::new_err("mpi4py is not bound; import dlmpi.MPI first")
}

#[cfg(test)]
mod tests {
    use super::first_words;

    #[test]
    fn a_backtrace_is_cut_at_the_first_line_and_at_any_character() {
        assert_eq!(
            first_words("\n cannot export\n  frame #0: at 0x1\n"),
            "cannot export"
        );
        assert_eq!(first_words(""), "");
        let long = "ä".repeat(500);
        assert_eq!(first_words(&long).chars().count(), 203);
    }
}
