//! The short way of a non-blocking message: elements that travel from or into where they lie, with
//! nothing to do afterwards but to let them go. One MPI call of our own, no message list, no buffer. (Plain arrays have a
//! shorter one: lane/begun.rs.)
//! Where the library writes past the end of the room, only what is measured first or large is received so.

use mpi_runtime::{Mpi, Request};
use pyo3::prelude::*;
use tensor_comm::{Capacity, SendMode};

use crate::errors;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::p2p::{self, Address};
use crate::params::Slots;
use crate::registry;
use crate::table::Row;
use crate::track::Holds;
use crate::transfer;

/// Which message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// One that is sent.
    Send(SendMode),
    /// One that is received.
    Recv,
}

/// Starts it, if the short way is open to this tensor and peer.
///
/// # Errors
/// What the arguments, MPI or Python have to say.
pub fn start<'py>(
    mpi4py: &Mpi4py,
    post: Post,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let Some(msg) = &slots[0] else {
        return Ok(None);
    };
    let Some(exporter) = registry::known(msg) else {
        return Ok(None);
    };
    let [peer, tag] = p2p::ints(mpi4py, row.params, slots)?;
    let comm = mpi4py.comm(slf)?;
    if peer == mpi.constants().proc_null || comm == mpi.comm_null() {
        return Ok(None);
    }
    let intent = match post {
        Post::Send(_) => Intent::Send,
        Post::Recv => Intent::Receive,
    };
    let mut order = StreamOrder::default();
    let loan = registry::lend_once_by(&*exporter, row.params[0].name, msg, intent, &mut order)?;
    let (view, held) = loan.split();
    let direct = view.layout().is_c_contiguous()
        && view.device().is_host_addressable()
        && !(intent == Intent::Receive && held.must_tell());
    let (dtype, itemsize) = (view.dtype(), view.itemsize());
    let (form, room) = match post {
        Post::Send(_) => (tensor_comm::carrier(mpi, dtype, itemsize), None),
        Post::Recv => (
            tensor_comm::receiver(mpi, dtype, itemsize),
            Some(Capacity::whole(&view)),
        ),
    };
    let (datatype, units) = form.map_err(|error| errors::operation(py, error))?;
    let count = view.numel().saturating_mul(units) as i64;
    if !direct || count > i64::from(i32::MAX) || view.packed_numel().is_some() {
        return Ok(None);
    }
    order.wait(py)?;
    if post == Post::Recv && tensor_comm::overruns(mpi) {
        let receive = || {
            // SAFETY:
            // - as below.
            unsafe {
                tensor_comm::receive_present(mpi, &view, (count, datatype), (peer, tag), comm)
            }
        };
        let received = py.detach(receive);
        if let Some(request) = received.map_err(|error| errors::operation(py, error))? {
            return transfer::hold(mpi4py, py, request, Holds::loan(held), room).map(Some);
        }
        if view.layout().nbytes() < tensor_comm::LARGE {
            return Ok(None);
        }
    }
    let elements = (Address::new(view.data()), count, datatype);
    // SAFETY:
    // - the door found `numel` elements there, writable for a receive, and the loan is held by the request
    //   object until MPI is done with them (transfer.rs).
    let request = py.detach(|| unsafe { begin(mpi, post, elements, (peer, tag), comm) });
    let request = request.map_err(|error| errors::mpi(py, &error))?;
    transfer::hold(mpi4py, py, request, Holds::loan(held), room).map(Some)
}

/// The message as MPI begins it: its elements, and whose they are to be.
///
/// # Safety
/// - The elements are there, writable for a receive, until the request completes.
pub(crate) unsafe fn begin(
    mpi: &Mpi,
    post: Post,
    (data, count, datatype): (Address, i64, mpi_runtime::Datatype),
    (peer, tag): (i32, i32),
    comm: mpi_runtime::Comm,
) -> Result<Request, mpi_runtime::Error> {
    let data = data.get();
    // SAFETY:
    // - the caller's promise.
    unsafe {
        match post {
            Post::Send(SendMode::Standard) => mpi.isend(data, count, datatype, peer, tag, comm),
            Post::Send(SendMode::Synchronous) => mpi.issend(data, count, datatype, peer, tag, comm),
            Post::Send(SendMode::Buffered) => mpi.ibsend(data, count, datatype, peer, tag, comm),
            Post::Send(SendMode::Ready) => mpi.irsend(data, count, datatype, peer, tag, comm),
            Post::Recv => mpi.irecv(data, count, datatype, peer, tag, comm),
        }
    }
}
