//! One message of the engine's, as a state machine: under way, or, where a library writes past the end of
//! the room when a longer message arrives (`arrival.rs`), looked for first.

use std::sync::{Arc, OnceLock};

use mpi_runtime::{Request, StatusBuf, StatusPtr};

use super::operation::{Job, Step};
use crate::arrival::{self, Room};
use crate::comm::Comm;
use crate::error::Result;
use crate::fits::truncated;
use crate::ground::state::State;
use crate::p2p::Message;
use crate::scratch::Scratch;
use crate::trace::{self, Span};
use crate::wiretype::byte;

/// What a receive learned of its message.
#[derive(Debug, Default)]
pub struct Envelope(OnceLock<Came>);

/// A message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// The rank that sent it.
    pub source: i32,
    /// Its tag.
    pub tag: i32,
    /// Whole elements of the receiving tensor in it.
    pub elements: usize,
}

impl Envelope {
    /// The rank that sent it, once it has come.
    pub fn source(&self) -> Option<i32> {
        self.came().map(|came| came.source)
    }

    /// What is known of it, once it has come.
    pub fn came(&self) -> Option<Came> {
        self.0.get().copied()
    }
}

enum Stage {
    /// No message has been found.
    Looking(Arc<State>, u64),
    /// MPI carries it; the scratch memory holds a message that is too long.
    Flying(Request, Option<Scratch>),
    Ended,
}

/// One message under way.
pub(crate) struct Passing {
    comm: Comm,
    message: Message,
    stage: Stage,
    /// Sender and tag that are looked for.
    wanted: (i32, i32),
    /// Of a receive.
    envelope: Option<Arc<Envelope>>,
    /// Traced until it ends.
    span: Option<Span>,
}

impl Passing {
    /// Sends it.
    pub fn send(
        comm: Comm,
        message: Message,
        dest: i32,
        tag: i32,
        span: Option<Span>,
    ) -> Result<Passing> {
        let Room {
            ptr,
            count,
            datatype,
            ..
        } = message.room();
        // SAFETY:
        // - the side holds as many elements (side.rs) and lives as long as the operation, as does the keeper of
        //   the tensor's memory; an abandoned operation leaks both.
        let request = unsafe {
            comm.mpi()
                .isend(ptr, count, datatype, dest, tag, comm.raw())
        }?;
        Ok(Passing {
            comm,
            message,
            stage: Stage::Flying(request, None),
            wanted: (dest, tag),
            envelope: None,
            span,
        })
    }

    /// Receives one from `source` with `tag`.
    pub fn receive(
        comm: Comm,
        message: Message,
        wanted: (i32, i32),
        span: Option<Span>,
    ) -> Result<Passing> {
        let mpi = comm.mpi();
        let stage = if arrival::overruns(mpi) {
            let state = State::of(comm)?;
            let ticket = state.receives().enter(wanted.0, wanted.1);
            Stage::Looking(state, ticket)
        } else {
            let Room {
                ptr,
                count,
                datatype,
                ..
            } = message.room();
            // SAFETY:
            // - the side has room for as many elements, writable (side.rs), and lives as in `send`.
            let request =
                unsafe { mpi.irecv(ptr, count, datatype, wanted.0, wanted.1, comm.raw()) }?;
            Stage::Flying(request, None)
        };
        Ok(Passing {
            comm,
            message,
            stage,
            wanted,
            envelope: Some(Arc::default()),
            span,
        })
    }

    /// What a receive learns.
    pub fn envelope(&self) -> Option<Arc<Envelope>> {
        self.envelope.clone()
    }

    /// Notes in the envelope what the status of a message that was found, or received, says.
    fn note(&self, status: StatusPtr) -> Result<()> {
        if let Some(envelope) = &self.envelope {
            // What was found before it was received stays.
            let _ = envelope.0.set(self.message.came(self.comm, status)?);
        }
        Ok(())
    }

    /// Looks for the message: whether it was found.
    fn look(&mut self) -> Result<bool> {
        let Stage::Looking(state, ticket) = &self.stage else {
            return Ok(true);
        };
        let (mpi, comm) = (self.comm.mpi(), self.comm.raw());
        let constants = mpi.constants();
        let mut receives = state.receives();
        if !receives.is_first(*ticket, constants.any_source, constants.any_tag) {
            return Ok(false);
        }
        let mut status = StatusBuf::new();
        let status = status.as_ptr();
        // SAFETY:
        // - the status is writable.
        let found = unsafe { mpi.improbe(self.wanted.0, self.wanted.1, comm, status) }?;
        let Some(mut found) = found else {
            return Ok(false);
        };
        receives.leave(*ticket);
        drop(receives);
        // SAFETY:
        // - MPI_Improbe has just filled the status.
        let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
        self.note(status)?;
        let room = self.message.room();
        let fits = came.is_none_or(|came| came as usize <= room.bytes);
        let whole = match fits {
            true => None,
            false => Some(Scratch::new(came.unwrap_or(0) as usize)?),
        };
        let (ptr, count, datatype) = match &whole {
            None => (room.ptr, room.count, room.datatype),
            Some(whole) => (whole.ptr(), came.unwrap_or(0), byte(mpi)),
        };
        // SAFETY:
        // - the room is writable, or the scratch memory holds the whole message; both live until the request
        //   has completed. The message was matched here.
        let request = unsafe { mpi.imrecv(ptr, count, datatype, &mut found) }?;
        self.stage = Stage::Flying(request, whole);
        Ok(true)
    }
}

impl Job for Passing {
    fn advance(&mut self) -> Result<Step> {
        let mut step = Step::Idle;
        if let Stage::Looking(..) = self.stage {
            if !self.look()? {
                return Ok(step);
            }
            step = Step::Moved;
        }
        let Stage::Flying(request, too_long) = &mut self.stage else {
            return Ok(Step::Ended);
        };
        let mpi = self.comm.mpi();
        let mut status = StatusBuf::new();
        let status = status.as_ptr();
        // SAFETY:
        // - the request is this operation's, and completed nowhere else; the status is writable.
        let landed = unsafe { mpi.test(request, status) };
        if !landed.map_err(|error| self.message.explain(self.comm, error.into(), status))? {
            return Ok(step);
        }
        if self.envelope.is_none() {
            return trace::ended(&mut self.span, Ok(Step::Ended));
        }
        if too_long.is_some() {
            mpi.comm_call_errhandler(self.comm.raw(), mpi.constants().err_truncate)?;
            let error = truncated(mpi, "MPI_Irecv").into();
            return Err(self.message.explain(self.comm, error, status));
        }
        self.note(status)?;
        let settled = self.message.settle(self.comm, status);
        trace::ended(&mut self.span, settled).map(|()| Step::Ended)
    }

    fn ended(&mut self) -> bool {
        if let Stage::Looking(state, ticket) = &self.stage {
            state.receives().leave(*ticket);
        }
        let written = self.envelope.is_some() && matches!(self.stage, Stage::Flying(..));
        self.stage = Stage::Ended;
        self.span = None;
        written
    }
}
