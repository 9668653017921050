//! What the engine carries: a job that goes on step by step, and whoever keeps its tensors meanwhile.
//!
//! Knows when a job is over and who must hear of it, not what the job does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handle::Keep;
use crate::error::{Error, Result};

/// How far a step came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing moved.
    Idle,
    /// Something moved.
    Moved,
    /// It has ended.
    Ended,
}

/// Work as a state machine over MPI's non-blocking calls.
pub(crate) trait Job: Send {
    /// Goes on as far as it can without waiting. Not called again after it ended or failed.
    fn advance(&mut self) -> Result<Step>;

    /// It ended or failed; says whether the receive side may have been written.
    fn ended(&mut self) -> bool;
}

/// One operation.
pub(crate) struct Operation {
    job: Box<dyn Job>,
    keep: Box<dyn Keep>,
}

impl Operation {
    pub fn new(job: Box<dyn Job>, keep: Box<dyn Keep>) -> Operation {
        Operation { job, keep }
    }

    /// Goes on; `Err` holds how it ended.
    pub fn step(&mut self) -> std::result::Result<Step, Result<()>> {
        let result = match catch_unwind(AssertUnwindSafe(|| self.job.advance())) {
            Ok(Ok(Step::Ended)) => Ok(()),
            Ok(Ok(step)) => return Ok(step),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::State(
                "dlmpi's engine panicked in this operation; please report it".into(),
            )),
        };
        let written = self.job.ended();
        // Python code may run here; its panics must not take the engine down.
        let _ = catch_unwind(AssertUnwindSafe(|| self.keep.done(written)));
        Err(result)
    }
}
