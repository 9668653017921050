//! Collectives that somebody else carries out: numbered, compared, watched and traced as ours are.
//!
//! ```text
//! Foreign::open (numbers it) --> pass (compares where due) --> Announced, kept until the call has returned
//! ```
//!
//! What is compared is in [`Told`]; a field that is not known agrees with everything. Calls on a window or a file are
//! numbered among those of the communicator that it was made of ([`Seat`]). Knows no memory.

use std::sync::Arc;

use mpi_runtime::Mpi;

use crate::brief::Brief;
use crate::call::{Kind, Op};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::ground::gate::Gate;
use crate::ground::state::State;
use crate::trace::{self, Span, Taken};
use crate::watch::{self, Entered};

/// What of a call must be equal on all ranks, besides which one it is.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The root, where it has one.
    pub root: Option<i32>,
    /// The operation, where it reduces.
    pub op: Option<Op>,
    /// Whatever else MPI wants equal, in words.
    pub same: Option<String>,
}

impl Told {
    /// The call in few words.
    pub(crate) fn brief(&self, kind: Kind) -> Brief {
        Brief {
            root: self.root,
            op: self.op,
            ..Brief::named(kind.name())
        }
    }
}

/// The place of a window or a file among the collectives of the communicator that it was made of, which may be
/// freed before it.
#[derive(Debug, Clone)]
pub struct Seat {
    state: Arc<State>,
    made: u64,
}

impl Seat {
    /// The number of the call that made it: the same on all ranks.
    pub fn number(&self) -> u64 {
        self.made
    }
}

/// One collective that has its number.
pub struct Foreign(Gate);

impl Foreign {
    /// Numbers a call on this communicator.
    ///
    /// # Errors
    /// Settings that do not parse, and what MPI reports.
    #[inline]
    pub fn open(comm: &Comm, kind: Kind) -> Result<Foreign> {
        Gate::open(*comm, kind).map(Foreign)
    }

    /// Numbers a call on a window or a file.
    ///
    /// # Errors
    /// [`Error::State`] in a forked child and after `MPI_Finalize`.
    pub fn at(seat: &Seat, kind: Kind) -> Result<Foreign> {
        seat.state.comm().alive()?;
        Gate::behind(&seat.state, kind).map(Foreign)
    }

    /// A call that is not numbered on any rank: watched and traced alone.
    pub fn apart(mpi: &'static Mpi, kind: Kind) -> Result<Foreign> {
        Comm::new(mpi, mpi.comm_world()).map(|world| Foreign(Gate::apart(world, kind)))
    }

    /// The communicator.
    pub(crate) fn comm(&self) -> Comm {
        self.0.comm()
    }

    /// What is kept of it, where calls on it are numbered.
    pub(crate) fn state(&self) -> Option<&Arc<State>> {
        self.0.state()
    }

    /// Gives `work` the communicator and the tag on which messages between two members go in this call. The caller's error
    /// handler hears of its errors.
    ///
    /// # Errors
    /// What `work` says; [`Error::State`] where calls are not numbered.
    pub fn between<T>(&self, work: impl FnOnce(mpi_runtime::Comm, i32) -> Result<T>) -> Result<T> {
        self.0.with_lane(|lane| work(lane.comm, lane.tag))
    }

    /// Whether [`Foreign::pass`] has anything to do: else nobody need say what was called.
    #[inline]
    pub fn matters(&self) -> bool {
        self.0.is_due() || watch::is_on() || trace::is_on()
    }

    /// The place of what this call makes, where it is numbered.
    pub fn seat(&self) -> Option<Seat> {
        let state = Arc::clone(self.0.state()?);
        let made = self.0.about(Brief::named(self.0.kind().name())).sequence;
        Some(Seat { state, made })
    }

    /// Compares, where due. What is returned is kept until the call has returned.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank alike, and what MPI reports.
    pub fn pass(&self, told: &Told) -> Result<Announced> {
        let (gate, brief) = (&self.0, || told.brief(self.0.kind()));
        let announced = Announced {
            _watched: gate.watch(brief),
            span: gate.trace(brief),
        };
        gate.pass_foreign(told)?;
        Ok(announced.taking())
    }

    /// Tells the other ranks, where the call is due, that this one refuses it; the error that it then raises.
    pub fn refuse(&self, why: Error) -> Error {
        let brief = || Brief::named(self.0.kind().name());
        let _seen = (self.0.watch(brief), self.0.trace(brief));
        self.0.refuse(why)
    }
}

/// Numbers and checks a collective that goes to MPI as the caller described it (a derived datatype), so
/// that this rank stays in step with those whose call comes through [`crate::run`].
///
/// # Errors
/// As for [`crate::run`].
pub fn announce(comm: &Comm, kind: impl Into<Kind>) -> Result<Announced> {
    let gate = Gate::open(*comm, kind)?;
    let brief = || Brief::named(gate.kind().name());
    let announced = Announced {
        _watched: gate.watch(brief),
        span: gate.trace(brief),
    };
    gate.pass(None)?;
    Ok(announced.taking())
}

/// Kept until a collective that was announced has returned: its time is watched and traced.
#[derive(Debug)]
pub struct Announced {
    _watched: Option<Entered>,
    span: Option<Span>,
}

impl Announced {
    fn taking(mut self) -> Announced {
        trace::takes(&mut self.span, || Taken::RAW);
        self
    }

    /// Notes that the call did what it should.
    pub fn ended_well(&mut self) {
        if let Some(span) = &mut self.span {
            span.ends(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallKind;

    #[test]
    fn names_are_kinds_of_their_own() {
        let kinds = [
            Kind::named("bcast"),
            Kind::named("Bcast"),
            CallKind::Bcast.into(),
            CallKind::Barrier.into(),
        ];
        for (i, one) in kinds.iter().enumerate() {
            assert!(kinds.iter().skip(i + 1).all(|k| k.word() != one.word()));
        }
    }
}
