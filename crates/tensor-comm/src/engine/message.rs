//! One message of the engine's, as a state machine: under way, or, where a library writes past the end of
//! the room when a longer message arrives (`arrival.rs`), looked for first. Where both ranks are ours a large one is a
//! card, and the block is handed over (`handover.rs`).

use std::sync::{Arc, OnceLock};

use mpi_runtime::{Request, StatusBuf};

use super::operation::{Job, Step};
use crate::arrival::{self, Room};
use crate::comm::Comm;
use crate::direct::Progress;
use crate::error::Result;
use crate::fits::Arrived;
use crate::ground::state::State;
use crate::handover::{self, CARD, Card, Giving, Taking};
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
    /// MPI carries it; the scratch memory holds what may not fit in the room.
    Flying(Request, Option<Scratch>),
    /// Its card is sent, or was.
    Giving(Giving),
    /// Its card has come, of a message like this one.
    Taking(Taking, Arrived),
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
    /// The communicator's, where large messages go by cards.
    hands_over: Option<Arc<State>>,
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
            bytes,
        } = message.room();
        let hands_over = handing_over(comm)?;
        let peers = hands_over.as_ref().and_then(|state| state.peers());
        // SAFETY:
        // - the side holds as many elements (side.rs) and lives as long as the operation, as does the keeper of
        //   the tensor's memory; an abandoned operation leaks both.
        let stage = unsafe {
            match peers {
                Some(peers) if handover::by_card(ptr, bytes) => {
                    let to = (dest as usize, tag, comm.raw());
                    Stage::Giving(Giving::begin(comm.mpi(), peers, (ptr, bytes), to)?)
                }
                _ => {
                    let mpi = comm.mpi();
                    let sent = mpi.isend(ptr, count, datatype, dest, tag, comm.raw())?;
                    Stage::Flying(sent, None)
                }
            }
        };
        Ok(Passing {
            comm,
            message,
            stage,
            wanted: (dest, tag),
            envelope: None,
            hands_over,
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
        let hands_over = handing_over(comm)?;
        let stage = if arrival::overruns(mpi) {
            let state = State::of(comm)?;
            let ticket = state.receives().enter(wanted.0, wanted.1);
            Stage::Looking(state, ticket)
        } else {
            let room = message.room();
            // A card does not fit in less.
            let apart = match hands_over.is_some() && room.bytes < CARD {
                true => Some(Scratch::new(CARD)?),
                false => None,
            };
            let (ptr, count, datatype) = match &apart {
                Some(apart) => (apart.ptr(), CARD as i64, byte(mpi)),
                None => (room.ptr, room.count, room.datatype),
            };
            // SAFETY:
            // - the side has room for as many elements, writable (side.rs), and lives as in `send`; so does the
            //   scratch memory.
            let request =
                unsafe { mpi.irecv(ptr, count, datatype, wanted.0, wanted.1, comm.raw()) }?;
            Stage::Flying(request, apart)
        };
        Ok(Passing {
            comm,
            message,
            stage,
            wanted,
            envelope: Some(Arc::default()),
            hands_over,
            span,
        })
    }

    /// What a receive learns.
    pub fn envelope(&self) -> Option<Arc<Envelope>> {
        self.envelope.clone()
    }

    /// Notes in the envelope what is known of a message that was found, or received.
    fn note(&self, came: Arrived) {
        if let Some(envelope) = &self.envelope {
            // What was found before it was received stays.
            let _ = envelope.0.set(self.message.came(came));
        }
    }

    /// Whether a message of this length may be a card.
    fn may_be_card(&self, came: Arrived) -> bool {
        self.hands_over.is_some() && came.bytes == Some(CARD)
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
        let came = unsafe { Arrived::of(mpi, status) }?;
        let may_be_card = self.may_be_card(came);
        let room = self.message.room();
        let bytes = came.bytes.unwrap_or(0);
        let whole = match came.bytes.is_none_or(|came| came <= room.bytes) {
            true => None,
            false => Some(Scratch::new(bytes)?),
        };
        let (ptr, count, datatype) = match &whole {
            None if may_be_card => (room.ptr, bytes as i64, byte(mpi)),
            None => (room.ptr, room.count, room.datatype),
            Some(whole) => (whole.ptr(), bytes as i64, byte(mpi)),
        };
        // SAFETY:
        // - the room is writable, or the scratch memory holds the whole message; both live until the request
        //   has completed. The message was matched here.
        let request = unsafe { mpi.imrecv(ptr, count, datatype, &mut found) }?;
        if !may_be_card {
            self.note(came);
        }
        self.stage = Stage::Flying(request, whole);
        Ok(true)
    }

    /// What has landed: the message, which is settled, or a card, of which the block is then taken.
    fn landed(&mut self, mut came: Arrived, apart: Option<Scratch>) -> Result<Step> {
        let room = self.message.room();
        if self.may_be_card(came)
            && let Some(peers) = self.hands_over.as_ref().and_then(|state| state.peers())
        {
            let mut words = [0u8; CARD];
            let from = apart.as_ref().map_or(room.ptr, Scratch::ptr);
            // SAFETY:
            // - as many bytes have landed there.
            unsafe { std::ptr::copy_nonoverlapping(from, words.as_mut_ptr(), CARD) };
            if let Some(card) = Card::read(&words) {
                came.bytes = Some(card.bytes);
                self.note(came);
                let giver = came.source as usize;
                if card.bytes > room.bytes {
                    Taking::decline(&peers, giver, card, false)?;
                    return self.message.judge(self.comm, came).map(|()| Step::Ended);
                }
                // SAFETY:
                // - the room has as many bytes, writable (side.rs), and lives as in `send`.
                let taking = unsafe { Taking::new(peers, giver, card, room.ptr) };
                self.stage = Stage::Taking(taking, came);
                return Ok(Step::Moved);
            }
        }
        self.note(came);
        if let Some(apart) = apart {
            let Some(bytes) = came.bytes.filter(|bytes| *bytes <= room.bytes) else {
                return self.message.judge(self.comm, came).map(|()| Step::Ended);
            };
            // SAFETY:
            // - as many bytes have landed, and there is room for them.
            unsafe { std::ptr::copy_nonoverlapping(apart.ptr(), room.ptr, bytes) };
        }
        self.message.settle_arrived(self.comm, came)?;
        Ok(Step::Ended)
    }

    /// Goes on with a block that is handed over; `None` where none is.
    fn hand_over(&mut self) -> Result<Option<Step>> {
        let went = match &mut self.stage {
            Stage::Giving(giving) => giving.advance()?,
            Stage::Taking(taking, came) => {
                let (went, came) = (taking.advance()?, *came);
                if went == Progress::Ended {
                    self.message.settle_arrived(self.comm, came)?;
                }
                went
            }
            _ => return Ok(None),
        };
        if let (Progress::Idle, Some(state)) = (went, &self.hands_over) {
            state.look_around()?;
        }
        Ok(Some(match went {
            Progress::Idle => Step::Idle,
            Progress::Moved => Step::Moved,
            Progress::Ended => Step::Ended,
        }))
    }
}

/// The communicator's state where large messages on it go by cards.
fn handing_over(comm: Comm) -> Result<Option<Arc<State>>> {
    Ok(State::existing(comm)?.filter(|state| state.hands_over()))
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
        if let Some(went) = self.hand_over()? {
            return match went {
                Step::Ended => trace::ended(&mut self.span, Ok(Step::Ended)),
                _ => Ok(went),
            };
        }
        let Stage::Flying(request, apart) = &mut self.stage else {
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
        let apart = apart.take();
        // SAFETY:
        // - MPI has just filled the status in.
        let came = unsafe { Arrived::of(mpi, status) }?;
        match self.landed(came, apart) {
            Ok(Step::Moved) => Ok(Step::Moved),
            settled => trace::ended(&mut self.span, settled),
        }
    }

    fn ended(&mut self) -> bool {
        if let Stage::Looking(state, ticket) = &self.stage {
            state.receives().leave(*ticket);
        }
        let landing = matches!(self.stage, Stage::Flying(..) | Stage::Taking(..));
        let written = self.envelope.is_some() && landing;
        self.stage = Stage::Ended;
        self.span = None;
        written
    }
}
