//! What keeps the memory that an operation works on, and what is left to do with it when the operation
//! has ended. Knows no operation.

use pyo3::prelude::*;
use tensor_comm::Posted;

use crate::errors;
use crate::framework::Intent;
use crate::loan::Held;

/// A loan, with the form in which its elements travel where that is not the tensor's own memory.
pub struct Cargo {
    held: Held,
    posted: Option<Posted>,
    written: bool,
}

impl Cargo {
    /// The tensor's own memory.
    pub fn raw(held: Held, intent: Intent) -> Cargo {
        Cargo {
            held,
            posted: None,
            written: intent == Intent::Receive,
        }
    }

    /// Elements in the form in which they travel.
    pub fn posted(held: Held, posted: Posted, intent: Intent) -> Cargo {
        Cargo {
            posted: Some(posted),
            ..Cargo::raw(held, intent)
        }
    }

    /// The memory was written, and will be again: tells the framework.
    ///
    /// # Errors
    /// What the framework has to say.
    pub fn tell(&self, py: Python<'_>) -> PyResult<()> {
        match self.written {
            true => self.held.wrote(py),
            false => Ok(()),
        }
    }

    /// The operation has ended: brings home what was received and tells the framework. What is left only
    /// keeps the memory.
    pub fn settle(self, py: Python<'_>) -> (Cargo, PyResult<()>) {
        let Cargo {
            held,
            posted,
            written,
        } = self;
        let mut told = Ok(());
        if written {
            let settled = match posted {
                Some(posted) => py.detach(move || posted.settle()),
                None => Ok(()),
            };
            told = settled
                .map_err(|error| errors::operation(py, error))
                .and_then(|()| held.wrote(py));
        }
        let left = Cargo {
            held,
            posted: None,
            written: false,
        };
        (left, told)
    }

    /// Leaves everything where it is: MPI may still write it.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}
