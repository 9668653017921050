//! Scan and Exscan through shared memory: each rank gives all it has, in chunks, and combines what the ranks up to it
//! gave. Higher ranks do more arithmetic, which few ranks have time for.

use super::{Shared, Target, block_bytes, ends_alike};
use crate::error::{Error, Result};
use crate::ground::arena::{BESIDE, Idle, Turn};

/// Bytes of a chunk at most: those of a few ranks stay in the second-level cache.
const CHUNK: usize = 64 << 10;

/// Of which ranks a rank's result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Those up to it.
    Inclusive,
    /// Those before it: rank 0 has no result.
    Exclusive,
}

impl Shared {
    /// Prefixes of `bytes` bytes.
    ///
    /// # Safety
    /// - As for [`Shared::run`].
    pub(super) unsafe fn prefixes(
        &self,
        turn: &mut Turn<'_>,
        bytes: usize,
        prefix: Prefix,
        idle: Idle<'_>,
    ) -> Result<()> {
        let start = turn.first();
        let beside = bytes <= BESIDE;
        let chunk = block_bytes(self.ranks).min(CHUNK) / self.item * self.item;
        let place = |rank: usize, step: u64| self.place(turn, rank, step, bytes);
        let give = |first: usize, step: u64| {
            if !beside {
                self.others()
                    .try_for_each(|rank| turn.was_done(rank, step.saturating_sub(1), idle))?;
            }
            // Nobody needs what the last rank has.
            if self.rank + 1 < self.ranks {
                let n = chunk.min(bytes - first);
                // SAFETY:
                // - contributions are within the input, and the place has room for a chunk. What was there was read by
                //   all: beside the counters, since all have given in the last step; else they are done.
                unsafe { self.input.read(first, n, place(self.rank, step)) };
            }
            turn.give(step, self.label);
            Ok::<(), Error>(())
        };
        let (ranks, own) = match prefix {
            Prefix::Inclusive => (self.rank + 1, true),
            Prefix::Exclusive => (self.rank, false),
        };
        give(0, start)?;
        let mut steps = 0;
        for first in (0..bytes).step_by(chunk) {
            let step = start + steps;
            let matched = self.all_given(|rank| turn.given(rank, step, idle));
            if matched.is_err() {
                if ends_alike(&matched) {
                    turn.done(step);
                    turn.made(1);
                }
                return matched;
            }
            if first + chunk < bytes {
                give(first + chunk, step + 1)?;
            }
            if let (Target::Whole(output), true) = (&self.output, ranks > 0) {
                let from = |rank, at: usize| place(rank, step).wrapping_add(at).cast_const();
                let n = chunk.min(bytes - first);
                // SAFETY:
                // - all have given. The output has room, by the caller's promise, and lies apart from what is shared; this
                //   rank's contributions to later chunks are elsewhere.
                unsafe {
                    self.combine(
                        ranks,
                        from,
                        n,
                        own.then_some(first),
                        |_| None,
                        Some((output, first)),
                    );
                }
            }
            turn.done(step);
            steps += 1;
        }
        turn.made(steps);
        Ok(())
    }
}
