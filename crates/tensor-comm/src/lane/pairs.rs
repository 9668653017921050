//! The short way of a message sent and one received by one request of MPI's.

use mpi_runtime::Request;

use super::Carried;
use crate::arrival;
use crate::comm::Comm;
use crate::error::Result;
use crate::guard;

/// Begins to send to `dest` and to receive from `source`, with their tags; `None` where another way is needed, and nothing
/// was begun.
///
/// # Errors
/// What MPI reports.
///
/// # Safety
/// - The elements that are sent are there, and nobody writes them, until the request completes; the room is there and
///   writable, and nobody else touches it; the two are apart.
#[inline]
pub unsafe fn isendrecv(
    comm: Comm,
    (sent, dest, sendtag): (Carried, i32, i32),
    (room, source, recvtag): (Carried, i32, i32),
) -> Result<Option<Request>> {
    let (mpi, (sendcount, sendtype)) = (comm.mpi(), sent.counted());
    let Ok(sendcount) = i32::try_from(sendcount) else {
        return Ok(None);
    };
    let begin = |count: i64, datatype| {
        let Ok(count) = i32::try_from(count) else {
            return Ok(None);
        };
        // SAFETY:
        // - the caller's promise; what a guarded room has besides may be written by anybody.
        Ok(unsafe {
            mpi.isendrecv(
                sent.data(),
                sendcount,
                sendtype,
                dest,
                sendtag,
                room.data(),
                count,
                datatype,
                source,
                recvtag,
                comm.raw(),
            )
        }?)
    };
    if arrival::overruns(mpi) {
        // A message that has come already cannot be taken first: it would take a request of its own.
        let from = (source, recvtag, comm.raw());
        return guard::begin_guarded(mpi, &room, from, || Ok(None), begin);
    }
    let (count, datatype) = room.counted();
    begin(count, datatype)
}
