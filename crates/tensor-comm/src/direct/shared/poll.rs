//! A reduction of one step for callers that do not wait in it: it looks, and is looked after again.
//!
//! Meets ranks that wait in theirs: what lies in the memory is the same.

use super::{Shared, ends_alike};
use crate::direct::{Progress, different};
use crate::error::{Error, Result};
use crate::ground::arena::{Arena, BESIDE, Idle, Turn};

/// Looks at the others' counters before others get their turn.
const LOOKS: u32 = 20;
/// Looks of that kind between two at MPI.
const BETWEEN: u32 = 16;

/// A reduction under way.
pub(crate) struct Poll {
    shared: Box<Shared>,
    /// Its step, which comes when those before are over here.
    step: u64,
    given: bool,
    looks: u32,
}

impl Poll {
    /// Takes the next step. Called on every rank in the same order.
    pub fn new(shared: Box<Shared>, arena: &Arena) -> Poll {
        Poll {
            shared,
            step: arena.queue(),
            given: false,
            looks: 0,
        }
    }

    /// Goes on as far as it can. `idle` is called now and then.
    ///
    /// # Errors
    /// As for [`Shared::run`].
    ///
    /// # Safety
    /// - As for [`Shared::run`], until it has ended or failed.
    pub unsafe fn advance(&mut self, arena: &Arena, idle: Idle<'_>) -> Result<Progress> {
        let looked = arena
            .goes_on()
            .and_then(|()| match arena.enter_at(self.step) {
                // SAFETY:
                // - by the caller's promise.
                Some(turn) => unsafe { self.look(turn) },
                None => Ok(Progress::Idle),
            });
        self.looks += 1;
        let done = match looked {
            Ok(Progress::Idle) if self.looks.is_multiple_of(BETWEEN) => {
                idle().map(|()| Progress::Idle)
            }
            // MPI's own word is of more use, where this rank hears one.
            Err(why) if !matches!(why, Error::Mismatch(_)) => idle().and(Err(why)),
            looked => looked,
        };
        if !ends_alike(&done) {
            arena.fails();
        }
        done
    }

    /// One look at the others, in its turn.
    ///
    /// # Safety
    /// - As for [`Shared::run`].
    unsafe fn look(&mut self, mut turn: Turn<'_>) -> Result<Progress> {
        let (shared, step) = (&self.shared, self.step);
        let bytes = shared.geometry.total() * shared.item;
        let mut progress = Progress::Idle;
        if !self.given {
            if bytes > BESIDE {
                for rank in shared.others() {
                    if !turn.is_done(rank, step.saturating_sub(1))? {
                        return Ok(progress);
                    }
                }
            }
            // SAFETY:
            // - by the caller's promise; the last step is over here, and the others are done with those before.
            unsafe { shared.give_all(&turn, step, bytes) };
            (self.given, progress) = (true, Progress::Moved);
        }
        let mut looks = 0;
        let matched = loop {
            match self.all_labels(&turn)? {
                Some(matched) => break matched,
                None if looks == LOOKS => return Ok(progress),
                None => looks += 1,
            }
            std::hint::spin_loop();
        };
        if matched.is_ok() {
            // SAFETY:
            // - by the caller's promise; all have given.
            unsafe { shared.combine_all(&turn, step, bytes) };
        }
        turn.done(step);
        turn.made(1);
        matched.map(|()| Progress::Ended)
    }

    /// Whether all have given, and then whether their calls match this one.
    fn all_labels(&self, turn: &Turn<'_>) -> Result<Option<Result<()>>> {
        let mut matched = Ok(());
        for rank in self.shared.others() {
            match turn.label(rank, self.step)? {
                None => return Ok(None),
                Some(label) if label != self.shared.label => {
                    matched = Err(different(self.shared.rank, rank));
                }
                Some(_) => {}
            }
        }
        Ok(Some(matched))
    }
}
