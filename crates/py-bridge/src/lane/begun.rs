//! The short way of non-blocking messages of plain arrays, which the request object holds until MPI is done with them.

use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::Comm;
use tensor_comm::lane::{self, Carried};

use crate::errors;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::p2p::{self, Address};
use crate::params::Slots;
use crate::plain;
use crate::post::{self, Post};
use crate::table::Row;
use crate::track::Holds;
use crate::transfer;

/// `Isend` in its modes, and `Irecv`.
#[inline]
pub fn post(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    post: Post,
    row: &Row,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let mpi = mpi4py.mpi();
    tensor_comm::attend(mpi).ok()?;
    let [peer, tag] = p2p::ints(mpi4py, row.params, slots).ok()?;
    if peer == mpi.constants().proc_null || comm == mpi.comm_null() {
        return None;
    }
    let (intent, receives) = match post {
        Post::Send(_) => (Intent::Send, false),
        Post::Recv => (Intent::Receive, true),
    };
    let (flat, array) = plain::flat(mpi4py, slots[0].as_ref()?, intent, 1)?;
    let carried = match receives {
        false => Carried::sent(mpi, flat),
        true => Carried::received(mpi, flat),
    }?;
    let begun = if receives && tensor_comm::overruns(mpi) {
        // SAFETY:
        // - as below.
        let begin = || unsafe { tensor_comm::receive_guarded(mpi, &carried, (peer, tag), comm) };
        py.detach(begin).transpose()?
    } else {
        let (count, datatype) = carried.counted();
        let elements = (Address::new(carried.data()), count, datatype);
        // SAFETY:
        // - the array has these elements, and is held by the request object until MPI is done with them.
        let begin = || unsafe { post::begin(mpi, post, elements, (peer, tag), comm) };
        py.detach(begin).map_err(tensor_comm::Error::from)
    };
    let room = receives.then(|| carried.capacity());
    let held = || {
        let request = begun.map_err(|error| errors::operation(py, error))?;
        let holds = Holds::object(array.unbind());
        transfer::hold(mpi4py, py, request, holds, room).map(Bound::unbind)
    };
    Some(held())
}

/// `Isendrecv`.
#[inline]
pub fn pair(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    row: &Row,
    comm: mpi_runtime::Comm,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let mpi = mpi4py.mpi();
    let comm = Comm::new(mpi, comm).ok()?;
    let [dest, sendtag, source, recvtag] = p2p::ints(mpi4py, row.params, slots).ok()?;
    let null = mpi.constants().proc_null;
    if dest == null || source == null {
        return None;
    }
    let (sent, sent_array) = plain::flat(mpi4py, slots[0].as_ref()?, Intent::Send, 1)?;
    let (room, room_array) = plain::flat(mpi4py, slots[3].as_ref()?, Intent::Receive, 1)?;
    if sent.meets(&room) {
        return None;
    }
    let (sent, room) = (Carried::sent(mpi, sent)?, Carried::received(mpi, room)?);
    let capacity = room.capacity();
    let (sent, room) = ((sent, dest, sendtag), (room, source, recvtag));
    // SAFETY:
    // - the arrays have these elements, and are held by the request object until MPI is done with them; they are apart.
    let begin = || unsafe { lane::isendrecv(comm, sent, room) };
    let begun = py.detach(begin).transpose()?;
    let held = || {
        let request = begun.map_err(|error| errors::operation(py, error))?;
        let holds = Holds {
            objects: SmallVec::from_buf([sent_array.unbind(), room_array.unbind()]),
            ..Holds::default()
        };
        let sure = tensor_comm::tells_of_pairs(mpi);
        transfer::hold_surely(mpi4py, py, request, holds, Some(capacity), sure).map(Bound::unbind)
    };
    Some(held())
}
