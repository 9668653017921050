//! Several requests of MPI's own completed or started at once, by one call of MPI's or mpi4py's, where nothing else is to be
//! done about any of them. Knows the classes of requests, no operation.

use mpi_runtime::{Error as MpiCallError, Request, StatusArray};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;

use crate::classes::Tracked;
use crate::mpi4py::{self, Mpi4py};
use crate::p2p::Shared;
use crate::track::Track;
use crate::{errors, interrupt};

/// Requests and their tracks, which write into them: another thread may take a request out of the caller's list.
type Tracks<'py> = SmallVec<[(Bound<'py, PyAny>, Bound<'py, Track>); 16]>;

/// What `Waitall` came to.
pub enum Waited<'py> {
    /// All are complete.
    Done,
    /// Nothing was done: another way must be taken.
    Not,
    /// One failed: MPI's error, the requests, and a status of each.
    Failed(PyErr, Bound<'py, PyList>, Bound<'py, PyList>),
}

/// Waits for all requests, where each is one of a message or a small collective, or a persistent one, with which nothing is
/// left to do but to judge what came.
///
/// # Errors
/// What was not right about a message.
pub fn wait_all<'py>(requests: &Bound<'py, PyAny>) -> PyResult<Waited<'py>> {
    let (py, mpi4py) = (requests.py(), mpi4py::bound()?);
    let mpi = mpi4py.mpi();
    let mut tracks = Tracks::new();
    let plain = |track: &Track, kept: bool| match kept {
        true => track.is_sure(),
        false => track.is_plain(),
    };
    if !find(mpi4py, requests, &mut tracks, plain)? {
        return Ok(Waited::Not);
    }
    let mut handles = handles(&tracks);
    let mut native = StatusArray::new(mpi, handles.len());
    let all = Shared::new(native.as_ptr());
    // SAFETY:
    // - mpi4py's own `Waitall` may complete them, too; there is a status for each.
    let done = interrupt::wait(py, || unsafe { mpi.waitall(&mut handles, all.get()) });
    for ((_, track), handle) in tracks.iter().zip(&handles) {
        track.get().set_request(*handle);
    }
    if let Err(error) = done {
        let requests = PyList::new(py, tracks.iter().map(|(request, _)| request))?;
        return failed(mpi4py, requests, &error, &mut native);
    }
    for (at, (_, track)) in tracks.iter().enumerate() {
        let track = track.get();
        if let Some(status) = native.get(at) {
            // SAFETY:
            // - MPI has filled it in.
            unsafe { track.outcome(Ok(()), status) }
                .map_err(|error| errors::operation(py, error))?;
        }
        track.failure().map_or(Ok(()), Err)?;
    }
    Ok(Waited::Done)
}

/// Starts persistent requests of MPI's own, where nothing else is to be done about any; whether they were.
///
/// # Errors
/// What MPI reports.
pub fn start_all(requests: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, mpi4py) = (requests.py(), mpi4py::bound()?);
    let plain = |track: &Track, kept: bool| kept && track.starts_plainly();
    let mut tracks = Tracks::new();
    if !find(mpi4py, requests, &mut tracks, plain)? {
        return Ok(false);
    }
    let mut handles = handles(&tracks);
    // SAFETY:
    // - each is the request of a persistent request object, which holds its buffers; what is null MPI refuses.
    let done = py.detach(|| unsafe { mpi4py.mpi().startall(&mut handles) });
    for ((_, track), handle) in tracks.iter().zip(&handles) {
        track.get().set_request(*handle);
    }
    done.map_err(|error| errors::mpi(py, &error)).map(|()| true)
}

fn handles(tracks: &Tracks<'_>) -> SmallVec<[Request; 16]> {
    let request = |(_, track): &(_, Bound<'_, Track>)| track.get().request();
    tracks.iter().map(request).collect()
}

/// The tracks of a list or tuple of our requests; whether this holds of each, which hears whether it is a persistent one.
fn find<'py>(
    mpi4py: &Mpi4py,
    requests: &Bound<'py, PyAny>,
    tracks: &mut Tracks<'py>,
    holds: impl Fn(&Track, bool) -> bool,
) -> PyResult<bool> {
    if let Ok(list) = requests.cast_exact::<PyList>() {
        collect(mpi4py, list.iter(), tracks, holds)
    } else if let Ok(tuple) = requests.cast_exact::<PyTuple>() {
        collect(mpi4py, tuple.iter(), tracks, holds)
    } else {
        Ok(false)
    }
}

fn collect<'py>(
    mpi4py: &Mpi4py,
    requests: impl Iterator<Item = Bound<'py, PyAny>>,
    tracks: &mut Tracks<'py>,
    holds: impl Fn(&Track, bool) -> bool,
) -> PyResult<bool> {
    let classes = mpi4py.classes()?;
    for request in requests {
        let (once, twice) = (
            [&classes.receipt, &classes.transfer],
            [&classes.kept, &classes.persistent],
        );
        let of = |class: &&&Tracked| class.is(&request);
        let (class, kept) = match (once.iter().find(of), twice.iter().find(of)) {
            (Some(class), _) => (class, false),
            (_, Some(class)) => (class, true),
            _ => return Ok(false),
        };
        // SAFETY:
        // - it is of this class.
        let Some(track) = (unsafe { class.track(&request) }) else {
            return Ok(false);
        };
        if !holds(track.get(), kept) {
            return Ok(false);
        }
        tracks.push((request, track));
    }
    Ok(true)
}

/// MPI's error as mpi4py's, and the statuses as objects of its own.
fn failed<'py>(
    mpi4py: &Mpi4py,
    requests: Bound<'py, PyList>,
    error: &MpiCallError,
    native: &mut StatusArray,
) -> PyResult<Waited<'py>> {
    let py = requests.py();
    let class = mpi4py.module(py).getattr("Status")?;
    let statuses = PyList::empty(py);
    for at in 0..requests.len() {
        let status = class.call0()?;
        if let Some(from) = native.get(at) {
            let into = mpi4py.status(Some(&status))?;
            // SAFETY:
            // - both are statuses of this library, of as many bytes, and apart.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.0.cast::<u8>(),
                    into.0.cast(),
                    mpi4py.mpi().status_bytes(),
                );
            }
        }
        statuses.append(status)?;
    }
    let raised = match error.mpi() {
        Some(inner) => mpi4py.exception(py, inner.code),
        None => errors::mpi(py, error),
    };
    Ok(Waited::Failed(raised, requests, statuses))
}
