//! One start of a persistent request of MPI's, until MPI says that it is complete. Knows no operation.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mpi_runtime::{Mpi, Request, StatusBuf};

use super::handle::{Handle, Keep};
use super::operation::{Job, Step};
use crate::brief::Brief;
use crate::error::Result;
use crate::fits::Arrived;
use crate::watch::About;

/// What a receive learned of its message.
pub type Landed = Arc<OnceLock<Arrived>>;

/// A persistent request that has been started and that nobody else completes.
pub struct Started {
    /// The library.
    pub mpi: &'static Mpi,
    /// Its handle, which stays what it is.
    pub request: Request,
    /// Held while MPI is asked: others may ask for parts of it.
    pub asking: Arc<Mutex<()>>,
    /// Of a message that is received: where to say what came.
    pub landed: Option<Landed>,
}

impl Started {
    /// Carries it to its end by the engine.
    ///
    /// # Errors
    /// [`crate::Error::State`] once the engine has stopped; the request is under way then.
    ///
    /// # Safety
    /// - The request was started, is completed nowhere else, and is not freed before `keep` hears of the end.
    pub unsafe fn carry(self, name: &'static str, keep: Box<dyn Keep>) -> Result<Handle> {
        let handle = super::begin(self, keep, About::unnumbered(Brief::named(name)));
        super::carry(&handle)?;
        Ok(handle)
    }
}

impl Job for Started {
    fn advance(&mut self) -> Result<Step> {
        let mut status = StatusBuf::new();
        let status = status.as_ptr();
        let ended = {
            let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY:
            // - `carry`'s promise; the status is writable.
            unsafe { self.mpi.test(&mut self.request, status) }?
        };
        if !ended {
            return Ok(Step::Idle);
        }
        if let Some(landed) = &self.landed {
            // SAFETY:
            // - MPI has filled this status in.
            let _ = landed.set(unsafe { Arrived::of(self.mpi, status) }?);
        }
        Ok(Step::Ended)
    }

    fn ended(&mut self) -> bool {
        true
    }
}
