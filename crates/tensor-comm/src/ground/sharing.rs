//! The memory that the ranks of a communicator share, as far as they have agreed on it, and for which calls.

use std::sync::atomic::Ordering;

use mpi_runtime::StatusPtr;

use super::arena::{Arena, Idle};
use super::settings::Choice;
use super::state::State;
use crate::agreed::{Shares, Standing};
use crate::algorithm;
use crate::error::{Error, Result};

impl State {
    /// Whether the ranks share memory, as far as they have agreed on it.
    pub fn shares(&self) -> Shares {
        match self.arena.get() {
            None => Shares::Unknown,
            Some(Some(_)) if !self.is_arena_of_engine() => Shares::Yes,
            Some(_) => Shares::No,
        }
    }

    /// The same for non-blocking calls.
    pub fn standing_of_engine(&self, settled: bool) -> Standing {
        let shares = match (self.arena(), self.is_arena_of_engine()) {
            (Some(_), true) => Shares::OneStep,
            _ => Shares::No,
        };
        Standing {
            shares,
            ..self.standing(settled)
        }
    }

    fn is_arena_of_engine(&self) -> bool {
        self.arena_of_engine.load(Ordering::Relaxed)
    }

    /// Agrees on shared memory for non-blocking calls alone, unless blocking ones have some: calls of the two kinds
    /// may come in another order on each rank. As [`State::agree_arena`].
    pub fn agree_arena_of_engine(&self, choice: Choice) -> Result<()> {
        if self.shares() == Shares::Unknown {
            self.arena_of_engine.store(true, Ordering::Relaxed);
            self.agree_arena(choice)?;
        }
        Ok(())
    }

    /// The memory that the ranks share.
    pub fn arena(&self) -> Option<&Arena> {
        self.arena.get().and_then(Option::as_ref)
    }

    /// Runs `work` on the memory that the ranks share. It is given what to call now and then while it waits for
    /// other ranks: they may wait for MPI's work on this one, or have revoked the communicator.
    pub fn with_arena<T>(&self, work: impl FnOnce(&Arena, Idle<'_>) -> Result<T>) -> Result<T> {
        let nowhere = || Error::State("dlmpi: these ranks share no memory".into());
        let arena = self.arena().ok_or_else(nowhere)?;
        work(arena, &|| self.look_around())
    }

    /// What to do now and then while waiting for other ranks without MPI: they may wait for MPI's work on this one, or have
    /// revoked the communicator.
    pub fn look_around(&self) -> Result<()> {
        let (mpi, any) = (self.comm().mpi(), self.comm().mpi().constants().any_source);
        let [_, tag] = self.spare_tags();
        // A message that is never there: MPI looks through all that it has to do.
        if let Some(private) = self.private(false)? {
            // SAFETY:
            // - no status is asked for.
            unsafe { mpi.iprobe(any, tag, private, StatusPtr::ignore()) }?;
        }
        Ok(())
    }

    /// Agrees whether the ranks share memory, and makes it so where that is of use, after it is known where
    /// they run. At the same blocking call on every rank.
    pub fn agree_arena(&self, choice: Choice) -> Result<()> {
        if self.arena.get().is_none() {
            let arena = match algorithm::may_share(choice, self.place(), self.size()) {
                true => Arena::agree(self.comm())?,
                false => None,
            };
            self.arena.get_or_init(|| arena);
        }
        Ok(())
    }
}
