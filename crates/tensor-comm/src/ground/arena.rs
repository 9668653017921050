//! What the ranks of a communicator on one node share: a line of counters for each, and memory for
//! contributions and results, two of everything, since the next step begins before the last has ended.
//!
//! Steps are numbered over all calls of the communicator, the same on every rank. A rank *gives* what it
//! contributes to a step, and is *done* with a step when it has read what the others gave.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use mpi_runtime::{Basic, BuiltinOp};

use super::distance::Distance;
use super::segment::Segment;
use crate::comm::Comm;
use crate::error::{Error, Result, value_error};

/// Bytes of one area: a block for each rank.
pub(crate) const AREA: usize = 512 << 10;
/// Bytes that fit beside the counters.
pub(crate) const BESIDE: usize = LINE - 16;
/// Two cache lines, since processors fetch them in pairs.
const LINE: usize = 128;
/// Lines of one rank: what it gave, twice, and how far it is done, or that it failed.
const LINES: usize = 3;
const PAGE: usize = 4096;
/// Communicators of one process that share memory at a time.
const MOST: usize = 32;
/// Looks at the others' counters before MPI is let work and other processes run: a few microseconds.
const LOOKS: u32 = 100;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// What is called now and then while others are waited for: MPI goes on with what they may wait for. Its
/// errors end the wait, and the use of the communicator.
pub(crate) type Idle<'a> = &'a dyn Fn() -> Result<()>;

/// The shared memory of one communicator.
pub(crate) struct Arena {
    segment: Segment,
    rank: usize,
    ranks: usize,
    /// Steps made so far. Locked during a call.
    step: Mutex<u64>,
    /// Steps taken so far by calls that do not wait.
    queued: AtomicU64,
    distance: Distance,
}

impl Arena {
    /// Makes one; nobody has one where somebody cannot. Every rank must do so at the same blocking call.
    pub fn agree(comm: Comm) -> Result<Option<Arena>> {
        let (rank, ranks) = (comm.rank()? as usize, comm.size()?);
        let bytes = head(ranks) + ranks * 2 * AREA;
        let mut made = match rank == 0 && room() {
            true => Segment::create(bytes).ok(),
            false => None,
        };
        let mut name = made.as_ref().map_or(0, |(_, name)| *name);
        let named = comm.share_word(&mut name);
        let segment = match made.take() {
            Some((segment, _)) => Some(segment),
            None if rank > 0 && name != 0 && room() => Segment::open(name, bytes).ok(),
            None => None,
        };
        let all = named.and_then(|()| comm.all_agree(segment.is_some()));
        if rank == 0 && name != 0 {
            Segment::unname(name);
        }
        Ok(match (all?, segment) {
            (true, Some(segment)) => {
                LIVE.fetch_add(1, Ordering::Relaxed);
                Some(Arena {
                    segment,
                    rank,
                    ranks,
                    step: Mutex::new(0),
                    queued: AtomicU64::new(0),
                    distance: Distance::new(),
                })
            }
            _ => None,
        })
    }

    /// Of ranks that are threads here.
    #[cfg(test)]
    pub fn among_threads(ranks: usize) -> Vec<Arena> {
        let bytes = head(ranks) + ranks * 2 * AREA;
        let (first, name) = Segment::create(bytes).expect("memory");
        let mut segments = vec![first];
        segments.resize_with(ranks, || Segment::open(name, bytes).expect("the same"));
        Segment::unname(name);
        LIVE.fetch_add(ranks, Ordering::Relaxed);
        let arena = |(rank, segment)| Arena {
            segment,
            rank,
            ranks,
            step: Mutex::new(0),
            queued: AtomicU64::new(0),
            distance: Distance::new(),
        };
        segments.into_iter().enumerate().map(arena).collect()
    }

    /// From now on the others are far, or near, whatever is seen.
    #[cfg(test)]
    pub fn pretend(&self, far: bool) {
        self.distance.pretend(far);
    }

    /// Begins a call; one at a time.
    pub fn enter(&self) -> Turn<'_> {
        Turn {
            step: self.step.lock().unwrap_or_else(PoisonError::into_inner),
            arena: self,
        }
    }

    /// The step of the next call that does not wait. All calls of an arena wait, or none does.
    pub fn queue(&self) -> u64 {
        self.queued.fetch_add(1, Ordering::Relaxed)
    }

    /// A look at this step; `None` while one before is not over, or another thread looks.
    pub fn enter_at(&self, step: u64) -> Option<Turn<'_>> {
        let now = match self.step.try_lock() {
            Ok(now) => now,
            Err(TryLockError::Poisoned(now)) => now.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (*now == step).then_some(Turn {
            step: now,
            arena: self,
        })
    }

    /// This rank will give nothing more, nor be done: nobody waits for it in vain, in later calls either.
    pub fn fails(&self) {
        self.word(self.rank, 2, 1).store(1, Ordering::Release);
    }

    /// An error where this rank has failed before.
    pub fn goes_on(&self) -> Result<()> {
        match self.has_failed(self.rank) {
            true => Err(failed(self.rank)),
            false => Ok(()),
        }
    }

    /// Whether `rank` has failed.
    fn has_failed(&self, rank: usize) -> bool {
        self.word(rank, 2, 1).load(Ordering::Acquire) != 0
    }

    fn line(&self, rank: usize, line: usize) -> *mut u8 {
        let at = (rank * LINES + line) * LINE;
        self.segment.base().wrapping_add(at)
    }

    fn word(&self, rank: usize, line: usize, word: usize) -> &AtomicU64 {
        let at = self.line(rank, line).wrapping_add(8 * word);
        // SAFETY:
        // - within the mapping, which is as long as `self`; aligned to 8; only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena of rank {} of {}", self.rank, self.ranks)
    }
}

/// One call's use of an arena.
pub(crate) struct Turn<'a> {
    arena: &'a Arena,
    step: MutexGuard<'a, u64>,
}

impl Turn<'_> {
    /// The call's first step.
    pub fn first(&self) -> u64 {
        *self.step
    }

    /// The call has made so many steps.
    pub fn made(&mut self, steps: u64) {
        *self.step += steps;
    }

    /// The `BESIDE` bytes beside what `rank` gives in `step`.
    pub fn beside(&self, rank: usize, step: u64) -> *mut u8 {
        self.arena.line(rank, (step % 2) as usize).wrapping_add(16)
    }

    /// The `AREA` bytes of `rank` for `step`.
    pub fn area(&self, rank: usize, step: u64) -> *mut u8 {
        let at = head(self.arena.ranks) + (rank * 2 + (step % 2) as usize) * AREA;
        self.arena.segment.base().wrapping_add(at)
    }

    /// This rank gives what it has written for `step`, for a call of this label.
    pub fn give(&self, step: u64, label: u64) {
        let (rank, line) = (self.arena.rank, (step % 2) as usize);
        let word = |word| self.arena.word(rank, line, word);
        word(1).store(label, Ordering::Relaxed);
        word(0).store(step + 1, Ordering::Release);
    }

    /// As [`Arena::fails`].
    pub fn fails(&self) {
        self.arena.fails();
    }

    /// As [`Arena::goes_on`].
    pub fn goes_on(&self, idle: Idle<'_>) -> Result<()> {
        self.arena.goes_on().or_else(|why| idle().and(Err(why)))
    }

    /// Waits until `rank` has given in `step`; the label that it gave.
    pub fn given(&self, rank: usize, step: u64, idle: Idle<'_>) -> Result<u64> {
        let line = (step % 2) as usize;
        let word = |word| self.arena.word(rank, line, word);
        self.until(rank, || word(0).load(Ordering::Acquire) > step, idle)?;
        Ok(word(1).load(Ordering::Relaxed))
    }

    /// As [`Turn::given`], and looks how far the rank is.
    pub fn given_timed(&self, rank: usize, step: u64, idle: Idle<'_>) -> Result<u64> {
        let word = |word| self.arena.word(rank, (step % 2) as usize, word);
        let look = || word(0).load(Ordering::Acquire) > step;
        self.until(rank, || self.arena.distance.timed(look), idle)?;
        Ok(word(1).load(Ordering::Relaxed))
    }

    /// Whether it can be told how far the others are.
    pub fn knows_distance(&self) -> bool {
        self.arena.distance.is_known()
    }

    /// Whether what others write comes from afar.
    pub fn is_far(&self) -> bool {
        self.arena.distance.is_far()
    }

    /// The label that `rank` has given in `step`, if it has.
    pub fn label(&self, rank: usize, step: u64) -> Result<Option<u64>> {
        let word = |word| self.arena.word(rank, (step % 2) as usize, word);
        let given = self.has(rank, || word(0).load(Ordering::Acquire) > step)?;
        Ok(given.then(|| word(1).load(Ordering::Relaxed)))
    }

    /// Whether `rank` is done with all steps before `step`.
    pub fn is_done(&self, rank: usize, step: u64) -> Result<bool> {
        let word = self.arena.word(rank, 2, 0);
        self.has(rank, || word.load(Ordering::Acquire) >= step)
    }

    /// Whether `rank` has come so far; an error if it never will.
    #[inline]
    fn has(&self, rank: usize, ready: impl Fn() -> bool) -> Result<bool> {
        if ready() {
            return Ok(true);
        }
        // What it gave before it failed is there.
        match self.arena.has_failed(rank) && !ready() {
            true => Err(failed(rank)),
            false => Ok(false),
        }
    }

    /// This rank is done with `step`.
    pub fn done(&self, step: u64) {
        let word = self.arena.word(self.arena.rank, 2, 0);
        word.store(step + 1, Ordering::Release);
    }

    /// Waits until `rank` is done with all steps before `step`.
    pub fn was_done(&self, rank: usize, step: u64, idle: Idle<'_>) -> Result<()> {
        let word = self.arena.word(rank, 2, 0);
        self.until(rank, || word.load(Ordering::Acquire) >= step, idle)
    }

    /// Waits for `rank`.
    #[inline]
    fn until(&self, rank: usize, ready: impl Fn() -> bool, idle: Idle<'_>) -> Result<()> {
        for _ in 0..LOOKS {
            if ready() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        while !ready() {
            // What it gave before it failed is there.
            let failed_first = self.arena.has_failed(rank) && !ready();
            // MPI's own word is of more use, where this rank hears one.
            idle()?;
            if failed_first {
                return Err(failed(rank));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn failed(rank: usize) -> Error {
    Error::State(format!(
        "a reduction on this communicator failed on rank {rank}, whose exception says why; its ranks no longer agree on what comes next, make another communicator"
    ))
}

fn head(ranks: usize) -> usize {
    (ranks * LINES * LINE).next_multiple_of(PAGE)
}

fn room() -> bool {
    LIVE.load(Ordering::Relaxed) < MOST
}

impl Comm {
    /// Gives all ranks rank 0's word.
    fn share_word(self, word: &mut u64) -> Result<()> {
        let (mpi, uint64) = (self.mpi(), self.uint64()?);
        // SAFETY:
        // - the word is one uint64.
        unsafe { mpi.bcast(std::ptr::from_mut(word).cast(), 1, uint64, 0, self.raw()) }?;
        Ok(())
    }

    /// Whether all ranks say yes.
    fn all_agree(self, yes: bool) -> Result<bool> {
        let (mpi, uint64) = (self.mpi(), self.uint64()?);
        let (own, mut all) = (u64::from(yes), 0u64);
        let out = std::ptr::from_mut(&mut all);
        // SAFETY:
        // - both are one uint64, apart from each other.
        unsafe {
            mpi.allreduce(
                std::ptr::from_ref(&own).cast(),
                out.cast(),
                1,
                uint64,
                mpi.op(BuiltinOp::Min),
                self.raw(),
            )
        }?;
        Ok(all == 1)
    }

    fn uint64(self) -> Result<mpi_runtime::Datatype> {
        self.mpi()
            .datatype(Basic::Uint64)
            .ok_or_else(|| value_error!("this MPI has no UINT64_T"))
    }
}
