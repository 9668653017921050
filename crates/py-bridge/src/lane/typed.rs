//! The short way of `Alltoallw` and `Ialltoallw` of plain arrays whose blocks are all of their own Datatype.

use smallvec::smallvec;
use tensor_comm::lane::Lane;

use super::Made;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::params::Slots;
use crate::plain;

/// The call, and its arrays.
#[inline]
pub fn ready<'py>(mpi4py: &'static Mpi4py, lane: Lane, slots: &Slots<'_, 'py>) -> Made<'py> {
    let side = |slot: usize, intent| plain::typed(mpi4py, slots[slot].as_ref()?, intent, lane.size);
    let (sent, from) = side(0, Intent::Send)?;
    let (received, into) = side(1, Intent::Receive)?;
    let ready = lane.typed(sent, received)?;
    Some((ready, smallvec![from, into]))
}
