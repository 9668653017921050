//! Point-to-point: always one MPI message with MPI's own signature, so that the peer may be anybody.

use mpi_runtime::{StatusBuf, StatusPtr};

use crate::arg::Part;
use crate::arrival::{self, Room};
use crate::brief::Brief;
use crate::comm::Comm;
use crate::counted::{Counted, counted};
use crate::engine::Came;
use crate::error::{Error, Result};
use crate::fits::{Arrived, Capacity};
use crate::ground::awareness;
use crate::side::{Ranges, Side, may_alias};
use crate::trace::{self, Taken};
use crate::wire::Element;
use crate::wiretype::{WireType, receiving_type, wire_type};

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
        let view = part.view();
        let wire = wire_type(comm.mpi(), view.dtype(), view.itemsize())?;
        let element = Element::Memory(view.dtype());
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
        let view = part.view();
        let wire = receiving_type(comm.mpi(), view.dtype(), view.itemsize())?;
        let element = Element::Memory(view.dtype());
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

    /// What is known of a message that arrived, as its receiver sees it.
    pub fn came(&self, Arrived { source, tag, bytes }: Arrived) -> Came {
        // A library with `int` counts says UNDEFINED for a message too large for them: it filled the room.
        let elements = bytes.unwrap_or(self.bytes) / self.wire.bytes.max(1);
        Came {
            source,
            tag,
            elements,
        }
    }

    /// Brings home what came, which must be whole elements and no more than there is room for.
    pub fn settle(&self, comm: Comm, status: StatusPtr) -> Result<()> {
        // SAFETY:
        // - MPI has just filled this status in.
        self.settle_arrived(comm, unsafe { Arrived::of(comm.mpi(), status) }?)
    }

    /// The same, where that is known.
    pub fn settle_arrived(&self, comm: Comm, came: Arrived) -> Result<()> {
        if !self.side.is_direct() {
            let bytes = came.bytes.unwrap_or(usize::MAX);
            self.side.settle(bytes / self.wire.bytes.max(1), None)?;
        }
        self.judge(comm, came)
    }

    /// Whether it was whole elements and no more than there is room for.
    pub fn judge(&self, comm: Comm, came: Arrived) -> Result<()> {
        let judged = self.capacity().judge(comm.mpi(), came);
        if let Err(Error::Truncated { .. }) = judged {
            comm.mpi()
                .comm_call_errhandler(comm.raw(), comm.mpi().constants().err_truncate)?;
        }
        judged
    }

    /// Says which room was too small for which message, where that is the error and `status` is of it.
    pub fn explain(&self, comm: Comm, error: Error, status: StatusPtr) -> Error {
        // SAFETY:
        // - MPI has filled this status in, or it is as it was made.
        match unsafe { Arrived::of(comm.mpi(), status) } {
            Ok(came) => self.capacity().explain(comm.mpi(), error, came),
            Err(_) => error,
        }
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            elements: self.bytes / self.wire.bytes.max(1),
            dtype: self.side.dtype(),
            itemsize: self.wire.bytes,
        }
    }
}

/// Whether MPI is given the memory of a message where it is not the host's.
fn given(comm: Comm, part: &Part, peer: i32) -> Result<bool> {
    match part.view().device().is_host_addressable() {
        true => Ok(false),
        false => awareness::allowed_with(comm, peer),
    }
}

/// Sends one message.
///
/// # Errors
/// A tensor that cannot be read from the host, or MPI's own errors.
///
/// # Safety
/// - Until this returns, every view of `part` describes memory that is there. Nobody writes what is sent; nobody else reads or
///   writes what is received into.
pub unsafe fn send(comm: &Comm, mode: SendMode, part: &Part, dest: i32, tag: i32) -> Result<()> {
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
///
/// # Safety
/// - Until this returns, every view of `part` describes memory that is there. Nobody writes what is sent; nobody else reads or
///   writes what is received into.
pub unsafe fn recv(
    comm: &Comm,
    part: &Part,
    source: i32,
    tag: i32,
    status: StatusPtr,
) -> Result<()> {
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
    received.map_err(|error| message.explain(*comm, error, status))?;
    trace::ended(&mut span, message.settle(*comm, status))
}

/// Sends one message and receives another.
///
/// # Errors
/// As for [`send`] and [`recv`].
///
/// # Safety
/// - As for [`send`] and [`recv`]; the two may share memory.
#[allow(clippy::too_many_arguments, reason = "MPI's own signature")]
pub unsafe fn sendrecv(
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
    let (from, room) = (out.room(), into.room());
    // SAFETY:
    // - both sides hold as many elements as their counts say, live past the call and are apart; the
    //   receiving one is writable (side.rs).
    // - `status` is the caller's or our own.
    let done = unsafe {
        exchange(
            *comm,
            &from,
            (dest, sendtag),
            &room,
            (source, recvtag),
            status,
        )
    };
    done.map_err(|error| into.explain(*comm, error, status))?;
    trace::ended(&mut span, into.settle(*comm, status))
}

/// Sends from one room and receives into another.
///
/// # Safety
/// - Both are there until this returns and apart, the receiving one is writable, `status` is a writable status.
pub(crate) unsafe fn exchange(
    comm: Comm,
    from: &Room,
    (dest, sendtag): (i32, i32),
    room: &Room,
    (source, recvtag): (i32, i32),
    status: StatusPtr,
) -> Result<()> {
    let (mpi, raw) = (comm.mpi(), comm.raw());
    // SAFETY:
    // - the caller's promise.
    // - the send is waited for before its side goes, whatever became of the receive.
    unsafe {
        if arrival::overruns(mpi) {
            arguments(comm, source, recvtag)?;
            let mut sending = mpi.isend(from.ptr, from.count, from.datatype, dest, sendtag, raw)?;
            let received = arrival::recv(mpi, room, source, recvtag, raw, status);
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
    }
}

/// Asks MPI what is wrong with the source and the tag of a receive, where something is: a message that goes first could not
/// be called back.
fn arguments(comm: Comm, source: i32, tag: i32) -> Result<()> {
    let constants = comm.mpi().constants();
    let nobody = [constants.any_source, constants.proc_null].contains(&source);
    let exists = nobody
        || match usize::try_from(source) {
            Ok(at) => at < comm.blocks()?,
            Err(_) => false,
        };
    if exists && (tag >= 0 || tag == constants.any_tag) {
        return Ok(());
    }
    // SAFETY:
    // - no status is given.
    unsafe {
        comm.mpi()
            .iprobe(source, tag, comm.raw(), StatusPtr::ignore())
    }?;
    Ok(())
}

/// The caller's status, or our own where the caller ignores it: what came is always counted.
pub(crate) fn filled(status: StatusPtr, own: &mut StatusBuf) -> StatusPtr {
    if status.is_ignore() {
        own.as_ptr()
    } else {
        status
    }
}
