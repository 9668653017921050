//! The gate before a collective: numbers the call and, when its number is due, compares fingerprints.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::arena::{Arena, Idle};
use super::awareness::{self, Way};
use super::exchange::Exchange;
use super::fingerprint::Fingerprint;
use super::settings::Settings;
use super::state::State;
use crate::agreed::{Place, Standing};
use crate::brief::Brief;
use crate::call::{Call, Kind};
use crate::comm::Comm;
use crate::direct::Lane;
use crate::error::{Error, Result};
use crate::foreign::Told;
use crate::trace::{self, Span};
use crate::watch::{self, About, Entered};

/// Collectives of a communicator before memory is shared for the sake of small ones.
const SETTLED: u64 = 16;

/// The gate of one call.
pub(crate) struct Gate {
    comm: Comm,
    kind: Kind,
    /// `None` where nothing is numbered or compared.
    numbered: Option<Numbered>,
}

struct Numbered {
    state: Arc<State>,
    settings: Settings,
    sequence: u64,
}

impl Gate {
    /// Numbers the call. On a communicator of one rank, and where exactly one plain MPI call is promised,
    /// there is nothing to compare.
    #[inline]
    pub fn open(comm: Comm, kind: impl Into<Kind>) -> Result<Gate> {
        let kind = kind.into();
        let (comm, state) = Gate::state_of(comm)?;
        let Some(state) = state else {
            return Ok(Gate::apart(comm, kind));
        };
        let mut settings = Settings::get()?;
        // What was said of this communicator is compared like what holds for all.
        settings.allreduce = state.choice().unwrap_or(settings.allreduce);
        let sequence = state.next();
        Ok(Gate {
            comm,
            kind,
            numbered: Some(Numbered {
                state,
                settings,
                sequence,
            }),
        })
    }

    /// Of a call that is not numbered.
    pub fn apart(comm: Comm, kind: Kind) -> Gate {
        Gate {
            comm,
            kind,
            numbered: None,
        }
    }

    /// Of a call that belongs to a communicator which may have been freed since: on a window or a file.
    pub fn behind(state: &Arc<State>, kind: Kind) -> Result<Gate> {
        let numbered = match state.is_plain() {
            true => None,
            false => Some(Numbered {
                settings: Settings::get()?,
                sequence: state.next(),
                state: Arc::clone(state),
            }),
        };
        Ok(Gate {
            comm: state.comm(),
            kind,
            numbered,
        })
    }

    /// The communicator, plain if it was made so, and its state where collectives are numbered.
    pub fn state_of(comm: Comm) -> Result<(Comm, Option<Arc<State>>)> {
        let (settings, comm) = (Settings::get()?, comm.asked()?);
        if comm.is_plain() || settings.plain || comm.size()? == 1 || comm.is_inter()? {
            return Ok((comm, None));
        }
        let state = State::of(comm)?;
        match state.is_plain() {
            true => Ok((comm.plain(), None)),
            false => Ok((comm.choosing(state.choice()), Some(state))),
        }
    }

    /// The communicator, plain if it was made so.
    pub fn comm(&self) -> Comm {
        self.comm
    }

    /// Which collective.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether a comparison is due.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due().is_some()
    }

    /// The communicator's state, where the call is numbered.
    pub fn state(&self) -> Option<&Arc<State>> {
        self.numbered.as_ref().map(|numbered| &numbered.state)
    }

    /// Puts the call under watch until what is returned goes.
    #[inline]
    pub fn watch(&self, brief: impl FnOnce() -> Brief) -> Option<Entered> {
        watch::enter(self.comm, self.numbers(), brief)
    }

    /// Traces the call until what is returned goes.
    #[inline]
    pub fn trace(&self, brief: impl FnOnce() -> Brief) -> Option<Span> {
        trace::begin(self.numbers(), brief)
    }

    /// Traces a call that overlaps with others.
    #[inline]
    pub fn trace_flight(&self, brief: Brief) -> Option<Span> {
        trace::begin_flight(self.numbers(), brief)
    }

    #[inline]
    fn numbers(&self) -> Option<(&Arc<State>, u64)> {
        self.numbered.as_ref().map(|n| (&n.state, n.sequence))
    }

    /// The call as others know it.
    pub fn about(&self, brief: Brief) -> About {
        let (state, sequence) = match &self.numbered {
            Some(numbered) => (Arc::downgrade(&numbered.state), numbered.sequence),
            None => (Weak::new(), 0),
        };
        About {
            state,
            sequence,
            brief,
            since: Instant::now(),
        }
    }

    /// What the ranks know of each other.
    pub fn standing(&self) -> Standing {
        self.numbered.as_ref().map_or(Standing::NONE, |numbered| {
            numbered.state.standing(numbered.sequence > SETTLED)
        })
    }

    /// The same for a non-blocking call.
    pub fn standing_of_engine(&self) -> Standing {
        self.numbered
            .as_ref()
            .map_or(Standing::NONE.by_messages(), |numbered| {
                let settled = numbered.sequence > SETTLED;
                numbered.state.standing_of_engine(settled)
            })
    }

    /// Agrees on memory for non-blocking calls. Every rank must do so at the same call.
    pub fn agree_arena_of_engine(&self) -> Result<()> {
        self.numbered.as_ref().map_or(Ok(()), |numbered| {
            let choice = numbered.settings.allreduce;
            numbered.state.agree_arena_of_engine(choice)
        })
    }

    /// A plan made anew, in the place of an open one that was made with this standing: the ranks first agree on what it
    /// hangs on. Every rank must come here in the same blocking call, whatever it knows by now. The open plan is gone
    /// by then, and with it the memory that it has.
    #[cold]
    pub fn settle<T>(
        &self,
        mut standing: Standing,
        open: impl Fn(&T) -> bool,
        again: impl Fn(Standing) -> Result<T>,
    ) -> Result<T> {
        loop {
            if let Some(Numbered {
                state, settings, ..
            }) = &self.numbered
            {
                // Where the first is known by now, of a non-blocking call, the plan may not hang on the second.
                match standing.place {
                    Place::Unknown => state.agree_place()?,
                    _ => state.agree_arena(settings.allreduce)?,
                }
            }
            standing = self.standing();
            let plan = again(standing)?;
            if !open(&plan) {
                return Ok(plan);
            }
        }
    }

    /// As [`State::with_arena`].
    pub fn with_arena<T>(&self, work: impl FnOnce(&Arena, Idle<'_>) -> Result<T>) -> Result<T> {
        let nowhere = || Error::State("dlmpi: these ranks share no memory".into());
        let state = self.state().ok_or_else(nowhere)?;
        state.with_arena(work).map_err(|error| state.report(error))
    }

    /// The communicator for a call that gives memory to MPI in this way: on the device, where MPI takes it.
    pub fn comm_for(&self, way: Way) -> Result<Comm> {
        let direct = awareness::allowed(self.comm.mpi(), self.state().map(Arc::as_ref), way)?;
        let hands_over = self.state().is_some_and(|state| state.hands_over());
        Ok(self
            .comm
            .giving_device_memory(direct)
            .handing_over(hands_over))
    }

    /// Agrees where the ranks run. Every rank must do so at the same call.
    pub fn agree_place(&self) -> Result<()> {
        self.state().map_or(Ok(()), |state| state.agree_place())
    }

    /// The tag of our own algorithm's messages.
    pub fn tag(&self) -> i32 {
        self.numbered
            .as_ref()
            .map_or(0, |numbered| numbered.state.tag(numbered.sequence, 2))
    }

    /// Runs `work` on this call's place on the private communicator. Its errors on that communicator come
    /// to the user's error handler.
    pub fn with_lane<T>(&self, work: impl FnOnce(Lane) -> Result<T>) -> Result<T> {
        let nowhere = || Error::State("dlmpi: this call has no place of its own".into());
        let state = self.state().ok_or_else(nowhere)?;
        let comm = state.private(true)?.ok_or_else(nowhere)?;
        let (tag, peers) = (self.tag(), state.peers());
        work(Lane { comm, tag, peers }).map_err(|error| state.report(error))
    }

    /// The comparison that is due before this call, if one is.
    pub fn exchange(&self, call: Option<&Call>) -> Option<Exchange> {
        let due = self.due()?;
        let (sequence, word) = (due.sequence, due.settings.word());
        let mut fingerprint = match call {
            Some(call) => Fingerprint::of(self.comm, call, sequence, word),
            None => Fingerprint::of_raw(self.kind, sequence, word),
        };
        due.add_settings(&mut fingerprint);
        Some(Exchange::new(
            Arc::clone(&due.state),
            sequence,
            &fingerprint,
            false,
        ))
    }

    /// As [`Gate::pass`], with a fingerprint of the caller's made of the number and the settings.
    pub fn pass_as(&self, make: impl FnOnce(u64, u64) -> Fingerprint) -> Result<()> {
        let Some(due) = self.due() else {
            return Ok(());
        };
        let mut fingerprint = make(due.sequence, due.settings.word());
        due.add_settings(&mut fingerprint);
        let state = Arc::clone(&due.state);
        self.finish(Exchange::new(state, due.sequence, &fingerprint, false))
    }

    /// As [`Gate::exchange`], of a call that somebody else carries out.
    pub fn exchange_as(&self, told: &Told) -> Option<Exchange> {
        let due = self.due()?;
        let (sequence, word) = (due.sequence, due.settings.word());
        let mut fingerprint = Fingerprint::of_foreign(self.kind, told, sequence, word);
        due.add_settings(&mut fingerprint);
        let state = Arc::clone(&due.state);
        Some(Exchange::new(state, sequence, &fingerprint, false))
    }

    /// As [`Gate::pass`], of a call that somebody else carries out.
    pub fn pass_foreign(&self, told: &Told) -> Result<()> {
        match self.exchange_as(told) {
            None => Ok(()),
            Some(exchange) => self.compare(exchange).map(drop),
        }
    }

    /// Compares now, where due.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank alike.
    #[inline]
    pub fn pass(&self, call: Option<&Call>) -> Result<()> {
        match self.exchange(call) {
            None => Ok(()),
            Some(exchange) => self.finish(exchange),
        }
    }

    /// The comparison in which this rank says that it refuses the call, if one is due.
    pub fn refusal(&self, why: &Error) -> Option<Exchange> {
        let due = self.due()?;
        let mut fingerprint =
            Fingerprint::refused(self.kind, due.sequence, due.settings.word(), why);
        due.add_settings(&mut fingerprint);
        Some(Exchange::new(
            Arc::clone(&due.state),
            due.sequence,
            &fingerprint,
            true,
        ))
    }

    /// Tells the other ranks, where the call is due, that this one refuses it; the error that this rank
    /// then raises.
    pub fn refuse(&self, why: Error) -> Error {
        let Some(exchange) = self.refusal(&why) else {
            return why;
        };
        // The cause on this rank is more use to its caller than what the others see.
        match self.compare(exchange) {
            Ok(_) | Err(Error::Mismatch(_)) => why.told(),
            Err(error) => error,
        }
    }

    fn due(&self) -> Option<&Numbered> {
        self.numbered
            .as_ref()
            .filter(|numbered| numbered.settings.check.due(numbered.sequence))
    }

    fn finish(&self, exchange: Exchange) -> Result<()> {
        let exchange = self.compare(exchange)?;
        // All ranks see the same, in a call that blocks on all of them.
        match &self.numbered {
            Some(numbered) if exchange.offers_everywhere() => numbered.state.agree_reach(),
            _ => Ok(()),
        }
    }

    /// Carries a comparison to its end.
    fn compare(&self, mut exchange: Exchange) -> Result<Exchange> {
        if let Some(Numbered { state, .. }) = &self.numbered
            && let Some(private) = state.private(true)?
        {
            let done = exchange.poll(private, true);
            done.map_err(|error| state.report(error))?;
        }
        Ok(exchange)
    }
}

impl Numbered {
    /// The first call of a communicator shows the settings too, which it compares.
    fn add_settings(&self, fingerprint: &mut Fingerprint) {
        if self.sequence == 1 {
            fingerprint.words += &format!("; {}", self.settings.describe());
        }
    }
}
