//! The door of messages that the engine carries.

use std::sync::Arc;

use crate::arg::Part;
use crate::brief::Brief;
use crate::comm::Comm;
use crate::engine::{self, Envelope, Handle, Keep, Passing};
use crate::error::Result;
use crate::p2p::Message;
use crate::trace::{self, Taken};
use crate::watch::About;

/// Begins to send a message. The caller waits for the [`Handle`] or gives it to [`engine::carry`].
///
/// # Errors
/// A tensor that cannot be read from the host, MPI's own errors, and [`crate::Error::State`] below
/// `MPI_THREAD_MULTIPLE`. Nothing was sent then.
///
/// # Safety
/// - Until the operation has ended, every view of `part` describes memory that is there, for which `keep` may answer. Nobody
///   writes what is sent; nobody else reads or writes what is received into.
pub unsafe fn begin_send(
    comm: &Comm,
    part: &Part,
    dest: i32,
    tag: i32,
    keep: Box<dyn Keep>,
) -> Result<Handle> {
    engine::allowed(comm.mpi())?;
    let message = Message::sending(*comm, part, dest, false)?;
    let brief = Brief::message("Isend", part, dest);
    let mut span = trace::begin_flight(None, brief);
    trace::takes(&mut span, || Taken::message(message.side()));
    let passing = Passing::send(*comm, message, dest, tag, span)?;
    let about = About::unnumbered(brief);
    Ok(engine::begin(passing, keep, about))
}

/// Begins to receive a message; what is learned of it is in the [`Envelope`]. The caller waits for the
/// [`Handle`] or gives it to [`engine::carry`].
///
/// # Errors
/// As for [`begin_send`].
///
/// # Safety
/// - As for [`begin_send`].
pub unsafe fn begin_recv(
    comm: &Comm,
    part: &Part,
    source: i32,
    tag: i32,
    keep: Box<dyn Keep>,
) -> Result<(Handle, Arc<Envelope>)> {
    engine::allowed(comm.mpi())?;
    let message = Message::receiving(*comm, part, source)?;
    let brief = Brief::message("Irecv", part, source);
    let mut span = trace::begin_flight(None, brief);
    trace::takes(&mut span, || Taken::message(message.side()));
    let passing = Passing::receive(*comm, message, (source, tag), span)?;
    let envelope = passing.envelope().unwrap_or_default();
    let about = About::unnumbered(brief);
    Ok((engine::begin(passing, keep, about), envelope))
}
