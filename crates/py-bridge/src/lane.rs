//! The short way of blocking calls on plain arrays: elements that lie one behind the other in host memory, as
//! `plain.rs` reads them. No loan is made: the arrays themselves are held during the call, and there is nobody to tell
//! that memory was written.
//!
//! What is not that simple, and whatever is wrong, is left to the general way: `None` means that nothing was done.

mod begun;
mod local;
mod messages;
mod typed;
mod windows;

use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::lane::{self, End, Lane, Ready};
use tensor_comm::{CallKind, Flow};

use crate::collective::{self, Collective, Role, Rooted};
use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::lend::Lend;
use crate::mpi4py::Mpi4py;
use crate::params::{Param, Slots, Takes};
use crate::plain;
use crate::table::{Body, Row};
use crate::track::Holds;
use crate::transfer;

pub use messages::adopt;
pub use windows::{Flush, OneSided, flush_by};

/// The short ways of methods that mpi4py carries out else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// `Sendrecv_replace`.
    Replace,
    /// `Isendrecv`.
    Pair,
    /// `Message.Recv`.
    Matched,
    /// `Alltoallw`.
    Typed,
    /// `Ialltoallw`.
    StartTyped,
    /// `Put` and its like.
    OneSided(OneSided),
    /// `Pack` and `Unpack`, by the flow of the elements.
    Pack(Flow),
}

/// Makes a call, if the short way is open to it: what the method returns.
///
/// # Safety
/// - `slf` is an instance of the row's class.
#[inline]
pub unsafe fn attempt<'py>(
    mpi4py: &'static Mpi4py,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> Option<PyResult<Py<PyAny>>> {
    let py = slf.py();
    // SAFETY:
    // - the caller's promise: it is only asked for where that class is one of communicators.
    let comm = || unsafe { mpi4py.comm_of(slf) };
    let done = match &row.body {
        Body::Collective(one) if one.kind == CallKind::Barrier => {
            interrupt::wait(py, lane::barrier(mpi4py.mpi(), comm())?)
        }
        Body::Collective(one) => {
            let lane = Lane::open(mpi4py.mpi(), comm())?;
            run(py, &collective(mpi4py, one, row.params, lane, slots))?
        }
        Body::Start(one) if one.kind == CallKind::Barrier => {
            let lane = Lane::open_immediate(mpi4py.mpi(), comm())?;
            let mut call = lane.barrier().map(|ready| (ready, Arrays::new()));
            return start(py, mpi4py, &mut call);
        }
        Body::Start(one) => {
            let lane = Lane::open_immediate(mpi4py.mpi(), comm())?;
            let mut call = collective(mpi4py, one, row.params, lane, slots);
            return start(py, mpi4py, &mut call);
        }
        Body::Mprobe if lane::is_open() => return messages::probe(py, mpi4py, row, comm(), slots),
        Body::Send(_) | Body::Recv | Body::Sendrecv if lane::is_open() => {
            messages::attempt(py, mpi4py, row, comm(), slots)?
        }
        Body::Lend(Lend {
            post: Some(post), ..
        }) => return begun::post(py, mpi4py, *post, row, comm(), slots),
        Body::Lend(Lend {
            short: Some(short), ..
        }) if lane::is_open() => match short {
            Short::Replace => messages::replace(py, mpi4py, row, comm(), slots)?,
            Short::Pair => return begun::pair(py, mpi4py, row, comm(), slots),
            Short::Matched => messages::matched(mpi4py, slf, slots)?,
            Short::Typed => {
                let lane = Lane::open(mpi4py.mpi(), comm())?;
                run(py, &typed::ready(mpi4py, lane, slots))?
            }
            Short::StartTyped => {
                let lane = Lane::open_immediate(mpi4py.mpi(), comm())?;
                let mut call = typed::ready(mpi4py, lane, slots);
                return start(py, mpi4py, &mut call);
            }
            Short::OneSided(which) => return windows::begin(mpi4py, *which, slf, slots),
            Short::Pack(elements) => return local::pack(mpi4py, *elements, slf, slots),
        },
        Body::Flush(which) => return windows::flush(mpi4py, *which, slf, slots),
        Body::ReduceLocal => local::reduce(mpi4py, slf, slots)?,
        _ => return None,
    };
    let done = done.map_err(|error| errors::operation(py, error));
    Some(done.map(|()| py.None()))
}

/// A call and the arrays that it is made on, if it takes this way. It stays where it was made: it is large.
type Made<'py> = Option<(Ready, Arrays<'py>)>;

/// Makes a call that waits.
#[inline]
fn run(py: Python<'_>, call: &Made<'_>) -> Option<tensor_comm::Result<()>> {
    let (ready, _held) = call.as_ref()?;
    // SAFETY:
    // - the arrays are held; MPI's rules for overlapping calls are its own to keep.
    Some(interrupt::wait(py, || unsafe { ready.run() }))
}

/// Starts a call: its request.
#[inline]
fn start(
    py: Python<'_>,
    mpi4py: &'static Mpi4py,
    call: &mut Made<'_>,
) -> Option<PyResult<Py<PyAny>>> {
    let (ready, arrays) = call.as_mut()?;
    let mut objects = SmallVec::new();
    while let Some(array) = arrays.pop() {
        objects.push(array.unbind());
    }
    // SAFETY:
    // - the request object holds the arrays until MPI is done with them.
    let flight = py.detach(|| unsafe { ready.start() });
    let held = flight.map_err(|error| errors::operation(py, error));
    let held = held.and_then(|flight| {
        let holds = Holds {
            objects,
            keeps: flight.keeps,
            ..Holds::default()
        };
        transfer::hold(mpi4py, py, flight.request, holds, None)
    });
    Some(held.map(Bound::unbind))
}

/// The arrays of a call.
type Arrays<'py> = SmallVec<[Bound<'py, PyAny>; 2]>;

fn collective<'py>(
    mpi4py: &'static Mpi4py,
    row: &Collective,
    params: &[Param],
    lane: Lane,
    slots: &Slots<'_, 'py>,
) -> Made<'py> {
    let reduces = row.kind.is_reduction();
    let (mut sent, mut received, mut root, mut op) = (None, None, 0, None);
    let mut counts = Vec::new();
    for (param, slot) in params.iter().zip(slots) {
        match (param.takes, slot) {
            (Takes::Sent, Some(given)) => sent = Some(&**given),
            (Takes::Received, Some(given)) => received = Some(&**given),
            (Takes::Either, Some(given)) => {
                (sent, received) = (Some(&**given), Some(&**given));
            }
            (Takes::Int(_), Some(given)) => root = plain::int(given)?,
            (Takes::Counts, Some(given)) => plain::sequence(given, lane.size, &mut counts)?,
            (Takes::Op, given) => {
                op = Some(collective::operation(mpi4py, param.name, given.as_deref()).ok()?);
            }
            _ => {}
        }
    }
    let at_root = root == lane.rank;
    if row.rooted != Rooted::No && usize::try_from(root).ok()? >= lane.size {
        return None;
    }
    let (sends, receives) = match row.rooted {
        Rooted::No => (true, true),
        Rooted::Recv => (true, at_root),
        Rooted::Send => (at_root, true),
        Rooted::Bcast => (at_root, !at_root),
    };
    let size = lane.size;
    let mut arrays = SmallVec::new();
    let mut end = |given: Option<&Bound<'py, PyAny>>, role, wanted: bool, intent| {
        if role == Role::Absent || !wanted {
            return Some(End::Absent);
        }
        let (end, array) = match role {
            Role::Vector => {
                let (blocks, array) = plain::blocks(mpi4py, given?, intent, size)?;
                (End::Blocks(blocks), array)
            }
            _ => {
                let blocks = if role == Role::Blocks { size } else { 1 };
                let (flat, array) = plain::flat(mpi4py, given?, intent, blocks)?;
                (End::Flat(flat), array)
            }
        };
        arrays.push(array);
        Some(end)
    };
    let in_place = reduces && row.rooted == Rooted::No && row.send == Role::Whole;
    let (send, recv) = match (row.rooted, at_root) {
        // One argument, which MPI takes on its receive side.
        (Rooted::Bcast, true) => (End::Absent, end(sent, row.send, true, Intent::Send)?),
        _ => (
            match sent {
                Some(given) if in_place && mpi4py.is_in_place(given) => End::InPlace,
                _ => end(sent, row.send, sends, Intent::Send)?,
            },
            end(received, row.recv, receives, Intent::Receive)?,
        ),
    };
    let ready = lane.ready(row.kind, send, recv, counts, op, root)?;
    Some((ready, arrays))
}
