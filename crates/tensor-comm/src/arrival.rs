//! Receiving on Open MPI, which writes past the end of the room when a longer message arrives (5.0.11,
//! messages that are not eager; small ones from the process itself are cut without an error).
//!
//! There a message is matched first (`MPI_Mprobe`), measured, and received whole into memory of its own
//! when it does not fit, so that `MPI_ERR_TRUNCATE` is all that happens. A non-blocking receive cannot
//! wait for its message: what is there already is measured, else `guard.rs` makes the room, except of large ones.

use dlpack_core::View;
use mpi_runtime::{Comm, Datatype, Family, Message, Mpi, Request, StatusBuf, StatusPtr};

use crate::error::{Error, Result};
use crate::fits::{Arrived, Capacity, truncated};
use crate::scratch::Scratch;
use crate::wiretype::byte;

/// Room for a message.
pub(crate) struct Room {
    pub ptr: *mut u8,
    pub count: i64,
    pub datatype: Datatype,
    pub bytes: usize,
}

/// Whether this library needs the detour.
#[must_use]
pub fn overruns(mpi: &Mpi) -> bool {
    mpi.family() == Family::OpenMpi
}

/// `MPI_Recv` that never writes outside `room`.
///
/// # Safety
/// - `room` is writable for `count` elements of its datatype, `bytes` bytes, until the call returns.
/// - `status` is ignored or a writable status of this library.
pub(crate) unsafe fn recv(
    mpi: &Mpi,
    room: &Room,
    source: i32,
    tag: i32,
    comm: Comm,
    status: StatusPtr,
) -> Result<()> {
    if !overruns(mpi) || source == mpi.constants().proc_null {
        // From nobody nothing can be too long, and a probe does not look whether the communicator was revoked.
        // SAFETY:
        // - the caller's promise.
        return Ok(unsafe {
            mpi.recv(
                room.ptr,
                room.count,
                room.datatype,
                source,
                tag,
                comm,
                status,
            )
        }?);
    }
    // SAFETY:
    // - `status` is writable.
    let mut message = unsafe { mpi.mprobe(source, tag, comm, status) }?;
    // SAFETY:
    // - MPI_Mprobe has just filled `status`.
    let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
    let fits = came.is_none_or(|came| came as usize <= room.bytes);
    if fits {
        // SAFETY:
        // - the caller's promise; the message was matched here and is received here.
        return Ok(unsafe {
            mpi.mrecv(room.ptr, room.count, room.datatype, &mut message, status)
        }?);
    }
    // SAFETY:
    // - the message was matched here; `status` is writable.
    Err(unsafe { receive_elsewhere(mpi, message, came.unwrap_or(0), comm, status) }?)
}

/// Starts to receive a message that has come already into `view`, which is `count` of `datatype`; `None`
/// where none has. One that does not fit is received elsewhere, and is an error.
///
/// # Errors
/// `MPI_ERR_TRUNCATE` in words, and what MPI reports.
///
/// # Safety
/// - The elements of `view` lie one after the other, are writable, and nothing else touches or frees them until
///   the request completes.
pub unsafe fn receive_present(
    mpi: &Mpi,
    view: &View,
    (count, datatype): (i64, Datatype),
    (source, tag): (i32, i32),
    comm: Comm,
) -> Result<Option<Request>> {
    let room = Room {
        ptr: view.data(),
        count,
        datatype,
        bytes: view.layout().nbytes(),
    };
    // SAFETY:
    // - the caller's promise.
    unsafe { receive_present_in(mpi, &room, Capacity::whole(view), (source, tag), comm) }
}

/// The same into a room.
///
/// # Errors
/// As for [`receive_present`].
///
/// # Safety
/// - As for [`receive_present`], for the room.
pub(crate) unsafe fn receive_present_in(
    mpi: &Mpi,
    room: &Room,
    capacity: Capacity,
    (source, tag): (i32, i32),
    comm: Comm,
) -> Result<Option<Request>> {
    let mut status = StatusBuf::new();
    let status = status.as_ptr();
    // SAFETY:
    // - `status` is writable.
    let Some(mut message) = unsafe { mpi.improbe(source, tag, comm, status) }? else {
        return Ok(None);
    };
    // SAFETY:
    // - MPI_Improbe has just filled `status`.
    let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
    if came.is_none_or(|came| came as usize <= room.bytes) {
        // SAFETY:
        // - the caller's promise; the message was matched here and is received here.
        let request = unsafe { mpi.imrecv(room.ptr, room.count, room.datatype, &mut message) }?;
        return Ok(Some(request));
    }
    // SAFETY:
    // - the message was matched here; `status` is writable.
    let error = unsafe { receive_elsewhere(mpi, message, came.unwrap_or(0), comm, status) }?;
    // SAFETY:
    // - MPI_Mrecv has just filled `status`.
    let came = unsafe { Arrived::of(mpi, status) }?;
    Err(capacity.explain(mpi, error, came))
}

/// Whether a message for a receive is there already and longer than `bytes`, as far as a look tells: of a receive from any
/// source that is so of every message, since Open MPI may give it another one than it shows.
///
/// # Errors
/// What MPI reports.
pub fn is_exceeded(mpi: &Mpi, bytes: usize, (source, tag): (i32, i32), comm: Comm) -> Result<bool> {
    let mut status = StatusBuf::new();
    let status = status.as_ptr();
    // Open MPI 5.0.11 takes messages in after a look that finds nothing.
    for _ in 0..2 {
        // SAFETY:
        // - `status` is writable.
        if unsafe { mpi.iprobe(source, tag, comm, status) }? {
            // SAFETY:
            // - MPI_Iprobe has just filled `status`.
            let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
            return Ok(source == mpi.constants().any_source
                || came.is_none_or(|came| came as usize > bytes));
        }
    }
    Ok(false)
}

/// Receives a message of `came` bytes into memory of its own, and tells the communicator's error handler.
///
/// # Safety
/// - `message` was matched by this thread, and is received nowhere else.
/// - `status` is a writable status of this library.
unsafe fn receive_elsewhere(
    mpi: &Mpi,
    mut message: Message,
    came: i64,
    comm: Comm,
    status: StatusPtr,
) -> Result<Error> {
    let whole = Scratch::new(came as usize)?;
    // SAFETY:
    // - the scratch memory has room for the whole message, which is received once.
    unsafe { mpi.mrecv(whole.ptr(), came, byte(mpi), &mut message, status) }?;
    mpi.comm_call_errhandler(comm, mpi.constants().err_truncate)?;
    Ok(truncated(mpi, "MPI_Recv").into())
}
