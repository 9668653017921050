//! Receiving on Open MPI, which writes past the end of the room when a longer message arrives (5.0.11,
//! messages that are not eager; small ones from the process itself are cut without an error).
//!
//! There a message is matched first (`MPI_Mprobe`), measured, and received whole into memory of its own
//! when it does not fit, so that `MPI_ERR_TRUNCATE` is all that happens.

use mpi_runtime::{Comm, Datatype, Error, Family, Mpi, MpiError, StatusBuf, StatusPtr};

use crate::error::Result;
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
pub(crate) fn overruns(mpi: &Mpi) -> bool {
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
    let mut own = StatusBuf::new();
    let status = if status.is_ignore() {
        own.as_ptr()
    } else {
        status
    };
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
    let came = came.unwrap_or(0);
    let whole = Scratch::new(came as usize)?;
    // SAFETY:
    // - the scratch memory has room for the whole message, which is received once.
    unsafe { mpi.mrecv(whole.ptr(), came, byte(mpi), &mut message, status) }?;
    let code = mpi.constants().err_truncate;
    mpi.comm_call_errhandler(comm, code)?;
    Err(Error::Mpi(MpiError {
        code,
        class: code,
        call: "MPI_Recv",
    })
    .into())
}
