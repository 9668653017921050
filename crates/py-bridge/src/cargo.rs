//! What keeps the memory that an operation works on, and what is left to do with it when the operation
//! has ended. Knows no operation.

use mpi_runtime::Datatype;
use pyo3::prelude::*;
use tensor_comm::{Moat, Posted, Shaped, Shifted};

use crate::errors;
use crate::framework::Intent;
use crate::loan::Held;

/// A loan, with the form in which its elements travel where that is not the tensor's own memory.
pub struct Cargo {
    held: Held,
    posted: Option<Posted>,
    described: Option<Described>,
    written: bool,
}

/// A Datatype of the memory, which stays as long: libraries look at it whenever a persistent collective starts.
pub enum Described {
    /// Of the elements of a tensor that has gaps.
    Shaped(Shaped),
    /// Of room for a message that may be longer.
    Moat(Moat),
    /// Of memory beside the address.
    Shifted(Shifted),
}

impl Described {
    /// Its handle. One of it, at the address of the memory, is all of it.
    pub fn datatype(&self) -> Datatype {
        match self {
            Described::Shaped(shape) => shape.datatype(),
            Described::Moat(moat) => moat.datatype(),
            Described::Shifted(shifted) => shifted.datatype(),
        }
    }
}

impl Cargo {
    /// The tensor's own memory.
    pub fn raw(held: Held, intent: Intent) -> Cargo {
        Cargo {
            held,
            posted: None,
            described: None,
            written: intent == Intent::Receive,
        }
    }

    /// The same under a Datatype of its own.
    pub fn described(self, by: Described) -> Cargo {
        Cargo {
            described: Some(by),
            ..self
        }
    }

    /// The operation starts again: the elements, or one of so many parts, as they are now. For those that
    /// nobody must be told about, without the interpreter.
    ///
    /// # Errors
    /// A form that the elements cannot have.
    ///
    /// # Safety
    /// - As for [`Posted::refresh`].
    pub unsafe fn refresh(&self, part: Option<(usize, usize)>) -> tensor_comm::Result<()> {
        match &self.posted {
            // SAFETY:
            // - The caller's promise.
            Some(posted) => unsafe { posted.refresh(part) },
            None => Ok(()),
        }
    }

    /// It has ended, or one of so many parts has arrived, and it will start again: brings home what was received.
    ///
    /// # Errors
    /// As for [`Cargo::settle`].
    ///
    /// # Safety
    /// - MPI is done with the elements, or with this part of them.
    pub unsafe fn bring_home(&self, part: Option<(usize, usize)>) -> tensor_comm::Result<()> {
        match (&self.posted, part) {
            // SAFETY:
            // - The caller's promise.
            (Some(posted), Some(part)) => unsafe { posted.settle_part(part) },
            // SAFETY:
            // - As above.
            (Some(posted), None) => unsafe { posted.settle() },
            (None, _) => Ok(()),
        }
    }

    /// Elements in the form in which they travel.
    pub fn posted(held: Held, posted: Posted, intent: Intent) -> Cargo {
        Cargo {
            posted: Some(posted),
            ..Cargo::raw(held, intent)
        }
    }

    /// Whether a framework is to hear when the memory was written.
    pub fn tells(&self) -> bool {
        self.written && self.held.must_tell()
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
            described,
            written,
        } = self;
        let mut told = Ok(());
        if written {
            let settled = match posted {
                // SAFETY:
                // - The operation has ended: mpi4py has let go of the memory, or its request is complete.
                Some(posted) => py.detach(move || unsafe { posted.settle() }),
                None => Ok(()),
            };
            told = settled
                .map_err(|error| errors::operation(py, error))
                .and_then(|()| held.wrote(py));
        }
        let left = Cargo {
            held,
            posted: None,
            described,
            written: false,
        };
        (left, told)
    }

    /// Leaves everything where it is: MPI may still write it.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}
