//! Point-to-point: always one MPI message with MPI's own signature, so that the peer may be anybody.

use mpi_runtime::{StatusBuf, StatusPtr};

use crate::arg::Part;
use crate::arrival::{self, Room};
use crate::brief::Brief;
use crate::comm::Comm;
use crate::counted::{Counted, counted};
use crate::engine::Came;
use crate::error::{Error, Result, value_error};
use crate::ground::awareness;
use crate::side::{Ranges, Side, may_alias};
use crate::trace::{self, Taken};
use crate::wire::Element;
use crate::wiretype::{WireType, byte, wire_type};

/// The send modes of MPI 4.1 §3.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are MPI's")]
pub enum SendMode {
    Standard,
    Synchronous,
    Buffered,
    Ready,
}

impl SendMode {
    const fn name(self) -> &'static str {
        match self {
            SendMode::Standard => "Send",
            SendMode::Synchronous => "Ssend",
            SendMode::Buffered => "Bsend",
            SendMode::Ready => "Rsend",
        }
    }
}

/// One side of a message, ready for MPI.
pub(crate) struct Message {
    side: Side,
    wire: WireType,
    counted: Counted,
    /// Bytes of all elements.
    bytes: usize,
}

// SAFETY:
// - its addresses are of a tensor whose memory the owner of the message keeps, and of its own scratch
//   memory; it is used by one thread at a time.
unsafe impl Send for Message {}

impl Message {
    /// One to `peer`; `copy` forces a copy.
    pub fn sending(comm: Comm, part: &Part, peer: i32, copy: bool) -> Result<Message> {
        let (wire, element) = form(comm, part)?;
        let counted = counted(comm.mpi(), part.count(), wire)?;
        let direct = given(comm, part, peer)?;
        Ok(Message {
            side: Side::sending_to_mpi(Ranges::part(part), element, copy, direct)?,
            wire,
            counted,
            bytes: part.count() * part.view().itemsize(),
        })
    }

    /// One from `peer`, or from any.
    pub fn receiving(comm: Comm, part: &Part, peer: i32) -> Result<Message> {
        let (wire, element) = form(comm, part)?;
        let counted = counted(comm.mpi(), part.count(), wire)?;
        let direct = given(comm, part, peer)?;
        Ok(Message {
            side: Side::receiving_from_mpi(Ranges::part(part), element, false, direct)?,
            wire,
            counted,
            bytes: part.count() * part.view().itemsize(),
        })
    }

    /// The tensor's elements.
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// Where the elements are, as MPI takes it.
    pub fn room(&self) -> Room {
        let Counted {
            count, datatype, ..
        } = self.counted;
        Room {
            ptr: self.side.ptr(),
            count,
            datatype,
            bytes: self.bytes,
        }
    }

    /// What a status that MPI has just filled in says of the message.
    pub fn came(&self, comm: Comm, status: StatusPtr) -> Result<Came> {
        let mpi = comm.mpi();
        // SAFETY:
        // - MPI has just filled this status in.
        let (source, tag, bytes) = unsafe {
            (
                mpi.status_source(status),
                mpi.status_tag(status),
                mpi.get_elements(status, byte(mpi))?,
            )
        };
        let item = self.wire.bytes.max(1);
        // A library with `int` counts says UNDEFINED for a message too large for them: it filled the room.
        let elements = bytes.map_or(self.bytes, |bytes| bytes as usize) / item;
        Ok(Came {
            source,
            tag,
            elements,
        })
    }

    /// Brings home what came, which must be whole elements.
    pub fn settle(&self, comm: Comm, status: StatusPtr) -> Result<()> {
        let mpi = comm.mpi();
        // SAFETY:
        // - MPI has just filled this status in.
        let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
        // A library with `int` counts says UNDEFINED for a message too large for them: it filled the room.
        let whole = came.map_or(usize::MAX, |came| came as usize / self.wire.bytes);
        if !self.side.is_direct() {
            self.side.settle(whole, None)?;
        }
        match came {
            Some(came) if !(came as usize).is_multiple_of(self.wire.bytes) => Err(value_error!(
                "the message of {came} bytes that came is no whole number of {} of {} bytes each; receive it as \
                 the dtype that was sent",
                self.side.dtype(),
                self.wire.bytes
            )),
            _ => Ok(()),
        }
    }

    /// Says which room was too small, where that is the error.
    pub fn explain(&self, comm: Comm, error: Error) -> Error {
        let elements = self.bytes / self.wire.bytes.max(1);
        arrival::too_long(comm.mpi(), error, (elements, self.side.dtype(), self.bytes))
    }
}

/// Whether MPI is given the memory of a message where it is not the host's.
fn given(comm: Comm, part: &Part, peer: i32) -> Result<bool> {
    match part.view().device().is_host_addressable() {
        true => Ok(false),
        false => awareness::allowed_with(comm, peer),
    }
}

fn form(comm: Comm, part: &Part) -> Result<(WireType, Element)> {
    let view = part.view();
    Ok((
        wire_type(comm.mpi(), view.dtype(), view.itemsize())?,
        Element::Memory(view.dtype()),
    ))
}

/// Sends one message.
///
/// # Errors
/// A tensor that cannot be read from the host, or MPI's own errors.
pub fn send(comm: &Comm, mode: SendMode, part: &Part, dest: i32, tag: i32) -> Result<()> {
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let mut span = trace::begin(None, || Brief::message(mode.name(), part, dest));
    let message = Message::sending(*comm, part, dest, false)?;
    trace::takes(&mut span, || Taken::message(&message.side));
    let (ptr, count, datatype) = (
        message.side.ptr(),
        message.counted.count,
        message.counted.datatype,
    );
    // SAFETY:
    // - the side holds as many elements (side.rs) and lives past the call.
    let sent = unsafe {
        match mode {
            SendMode::Standard => mpi.send(ptr, count, datatype, dest, tag, raw),
            SendMode::Synchronous => mpi.ssend(ptr, count, datatype, dest, tag, raw),
            SendMode::Buffered => mpi.bsend(ptr, count, datatype, dest, tag, raw),
            SendMode::Ready => mpi.rsend(ptr, count, datatype, dest, tag, raw),
        }
    };
    trace::ended(&mut span, sent.map_err(Error::from))
}

/// Receives one message into a tensor; elements beyond a shorter message stay untouched.
///
/// # Errors
/// A tensor that cannot be written, or MPI's own errors.
pub fn recv(comm: &Comm, part: &Part, source: i32, tag: i32, status: StatusPtr) -> Result<()> {
    let mut span = trace::begin(None, || Brief::message("Recv", part, source));
    let message = Message::receiving(*comm, part, source)?;
    trace::takes(&mut span, || Taken::message(&message.side));
    let mut own = StatusBuf::new();
    let status = filled(status, &mut own);
    let (mpi, room) = (comm.mpi(), message.room());
    // SAFETY:
    // - the side has room for as many elements, writable (side.rs), and lives past the call.
    // - `status` is the caller's or our own.
    let received = unsafe { arrival::recv(mpi, &room, source, tag, comm.raw(), status) };
    received.map_err(|error| message.explain(*comm, error))?;
    trace::ended(&mut span, message.settle(*comm, status))
}

/// Sends one message and receives another.
///
/// # Errors
/// As for [`send`] and [`recv`].
#[allow(clippy::too_many_arguments, reason = "MPI's own signature")]
pub fn sendrecv(
    comm: &Comm,
    send: &Part,
    dest: i32,
    sendtag: i32,
    recv: &Part,
    source: i32,
    recvtag: i32,
    status: StatusPtr,
) -> Result<()> {
    // MPI forbids shared memory (MPI 4.1 §3.10); a copy makes the call mean what it says.
    let mut span = trace::begin(None, || Brief::message("Sendrecv", send, dest));
    let copy = may_alias(send.view(), recv.view());
    let out = Message::sending(*comm, send, dest, copy)?;
    let into = Message::receiving(*comm, recv, source)?;
    trace::takes(&mut span, || Taken::message(&into.side));
    let mut own = StatusBuf::new();
    let status = filled(status, &mut own);
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let (from, room) = (out.room(), into.room());
    // SAFETY:
    // - both sides hold as many elements as their counts say, live past the call and are apart; the
    //   receiving one is writable (side.rs).
    // - `status` is the caller's or our own.
    // - the send is waited for before its side goes, whatever became of the receive.
    let done = unsafe {
        if arrival::overruns(mpi) {
            let mut sending = mpi.isend(from.ptr, from.count, from.datatype, dest, sendtag, raw)?;
            let received = arrival::recv(mpi, &room, source, recvtag, raw, status);
            mpi.wait(&mut sending, StatusPtr::ignore())?;
            received
        } else {
            mpi.sendrecv(
                from.ptr,
                from.count,
                from.datatype,
                dest,
                sendtag,
                room.ptr,
                room.count,
                room.datatype,
                source,
                recvtag,
                raw,
                status,
            )
            .map_err(Error::from)
        }
    };
    done.map_err(|error| into.explain(*comm, error))?;
    trace::ended(&mut span, into.settle(*comm, status))
}

/// The caller's status, or our own where the caller ignores it: what came is always counted.
fn filled(status: StatusPtr, own: &mut StatusBuf) -> StatusPtr {
    if status.is_ignore() {
        own.as_ptr()
    } else {
        status
    }
}
