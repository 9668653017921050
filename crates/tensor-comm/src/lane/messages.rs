//! The short way of messages. Knows no communicator's collectives.

use mpi_runtime::{Message, Mpi, StatusBuf, StatusPtr};
use smallvec::SmallVec;

use super::{Flat, SMALL};
use crate::arrival::{self, Room};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::fits::{Arrived, Capacity};
use crate::p2p::SendMode;
use crate::trace;
use crate::wiretype::{receiving_type, wire_type};

/// Whether messages may take the short way: nobody wants to see them.
#[inline]
pub fn is_open() -> bool {
    !trace::is_on()
}

/// One side of a message, as MPI takes it.
#[derive(Clone, Copy)]
pub struct Carried {
    flat: Flat,
    count: i64,
    datatype: mpi_runtime::Datatype,
}

// SAFETY:
// - its address only goes to MPI, within one call of the caller's, who keeps the memory.
unsafe impl Send for Carried {}
// SAFETY:
// - as above.
unsafe impl Sync for Carried {}

impl Carried {
    /// Elements that are sent; `None` where they are too many for one count.
    #[inline]
    pub fn sent(mpi: &Mpi, flat: Flat) -> Option<Carried> {
        let wire = wire_type(mpi, flat.dtype, flat.itemsize()).ok()?;
        Carried::new(flat, wire.datatype, wire.units)
    }

    /// Room to receive into.
    #[inline]
    pub fn received(mpi: &Mpi, flat: Flat) -> Option<Carried> {
        let wire = receiving_type(mpi, flat.dtype, flat.itemsize()).ok()?;
        Carried::new(flat, wire.datatype, wire.units)
    }

    fn new(flat: Flat, datatype: mpi_runtime::Datatype, units: usize) -> Option<Carried> {
        let count = i32::try_from(flat.count.checked_mul(units)?).ok()?.into();
        Some(Carried {
            flat,
            count,
            datatype,
        })
    }

    /// Whether the two share no byte.
    pub fn is_apart_from(&self, other: &Carried) -> bool {
        !self.flat.meets(&other.flat)
    }

    /// The first element.
    pub fn data(&self) -> *mut u8 {
        self.flat.data
    }

    /// How many of which MPI datatype they are.
    pub fn counted(&self) -> (i64, mpi_runtime::Datatype) {
        (self.count, self.datatype)
    }

    /// What there is room for.
    pub fn capacity(&self) -> Capacity {
        Capacity {
            elements: self.flat.count,
            dtype: self.flat.dtype,
            itemsize: self.flat.itemsize(),
        }
    }

    pub(crate) fn room(&self) -> Room {
        Room {
            ptr: self.flat.data,
            count: self.count,
            datatype: self.datatype,
            bytes: self.flat.bytes(),
        }
    }
}

/// As [`crate::send`].
///
/// # Errors
/// What MPI reports.
///
/// # Safety
/// - The elements are there until this returns, and nobody writes them.
#[inline]
pub unsafe fn send(comm: Comm, mode: SendMode, sent: Carried, dest: i32, tag: i32) -> Result<()> {
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let (data, count, datatype) = (sent.flat.data, sent.count, sent.datatype);
    // SAFETY:
    // - the caller's promise.
    unsafe {
        match mode {
            SendMode::Standard => mpi.send(data, count, datatype, dest, tag, raw),
            SendMode::Synchronous => mpi.ssend(data, count, datatype, dest, tag, raw),
            SendMode::Buffered => mpi.bsend(data, count, datatype, dest, tag, raw),
            SendMode::Ready => mpi.rsend(data, count, datatype, dest, tag, raw),
        }
    }
    .map_err(Error::from)
}

/// As [`crate::recv`].
///
/// # Errors
/// What MPI reports, and a message that does not fit.
///
/// # Safety
/// - The room is there and writable until this returns, and nobody else touches it.
/// - `status` is ignored or a writable status of this library.
#[inline]
pub unsafe fn recv(
    comm: Comm,
    room: Carried,
    source: i32,
    tag: i32,
    status: StatusPtr,
) -> Result<()> {
    let mut own = StatusBuf::new();
    let status = crate::p2p::filled(status, &mut own);
    let (mpi, raw) = (comm.mpi(), comm.raw());
    // SAFETY:
    // - the caller's promise; the status is the caller's or our own.
    let done = unsafe { arrival::recv(mpi, &room.room(), source, tag, raw, status) };
    judged(comm, room, done, status)
}

/// As [`crate::sendrecv`], for memory that is apart.
///
/// # Errors
/// As for [`recv`].
///
/// # Safety
/// - As for [`send`] and [`recv`]; the two are apart.
#[inline]
pub unsafe fn sendrecv(
    comm: Comm,
    (sent, dest, sendtag): (Carried, i32, i32),
    (room, source, recvtag): (Carried, i32, i32),
    status: StatusPtr,
) -> Result<()> {
    let mut own = StatusBuf::new();
    let status = crate::p2p::filled(status, &mut own);
    let from = sent.room();
    // SAFETY:
    // - the caller's promise; the status is the caller's or our own.
    let done = unsafe {
        crate::p2p::exchange(
            comm,
            &from,
            (dest, sendtag),
            &room.room(),
            (source, recvtag),
            status,
        )
    };
    judged(comm, room, done, status)
}

/// A message that takes the place of the one that is sent.
pub struct Replacing {
    room: Carried,
    /// What is sent, apart from the room.
    copy: SmallVec<[u8; 512]>,
    sent: Carried,
}

impl Replacing {
    /// Sends these elements, and receives in their place; `None` where they are many.
    ///
    /// # Safety
    /// - The elements are there and writable until this goes, and nobody else touches them.
    #[inline]
    #[must_use]
    pub unsafe fn new(mpi: &Mpi, flat: Flat) -> Option<Replacing> {
        let bytes = Some(flat.bytes()).filter(|&bytes| bytes <= SMALL)?;
        // SAFETY:
        // - the caller's promise.
        let elements = unsafe { std::slice::from_raw_parts(flat.data, bytes) };
        Some(Replacing {
            room: Carried::received(mpi, flat)?,
            copy: SmallVec::from_slice(elements),
            sent: Carried::sent(mpi, flat)?,
        })
    }

    /// Sends to `dest` and receives from `source`, with their tags.
    ///
    /// # Errors
    /// As for [`recv`].
    ///
    /// # Safety
    /// - `status` is ignored or a writable status of this library.
    #[inline]
    pub unsafe fn run(
        &mut self,
        comm: Comm,
        dest: (i32, i32),
        source: (i32, i32),
        status: StatusPtr,
    ) -> Result<()> {
        let mut sent = self.sent;
        sent.flat.data = self.copy.as_mut_ptr();
        let ((dest, sendtag), (source, recvtag)) = (dest, source);
        // SAFETY:
        // - `new`'s promise, and the caller's; the copy is as long as the elements.
        unsafe {
            sendrecv(
                comm,
                (sent, dest, sendtag),
                (self.room, source, recvtag),
                status,
            )
        }
    }
}

/// Takes a message out of the queue, which must be received: itself, and where the library writes past a room that is too
/// small ([`arrival::overruns`]) its length in bytes, if that can be told.
///
/// # Errors
/// What MPI reports.
///
/// # Safety
/// - `status` is ignored or a writable status of this library.
#[inline]
pub unsafe fn probe(
    comm: Comm,
    source: i32,
    tag: i32,
    status: StatusPtr,
) -> Result<(Message, Option<usize>)> {
    let mut own = StatusBuf::new();
    let status = crate::p2p::filled(status, &mut own);
    let mpi = comm.mpi();
    // SAFETY:
    // - the status is the caller's or our own.
    let message = unsafe { mpi.mprobe(source, tag, comm.raw(), status) }?;
    if !arrival::overruns(mpi) {
        return Ok((message, None));
    }
    // SAFETY:
    // - MPI has filled it in.
    let came = unsafe { Arrived::of(mpi, status) };
    // Whatever went wrong there, the message is to be received.
    Ok((message, came.ok().and_then(|came| came.bytes)))
}

/// Receives a message that was taken out of the queue.
///
/// # Errors
/// As for [`recv`].
///
/// # Safety
/// - As for [`recv`]; where the library writes past the room ([`arrival::overruns`]) the message is known to fit.
/// - `message` has not been received yet.
#[inline]
pub unsafe fn matched(
    mpi: &Mpi,
    room: Carried,
    message: &mut Message,
    status: StatusPtr,
) -> Result<()> {
    let mut own = StatusBuf::new();
    let status = crate::p2p::filled(status, &mut own);
    let (data, count, datatype) = (room.flat.data, room.count, room.datatype);
    // SAFETY:
    // - the caller's promise; the status is the caller's or our own.
    let done = unsafe { mpi.mrecv(data, count, datatype, message, status) };
    // SAFETY:
    // - MPI has filled this status in, or it is as it was made.
    let came = unsafe { Arrived::of(mpi, status) };
    match (done, came) {
        (Ok(()), Ok(came)) => room.capacity().judge(mpi, came),
        (Err(error), Ok(came)) => Err(room.capacity().explain(mpi, error.into(), came)),
        (done, Err(why)) => done.map_err(Error::from).and(Err(why)),
    }
}

/// What became of a receive, by what MPI says and by the status that it has filled in.
#[inline]
fn judged(comm: Comm, room: Carried, done: Result<()>, status: StatusPtr) -> Result<()> {
    let mpi = comm.mpi();
    // SAFETY:
    // - MPI has filled this status in, or it is as it was made.
    let came = unsafe { Arrived::of(mpi, status) };
    match (done, came) {
        (Ok(()), Ok(came)) => {
            let judged = room.capacity().judge(mpi, came);
            if let Err(Error::Truncated { .. }) = judged {
                mpi.comm_call_errhandler(comm.raw(), mpi.constants().err_truncate)?;
            }
            judged
        }
        (Err(error), Ok(came)) => Err(room.capacity().explain(mpi, error, came)),
        (done, Err(why)) => done.and(Err(why)),
    }
}
