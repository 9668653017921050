//! The door of the collectives.

use crate::call::{Call, CallKind};
use crate::comm::Comm;
use crate::error::Result;
use crate::plan::Plan;
use crate::{movement, reduction};

/// Runs a collective and returns when this rank's part of it is done. Needs no interpreter.
///
/// # Errors
/// Everything that can be found on this rank is found before MPI is entered; the other ranks are then
/// still waiting for this one. What MPI reports comes as [`crate::Error::Mpi`].
pub fn run(comm: &Comm, call: &Call) -> Result<()> {
    match call.kind {
        CallKind::Barrier => Ok(comm.mpi().barrier(comm.raw())?),
        _ => plan(*comm, call)?.run(*comm),
    }
}

/// Makes a call ready: everything that can be refused on this rank is refused here.
pub(crate) fn plan(comm: Comm, call: &Call) -> Result<Plan> {
    if call.kind.is_reduction() {
        reduction::plan(comm, call)
    } else {
        movement::plan(comm, call)
    }
}
