//! Our own reduction through memory that all ranks of a node have.
//!
//! ```text
//! few bytes:        every rank gives all it has, and each combines all contributions
//! for each chunk:   every rank gives each other rank the block that this one owns,
//!                   the owner combines all contributions and keeps a copy of the result there,
//!                   those who get results take it
//! ```
//!
//! Prefixes (`shared/prefix.rs`) are of the first kind, however many bytes they are. Contributions are combined in
//! the order of the ranks, so all get the same bits. Each byte is copied as often as a message of a library
//! through its own shared memory is copied in, and never out: kernels read what the others gave where it lies.

mod poll;
mod prefix;

use smallvec::SmallVec;

use super::elements::Elements;
use super::step::Step;
use super::{Fold, Geometry, Goal, Output, different};
use crate::copying::{copy, passed};
use crate::error::{Error, Result};
use crate::ground::arena::{AREA, Arena, BESIDE, Idle, Turn};
use crate::scratch::Scratch;

pub(crate) use poll::Poll;
pub(crate) use prefix::Prefix;

/// Bytes up to which every rank combines everything: two messages less, and twice the arithmetic. Fits a block.
pub(crate) const ONCE: usize = 8 << 10;
/// Bytes from which two ranks look how far they are from each other, and write past their caches if that is far: two
/// parts of an EPYC took 128 us for 1 MiB, 255 through the caches, but 150 against 80 within one part.
const LEAST_FAR: usize = 16 << 10;
/// Bytes in one place from which they are combined there, and not brought together with others first.
const LEAST_RUN: usize = 1 << 10;

/// A reduction through shared memory, ready.
pub(crate) struct Shared {
    pub rank: usize,
    pub ranks: usize,
    /// Blocks of it fit an area's.
    pub geometry: Geometry,
    pub goal: Goal,
    /// A rank's result is of the ranks up to it, and not of all.
    pub prefix: Option<Prefix>,
    pub fold: Fold,
    /// Bytes of an element.
    pub item: usize,
    /// This rank's contributions.
    pub input: Elements,
    pub output: Target,
    /// A number that is the same on ranks whose calls match.
    pub label: u64,
}

/// Where this rank's results go: [`Output`], in any form.
pub(crate) enum Target {
    /// All elements.
    Whole(Elements),
    /// As [`Output::Owned`].
    Owned(*mut u8, bool),
    /// Nowhere.
    Nowhere,
}

// SAFETY:
// - its addresses are only used while it runs, and their owner keeps that memory.
unsafe impl Send for Shared {}

impl From<Output> for Target {
    fn from(output: Output) -> Target {
        match output {
            Output::Whole(base) => Target::Whole(Elements::Flat(base)),
            Output::Owned(base, aliased) => Target::Owned(base, aliased),
            Output::Nowhere => Target::Nowhere,
        }
    }
}

/// Bytes that an area has for each rank's block.
pub(crate) const fn block_bytes(ranks: usize) -> usize {
    AREA / ranks / 64 * 64
}

impl Shared {
    /// Runs it. `idle` is called now and then while others are waited for.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank where the calls differ in what the label stands for; nothing was
    /// written then.
    ///
    /// # Safety
    /// - The input holds the contributions that the geometry divides, and the output has room for the results;
    ///   they are one place, or lie apart; nothing else touches them until this returns.
    pub unsafe fn run(&self, arena: &Arena, idle: Idle<'_>) -> Result<()> {
        let mut turn = arena.enter();
        turn.goes_on(idle)?;
        // SAFETY:
        // - by the caller's promise.
        let done = unsafe {
            match (self.prefix, self.geometry.total() * self.item) {
                (Some(prefix), bytes) => self.prefixes(&mut turn, bytes, prefix, idle),
                (None, bytes) if bytes <= ONCE && self.goal != Goal::Owner => {
                    self.once(&mut turn, bytes, idle)
                }
                _ => self.in_chunks(&mut turn, idle),
            }
        };
        if !ends_alike(&done) {
            turn.fails();
        }
        done
    }

    /// Everything in one step.
    ///
    /// # Safety
    /// - As for [`Shared::run`].
    unsafe fn once(&self, turn: &mut Turn<'_>, bytes: usize, idle: Idle<'_>) -> Result<()> {
        let step = turn.first();
        turn.made(1);
        if bytes > BESIDE {
            self.others()
                .try_for_each(|rank| turn.was_done(rank, step.saturating_sub(1), idle))?;
        }
        // SAFETY:
        // - by the caller's promise; the others are done with what was there.
        unsafe { self.give_all(turn, step, bytes) };
        let matched = self.all_given(|rank| turn.given(rank, step, idle));
        if matched.is_ok() {
            // SAFETY:
            // - by the caller's promise; all have given.
            unsafe { self.combine_all(turn, step, bytes) };
        }
        if ends_alike(&matched) {
            turn.done(step);
        }
        matched
    }

    /// Where all that a rank has goes. Not where results of its own lie: a root may still be taking those of two
    /// steps ago, when it has long been done with what was given to it.
    fn place(&self, turn: &Turn<'_>, rank: usize, step: u64, bytes: usize) -> *mut u8 {
        match bytes <= BESIDE {
            true => turn.beside(rank, step),
            false => turn
                .area(rank, step)
                .wrapping_add((rank + 1) % self.ranks * block_bytes(self.ranks)),
        }
    }

    /// Gives all that this rank has.
    ///
    /// # Safety
    /// - As for [`Shared::run`].
    /// - The last step is over. Where `bytes` do not fit beside the counters, all ranks are done with those before.
    unsafe fn give_all(&self, turn: &Turn<'_>, step: u64, bytes: usize) {
        // SAFETY:
        // - the input holds so many bytes, and the place has room for them. What was there was read by all:
        //   beside the counters, since all have given in the last step; else they are done.
        unsafe {
            self.input
                .read(0, bytes, self.place(turn, self.rank, step, bytes))
        };
        turn.give(step, self.label);
    }

    /// Combines all that the ranks have given, where it is wanted.
    ///
    /// # Safety
    /// - As for [`Shared::run`]; all have given in this step.
    unsafe fn combine_all(&self, turn: &Turn<'_>, step: u64, bytes: usize) {
        let gets = match self.goal {
            Goal::Root(root) => root == self.rank,
            Goal::All | Goal::Owner => true,
        };
        if let (Target::Whole(output), true) = (&self.output, gets) {
            let from = |rank, at: usize| {
                let place = self.place(turn, rank, step, bytes);
                place.wrapping_add(at).cast_const()
            };
            // SAFETY:
            // - all have given. The output has room, by the caller's promise, and lies apart from what is shared.
            unsafe { self.combine(self.ranks, from, bytes, None, |_| None, Some((output, 0))) };
        }
    }

    /// In chunks, each rank combining the blocks that it owns.
    ///
    /// # Safety
    /// - As for [`Shared::run`].
    unsafe fn in_chunks(&self, turn: &mut Turn<'_>, idle: Idle<'_>) -> Result<()> {
        let (item, chunks) = (self.item, self.geometry.chunks());
        let kept = match self.output {
            Target::Owned(home, true) => Some((home, self.owned() * item)),
            _ => None,
        };
        let scratch = kept.map(|(_, bytes)| Scratch::new(bytes)).transpose()?;
        let place = |owner: usize, target: usize, step| {
            let block = target * block_bytes(self.ranks);
            turn.area(owner, step).wrapping_add(block)
        };
        let timed =
            self.ranks == 2 && self.geometry.total() * item >= LEAST_FAR && turn.knows_distance();
        let far = timed && turn.is_far();
        let give = |chunk: usize, step: u64| {
            self.others()
                .try_for_each(|rank| turn.was_done(rank, step.saturating_sub(1), idle))?;
            for target in self.others() {
                let (first, n) = self.geometry.block(chunk, target);
                // SAFETY:
                // - contributions are within the input; a block has room for them, and its reader was done with
                //   what was there.
                unsafe {
                    let to = place(self.rank, target, step);
                    match far {
                        true => self.input.read_past_caches(first * item, n * item, to),
                        false => self.input.read(first * item, n * item, to),
                    }
                };
            }
            if far {
                passed();
            }
            turn.give(step, self.label);
            Ok::<(), Error>(())
        };
        let start = turn.first();
        if chunks > 0 {
            give(0, start)?;
        }
        for chunk in 0..chunks {
            let step = start + chunk as u64;
            let matched = match timed {
                true => self.all_given(|rank| turn.given_timed(rank, step, idle)),
                false => self.all_given(|rank| turn.given(rank, step, idle)),
            };
            if matched.is_err() {
                if ends_alike(&matched) {
                    turn.done(step);
                    turn.made(1);
                }
                return matched;
            }
            if chunk + 1 < chunks {
                give(chunk + 1, step + 1)?;
            }
            let (first, n) = self.geometry.block(chunk, self.rank);
            let from = |rank, at: usize| place(rank, self.rank, step).wrapping_add(at).cast_const();
            let share = match self.goal {
                Goal::All => true,
                Goal::Root(root) => root != self.rank,
                Goal::Owner => false,
            };
            let shared = place(self.rank, self.rank, step);
            // Blocks that ranks own as a whole are contiguous over the chunks.
            let since = (first - self.geometry.block(0, self.rank).0) * item;
            let flat;
            let to = match (&self.output, &scratch) {
                (Target::Whole(output), _) => Some((output, first * item)),
                (&Target::Owned(home, _), kept) => {
                    flat = Elements::Flat(kept.as_ref().map_or(home, Scratch::ptr));
                    Some((&flat, since))
                }
                (Target::Nowhere, _) => None,
            };
            // SAFETY:
            // - all have given; the shared place of results was read by all that take some, since they have given
            //   this step after that.
            // - results have room where they go, by the caller's promise; the own contribution to these very
            //   elements is there or was read, and those of later chunks are elsewhere, or kept apart.
            unsafe {
                let later = to.filter(|_| far && share);
                let keep = |at: usize| (share && later.is_none()).then(|| shared.wrapping_add(at));
                self.combine(self.ranks, from, n * item, Some(first * item), keep, to);
                if let Some((output, first)) = later {
                    output.read_past_caches(first, n * item, shared);
                }
            }
            if far {
                passed();
            }
            turn.done(step);
            if let (Target::Whole(output), true) = (&self.output, self.goal != Goal::Owner) {
                for source in self.others() {
                    turn.was_done(source, step + 1, idle)?;
                    let (first, n) = self.geometry.block(chunk, source);
                    // SAFETY:
                    // - its owner is done, so the results are there.
                    unsafe { output.write(first * item, n * item, place(source, source, step)) };
                }
            }
        }
        if let (Some((home, bytes)), Some(kept)) = (kept, &scratch) {
            // SAFETY:
            // - the results of this rank, kept apart until all contributions had been given.
            unsafe { copy(kept.ptr(), home, bytes) };
        }
        turn.made(chunks as u64);
        Ok(())
    }

    /// Combines `bytes` bytes of the first `ranks` ranks' contributions, in steps: `from` says where a rank's lie, `own`
    /// where this rank's begin in the input if they are not there, `keep` where results are wanted besides
    /// the output, from a byte of it on.
    ///
    /// # Safety
    /// - The contributions are there, and nobody writes them; the places of results have room and lie apart
    ///   from them, but that results may go where this rank's own contributions to them are.
    unsafe fn combine(
        &self,
        ranks: usize,
        from: impl Fn(usize, usize) -> *const u8,
        bytes: usize,
        own: Option<usize>,
        keep: impl Fn(usize) -> Option<*mut u8>,
        to: Option<(&Elements, usize)>,
    ) {
        let (mut mine, mut sum) = (Step::new(), Step::new());
        let (mut own_hint, mut to_hint) = (0, 0);
        // Filled in its place: moved right after it was written, it would be read in words of another size, for which
        // processors wait until all stores before have left, and those of a step go to lines that another core has.
        let mut blocks: SmallVec<[*const u8; 4]> = SmallVec::new();
        let mut at = 0;
        while at < bytes {
            let own_run = own.map(|first| self.input.run(first + at, &mut own_hint));
            let to_run = to.map(|(output, first)| output.run(first + at, &mut to_hint));
            let mut n = self.fold.step_bytes().min(bytes - at);
            for (_, run) in [own_run, to_run].into_iter().flatten() {
                if run >= LEAST_RUN {
                    n = n.min(run);
                }
            }
            let contribution = own.zip(own_run).map(|(first, (place, run))| {
                if run >= n {
                    return place;
                }
                let mine = mine.ptr();
                // SAFETY:
                // - a step has room for it.
                unsafe { self.input.read(first + at, n, mine) };
                mine
            });
            blocks.clear();
            for rank in 0..ranks {
                blocks.push(match contribution.filter(|_| rank == self.rank) {
                    None => from(rank, at),
                    Some(place) => place,
                });
            }
            let kept = keep(at);
            // Contributions of lower ranks than the first two are added to what lies elsewhere.
            let home = to_run
                .filter(|&(place, run)| run >= n && (self.rank < 2 || Some(place) != contribution));
            let result = home.map_or_else(|| kept.unwrap_or_else(|| sum.ptr()), |(place, _)| place);
            // SAFETY:
            // - every block holds `n` bytes of whole elements, and so does the place of the result, which lies apart
            //   from them or is one of the first two.
            // - the other places have room.
            unsafe {
                self.fold.combine(&blocks, result, n / self.item);
                if let Some(kept) = kept.filter(|&kept| kept != result) {
                    copy(result.cast_const(), kept, n);
                }
                if let (Some((output, first)), None) = (to, home) {
                    output.write(first + at, n, result);
                }
            }
            at += n;
        }
    }

    /// Waits until all have given, by what waits for one and says its label; whether their calls match this one.
    fn all_given(&self, given: impl Fn(usize) -> Result<u64>) -> Result<()> {
        let mut other = None;
        for rank in self.others() {
            if given(rank)? != self.label {
                other = Some(rank);
            }
        }
        match other {
            None => Ok(()),
            Some(rank) => Err(different(self.rank, rank)),
        }
    }

    /// The other ranks, each rank starting with another one.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |distance| (rank + distance) % ranks)
    }

    /// Elements that this rank owns.
    fn owned(&self) -> usize {
        (0..self.geometry.chunks())
            .map(|chunk| self.geometry.block(chunk, self.rank).1)
            .sum()
    }
}

/// Whether all ranks see the same end: a mismatch shows on every one.
fn ends_alike<T>(done: &Result<T>) -> bool {
    matches!(done, Ok(_) | Err(Error::Mismatch(_)))
}

#[cfg(test)]
mod poll_tests;
#[cfg(test)]
mod tests;
