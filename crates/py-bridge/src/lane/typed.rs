//! The short way of `Alltoallw` of plain arrays whose blocks are all of their own Datatype.

use pyo3::prelude::*;
use tensor_comm::Result;
use tensor_comm::lane::Lane;

use crate::framework::Intent;
use crate::interrupt;
use crate::mpi4py::Mpi4py;
use crate::params::Slots;
use crate::plain;

/// Makes the call.
#[inline]
pub fn attempt(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<Result<()>> {
    let lane = Lane::open(mpi4py.mpi(), comm)?;
    let side = |slot: usize, intent| plain::typed(mpi4py, slots[slot].as_ref()?, intent, lane.size);
    let (sent, _held) = side(0, Intent::Send)?;
    let (received, _held_too) = side(1, Intent::Receive)?;
    let ready = lane.typed(sent, received)?;
    // SAFETY:
    // - the arrays are held; MPI's rules for overlapping calls are its own to keep.
    Some(interrupt::wait(py, || unsafe { ready.run() }))
}
