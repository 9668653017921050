//! What the operations of a window or a file work on, held until the window or the file says that they are over.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::transfer::Hold;

/// Memory under way, by the rank that it goes to.
#[pyclass(frozen, module = "dlmpi._native")]
#[derive(Default)]
pub struct Outstanding(Mutex<Vec<(Option<i32>, Held)>>);

/// What an operation works on.
enum Held {
    /// Memory that was lent, and is settled.
    Lent(Py<Hold>),
    /// An array that is only let go.
    Array(Py<PyAny>),
}

impl Outstanding {
    /// Outstanding an array with which nothing is left to do.
    pub fn array(&self, rank: i32, array: &Bound<'_, PyAny>) {
        self.push(Some(rank), Held::Array(array.clone().unbind()));
    }

    /// Lets go of what goes to this rank, or to any.
    ///
    /// # Errors
    /// The first of what a device or a framework has to say.
    pub fn end(&self, py: Python<'_>, rank: Option<i32>) -> PyResult<()> {
        let over: Vec<_> = {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_over = |one: &mut (Option<i32>, Held)| rank.is_none() || one.0 == rank;
            held.extract_if(.., is_over).collect()
        };
        // Outside the lock: letting go runs Python code.
        let end = |(_, held)| match held {
            Held::Lent(hold) => hold.get().end(py),
            Held::Array(array) => {
                drop(array);
                Ok(())
            }
        };
        over.into_iter().map(end).fold(Ok(()), PyResult::and)
    }

    fn push(&self, rank: Option<i32>, held: Held) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((rank, held));
    }
}

#[pymethods]
impl Outstanding {
    #[new]
    fn new() -> Outstanding {
        Outstanding::default()
    }

    /// Outstanding memory that was lent.
    #[pyo3(signature = (rank, hold, /))]
    fn add(&self, rank: Option<i32>, hold: Py<Hold>) {
        self.push(rank, Held::Lent(hold));
    }

    /// Lets go of what goes to this rank, or to any.
    #[pyo3(signature = (rank=None, /))]
    fn release(&self, py: Python<'_>, rank: Option<i32>) -> PyResult<()> {
        self.end(py, rank)
    }
}
