//! What the operations of a window or a file work on, held until the window or the file says that they are over.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::transfer::Hold;

/// Memory under way, by the rank that it goes to.
#[pyclass(frozen, module = "dlmpi._native")]
#[derive(Default)]
pub struct Outstanding(Mutex<Begun>);

#[derive(Default)]
struct Begun {
    under_way: Vec<One>,
    /// How many there were so far.
    count: u64,
}

struct One {
    number: u64,
    rank: Option<i32>,
    held: Held,
}

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

    /// What has begun so far.
    pub fn mark(&self) -> u64 {
        self.begun().count
    }

    /// Lets go of what goes to this rank, or to any, and had begun at `mark`.
    ///
    /// # Errors
    /// The first of what a device or a framework has to say.
    pub fn end(&self, py: Python<'_>, rank: Option<i32>, mark: u64) -> PyResult<()> {
        let over: Vec<_> = {
            let mut begun = self.begun();
            let is_over = |one: &mut One| (rank.is_none() || one.rank == rank) && one.number < mark;
            begun.under_way.extract_if(.., is_over).collect()
        };
        // Outside the lock: letting go runs Python code.
        let end = |one: One| match one.held {
            Held::Lent(hold) => hold.get().end(py),
            Held::Array(array) => {
                drop(array);
                Ok(())
            }
        };
        over.into_iter().map(end).fold(Ok(()), PyResult::and)
    }

    fn push(&self, rank: Option<i32>, held: Held) {
        let mut begun = self.begun();
        let number = begun.count;
        begun.count += 1;
        begun.under_way.push(One { number, rank, held });
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.end(py, rank, u64::MAX)
    }
}
