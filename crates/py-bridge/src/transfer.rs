//! Requests of MPI's own: the caller's request object for an operation, and the buffers that are lent to one that mpi4py
//! starts. What the object does is in track.rs.
//!
//! mpi4py releases the lent buffers inside the call that completes a request, and there results settle
//! (borrow.rs).

use mpi_runtime::{Mpi, Request};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensor_comm::{Capacity, Keeps};

use crate::borrow::Borrowed;
use crate::classes::Tracked;
use crate::framework::Intent;
use crate::loan::Loan;
use crate::memory::Given;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::orphans::{self, Orphan};
use crate::registry;
use crate::spans::{self, Span};
use crate::track::{Holds, Track};

/// Buffers lent to one operation, and objects that mpi4py took as they are.
#[derive(Default)]
pub struct Lent {
    /// Ours.
    pub buffers: SmallVec<[Py<Borrowed>; 2]>,
    /// Theirs.
    pub objects: SmallVec<[Py<PyAny>; 2]>,
    /// What else MPI uses.
    pub keeps: Keeps,
    /// Of a message that is received: what there is room for.
    pub room: Option<Capacity>,
    /// Whether the status of its request may be of something else.
    pub unsure: bool,
    /// Of an operation that starts again and again: whether elements are brought into another form each time.
    pub staged: bool,
    /// The bytes that each side reaches whose elements could be copied.
    pub spans: SmallVec<[Vec<Span>; 2]>,
    /// The addresses that MPI is given of the sides of a movement that is divided among ranks.
    pub addresses: SmallVec<[usize; 2]>,
    /// Tensors on which kernels work: an operation that is started waits for them each time.
    pub again: Vec<(Py<PyAny>, Intent)>,
}

impl Lent {
    /// Lends a buffer to a method of mpi4py's until the operation is over.
    ///
    /// # Errors
    /// What Python raised.
    pub fn lend<'py>(&mut self, py: Python<'py>, buffer: Borrowed) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Bound::new(py, buffer)?;
        self.buffers.push(buffer.clone().unbind());
        Ok(buffer.into_any())
    }

    /// How the send side is to be given to MPI, where it cannot be as it was.
    pub fn apart(&self, mpi: &Mpi) -> Option<Given> {
        if matches!(&self.spans[..], [one, other] if spans::meet(one, other)) {
            return Some(Given::Copied);
        }
        let alike = matches!(self.addresses[..], [one, other] if one == other);
        (alike && tensor_comm::takes_one_address_for_in_place(mpi)).then_some(Given::Shifted)
    }

    /// Waits until the work that is queued on the tensors by now is done.
    ///
    /// # Errors
    /// What an export or a device has to say.
    pub fn wait_again(&self, py: Python<'_>) -> PyResult<()> {
        let mut order = StreamOrder::default();
        let lend = |(tensor, intent): &(Py<PyAny>, Intent)| {
            registry::lend("tensor", tensor.bind(py), *intent, &mut order)
        };
        let held: Vec<Loan> = self.again.iter().map(lend).collect::<PyResult<_>>()?;
        order.wait(py)?;
        drop(held);
        Ok(())
    }

    /// Whether each of the memories is known to be of no more than `most` bytes.
    pub fn is_within(&self, py: Python<'_>, most: usize) -> bool {
        let small = |object: &Py<PyAny>| {
            let flat = registry::flat(object.bind(py), Intent::Send);
            flat.is_some_and(|flat| flat.bytes() <= most)
        };
        self.buffers
            .iter()
            .all(|buffer| buffer.get().size() <= most)
            && self.objects.iter().all(small)
    }

    /// Whether nothing is to be done about the tensors when the operation starts.
    pub fn starts_plainly(&self) -> bool {
        self.again.is_empty() && !self.buffers.iter().any(|buffer| buffer.get().tells())
    }

    /// What went wrong when mpi4py let go of the buffers.
    pub fn failure(&self) -> Option<PyErr> {
        self.buffers
            .iter()
            .find_map(|buffer| buffer.get().failure())
    }

    /// The operation is over: settles what nobody holds.
    ///
    /// # Errors
    /// The first of what a device or a framework has to say.
    pub fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.buffers
            .iter()
            .map(|buffer| buffer.get().end(py))
            .fold(Ok(()), PyResult::and)
    }
}

/// The caller's request object for an operation that mpi4py has started: ours where memory of the caller
/// is under way, mpi4py's own where none is.
///
/// # Errors
/// What Python raised.
pub fn follow<'py>(
    mpi4py: &Mpi4py,
    request: Bound<'py, PyAny>,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    if lent.buffers.is_empty() && lent.objects.is_empty() {
        return Ok(request);
    }
    for buffer in &lent.buffers {
        if buffer.get().is_exported() {
            // A receive's request asks (`judge`).
            buffer.get().end_on_release(lent.room.is_some());
        }
    }
    let py = request.py();
    let class = class(mpi4py, lent.room)?;
    let ours = class.class(py).call1((&request,))?;
    keep(mpi4py, class, &ours, lent)?;
    Ok(ours)
}

/// The caller's request object for an operation that can be started again: its memory is held until the
/// request is freed.
///
/// # Errors
/// What Python raised.
pub fn persist<'py>(
    mpi4py: &Mpi4py,
    request: Bound<'py, PyAny>,
    lent: Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = request.py();
    let classes = mpi4py.classes()?;
    let tells = lent.buffers.iter().any(|buffer| buffer.get().tells());
    let class = match lent.room.is_some() || tells || !lent.again.is_empty() {
        true => &classes.persistent,
        false => &classes.kept,
    };
    let ours = class.class(py).call1((&request,))?;
    keep(mpi4py, class, &ours, lent)?;
    Ok(ours)
}

/// Memory that a window or file works on until it says that it is done.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Hold {
    lent: Lent,
}

impl Hold {
    /// Holds what was lent.
    pub fn new(lent: Lent) -> Hold {
        Hold { lent }
    }

    /// The operation is over.
    ///
    /// # Errors
    /// The first of what a device or a framework has to say.
    pub fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.lent.end(py)
    }
}

/// The caller's request object for an operation that was started here, on memory that nothing is left
/// to do with but to judge what came.
///
/// # Errors
/// What Python raised.
#[inline]
pub fn hold<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    request: Request,
    holds: Holds,
    room: Option<Capacity>,
) -> PyResult<Bound<'py, PyAny>> {
    hold_surely(mpi4py, py, request, holds, room, true)
}

/// The same where the status of the request may be of something else than what came.
///
/// # Errors
/// As for [`hold`].
pub fn hold_surely<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    request: Request,
    holds: Holds,
    room: Option<Capacity>,
    sure: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let made = class(mpi4py, room).and_then(|class| Ok((class, class.make(py)?)));
    let (class, ours) = match made {
        Ok(made) => made,
        Err(error) => {
            // MPI has begun, and nobody will ask for it.
            orphans::adopt(Orphan {
                mpi: mpi4py.mpi(),
                request,
                owned: true,
                cargo: SmallVec::new(),
                holds,
            });
            return Err(error);
        }
    };
    // SAFETY:
    // - our classes of requests are derived from mpi4py's.
    let handle = unsafe { mpi4py.request_handle_of(&ours) };
    handle.set(request.raw());
    attach(
        class,
        &ours,
        Track::holding(mpi4py.mpi(), handle, holds, room, sure),
    )?;
    Ok(ours)
}

fn class(mpi4py: &Mpi4py, room: Option<Capacity>) -> PyResult<&Tracked> {
    let classes = mpi4py.classes()?;
    Ok(match room {
        Some(_) => &classes.receipt,
        None => &classes.transfer,
    })
}

fn keep(mpi4py: &Mpi4py, class: &Tracked, request: &Bound<'_, PyAny>, lent: Lent) -> PyResult<()> {
    let handle = mpi4py.request_handle(request)?;
    attach(class, request, Track::lending(mpi4py.mpi(), handle, lent))
}

fn attach(class: &Tracked, request: &Bound<'_, PyAny>, track: Track) -> PyResult<()> {
    let py = request.py();
    orphans::sweep(py, orphans::GLANCE);
    let track = Bound::new(py, track)?;
    // SAFETY:
    // - it was made by this class just now.
    unsafe { class.keep(request, track) };
    Ok(())
}
