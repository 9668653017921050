//! The same reduction where ranks can read each other's memory (`ground/peers.rs`): nothing but addresses
//! and news travel as messages.
//!
//! ```text
//! greet:    all tell all where their contributions are, and where their results will be
//! gather:   each rank reads the contributions to all that it owns, step by step, combines them, and says so
//! collect:  who gets results reads them from their owners, and says so
//! ```
//!
//! A rank waits three times in all, and meanwhile needs no other rank to run: on cores that compute as well
//! each wait is dear. Every byte is copied once instead of twice.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Direct, Flight, Goal, Lane, Output, fold};
use crate::error::Result;
use crate::ground::peers::{self, Peers};
use crate::wiretype::byte;

/// Bytes of the whole reduction from which three waits are cheaper than the copies through the library.
const LEAST: usize = 256 << 10;
/// Bytes that are read of one rank before they are combined: what all send stays in the second-level cache.
const STEP: usize = 128 << 10;
/// Bytes of results that are read in one piece.
const PIECE: usize = 1 << 20;

/// What ranks tell each other: the addresses of contributions and of results; none where others cannot
/// read them.
type Places = [u64; 2];

/// What is known of the others.
pub(super) struct Near {
    peers: Arc<Peers>,
    /// By rank. The own ones are sent.
    places: Box<[Places]>,
}

/// How far a rank is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// Places are under way.
    Greet,
    /// This chunk is combined, up to this element of the own block.
    Gather(usize, usize),
    /// Results of this source (counted from this rank on), in this chunk, are read, up to this element.
    Collect(usize, usize, usize),
    /// Others still read here.
    Leave,
}

impl Near {
    /// Where it is possible and worth it: known to all ranks alike.
    pub fn of(call: &Direct, lane: &Lane) -> Option<Near> {
        let peers = Arc::clone(lane.peers.as_ref()?);
        let worth = call.geometry.elements() * call.wire.bytes >= LEAST;
        worth.then(|| Near {
            peers,
            places: vec![[0; 2]; call.ranks].into(),
        })
    }
}

impl Direct {
    /// Elements that `rank` owns in the chunks before this one.
    fn before(&self, chunk: usize, rank: usize) -> usize {
        let blocks = (0..chunk).map(|chunk| self.geometry.block(chunk, rank).1);
        blocks.sum()
    }

    /// Whether `rank` reads results of others.
    fn gets(&self, rank: usize) -> bool {
        match self.goal {
            Goal::All => true,
            Goal::Root(root) => rank == root,
            Goal::Owner => false,
        }
    }

    /// Elements that are read of one rank before they are combined.
    fn step(&self) -> usize {
        (STEP / self.wire.bytes).max(1)
    }
}

impl<D: Deref<Target = Direct>> Flight<D> {
    /// Scratch memory for steps, and for results that have no place in the tensor.
    pub(super) fn make_room_near(&mut self, near: Near) -> Result<()> {
        let Direct { output, ranks, .. } = *self.call;
        let item = self.call.wire.bytes;
        let kept = match output {
            Output::Whole(_) | Output::Owned(_, false) => 0,
            Output::Nowhere | Output::Owned(_, true) => self.call.owned() * item,
        };
        self.near = Some(near);
        self.take_scratch((ranks - 1) * self.call.step() * item, kept)
    }

    /// Tells all others where things are.
    ///
    /// # Safety
    /// - As for [`Direct::run`].
    pub(super) unsafe fn greet(&mut self) -> Result<Stage> {
        let Direct { rank, output, .. } = *self.call;
        let (item, whole) = (self.call.wire.bytes, self.call.geometry.elements());
        let (input, results) = match output {
            Output::Whole(base) => (self.call.input.cast_const(), base.cast_const()),
            _ => (self.call.input.cast_const(), self.results.cast_const()),
        };
        let read = match output {
            Output::Whole(_) => whole * item,
            _ => 0,
        };
        let open = peers::is_readable(input, whole * item) && peers::is_readable(results, read);
        let others: SmallVec<[usize; 16]> = self.call.others().collect();
        let Some(near) = &mut self.near else {
            return Ok(Stage::Leave);
        };
        if let (true, Some(own)) = (open, near.places.get_mut(rank)) {
            *own = [input.addr() as u64, results.addr() as u64];
        }
        let places = near.places.as_mut_ptr();
        for &other in &others {
            // SAFETY:
            // - there are places of every rank, which stay until the messages have landed (`Drop`).
            unsafe {
                self.hear(
                    places.wrapping_add(other).cast(),
                    size_of::<Places>(),
                    other,
                )
            }?;
        }
        for &other in &others {
            // SAFETY:
            // - as above.
            unsafe { self.tell(places.wrapping_add(rank).cast(), size_of::<Places>(), other) }?;
        }
        Ok(Stage::Greet)
    }

    /// The next piece of work, and what comes after it.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; everything that was under way has landed.
    pub(super) unsafe fn approach(&mut self, stage: Stage) -> Result<super::Stage> {
        let chunks = self.call.geometry.chunks();
        let (rank, ranks) = (self.call.rank, self.call.ranks);
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            Ok(super::Stage::Near(match stage {
                Stage::Greet => {
                    let closed = |near: &Near| near.places.iter().any(|place| place[0] == 0);
                    if self.near.as_ref().is_none_or(closed) {
                        // All ranks see which one's memory the others cannot read, and go the other way.
                        self.make_room()?;
                        self.exchange(0)?;
                        return Ok(super::Stage::Combine(0));
                    }
                    Stage::Gather(0, 0)
                }
                Stage::Gather(chunk, at) if chunk < chunks => match self.gather(chunk, at)? {
                    Some(next) => Stage::Gather(chunk, next),
                    None => Stage::Gather(chunk + 1, 0),
                },
                Stage::Gather(..) => {
                    // What this rank read is its peers' again, and what it owns is ready.
                    self.news(|_| true, |_| true)?;
                    match self.call.gets(rank) {
                        true => Stage::Collect(1, 0, 0),
                        false => Stage::Leave,
                    }
                }
                Stage::Collect(step, chunk, at) if step < ranks => {
                    match self.collect((rank + ranks - step) % ranks, chunk, at)? {
                        Some(next) => Stage::Collect(step, chunk, next),
                        None if chunk + 1 < chunks => Stage::Collect(step, chunk + 1, 0),
                        None => Stage::Collect(step + 1, 0, 0),
                    }
                }
                Stage::Collect(..) | Stage::Leave => {
                    let (mine, call) = (self.call.gets(rank), &*self.call);
                    let readers: SmallVec<[usize; 16]> =
                        (0..ranks).filter(|&r| call.gets(r)).collect();
                    self.news(|_| mine, |other| readers.contains(&other))?;
                    return Ok(super::Stage::End);
                }
            }))
        }
    }

    /// Reads and combines one step of a chunk's own block, from this element on; says where the next begins.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; the others' contributions are there.
    unsafe fn gather(&self, chunk: usize, at: usize) -> Result<Option<usize>> {
        let call = &*self.call;
        let (item, step) = (call.wire.bytes, call.step());
        let (first, block) = call.geometry.block(chunk, call.rank);
        let (first, n) = (first + at, step.min(block - at));
        if n == 0 {
            return Ok(None);
        }
        let since = call.before(chunk, call.rank) + at;
        let out = match call.output {
            Output::Whole(base) => base.wrapping_add(first * item),
            Output::Owned(base, false) => base.wrapping_add(since * item),
            Output::Owned(_, true) | Output::Nowhere => self.results.wrapping_add(since * item),
        };
        let in_place = out == call.input(first);
        let last = (0..call.ranks).rfind(|&rank| rank != call.rank);
        let mut blocks: SmallVec<[*mut u8; 16]> = SmallVec::new();
        for rank in 0..call.ranks {
            if rank == call.rank {
                blocks.push(call.input(first));
                continue;
            }
            let slot = blocks.len() - usize::from(rank > call.rank);
            let to = match last == Some(rank) && !in_place {
                true => out,
                false => self.arrivals.wrapping_add(slot * step * item),
            };
            // SAFETY:
            // - each slot, and the result's place, has room for a step.
            unsafe { self.fetch(rank, 0, first * item, (to, n * item)) }?;
            blocks.push(to);
        }
        let from = fold::Contributions {
            blocks: &blocks,
            own: call.rank,
            out,
        };
        // SAFETY:
        // - every block holds `n` elements: the own one by the caller's promise, the others were read; they lie
        //   apart, and the last of the others is where the result goes unless the own one is.
        unsafe { call.fold.run(&from, n) };
        Ok((at + n < block).then_some(at + n))
    }

    /// Reads a piece of the results of another rank's block; says where the next begins.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; the owner has combined them, and this rank gets them.
    unsafe fn collect(&self, owner: usize, chunk: usize, at: usize) -> Result<Option<usize>> {
        let call = &*self.call;
        let (item, Output::Whole(base)) = (call.wire.bytes, call.output) else {
            return Ok(None);
        };
        let (first, block) = call.geometry.block(chunk, owner);
        let n = (PIECE / item).max(1).min(block - at);
        // Who gets results himself has them in their places, others one after the other.
        let from = match call.gets(owner) {
            true => first,
            false => call.before(chunk, owner),
        };
        let to = base.wrapping_add((first + at) * item);
        // SAFETY:
        // - the output has room for all results.
        unsafe { self.fetch(owner, 1, (from + at) * item, (to, n * item)) }?;
        Ok((at + n < block).then_some(at + n))
    }

    /// Reads from one of a rank's two places.
    ///
    /// # Safety
    /// - The memory is valid for writes of as many bytes.
    unsafe fn fetch(
        &self,
        rank: usize,
        which: usize,
        offset: usize,
        (to, bytes): (*mut u8, usize),
    ) -> Result<()> {
        let Some((peers, places)) = self.near.as_ref().map(|n| (&n.peers, &n.places)) else {
            return Ok(());
        };
        let place = places.get(rank).map_or(0, |places| places[which]) as usize;
        // SAFETY:
        // - by the caller's promise.
        unsafe { peers.read(rank, place + offset, to, bytes) }
    }

    /// Sends an empty message to some of the others, and expects one from some.
    ///
    /// # Safety
    /// - As for [`Direct::run`].
    unsafe fn news(
        &mut self,
        told: impl Fn(usize) -> bool,
        heard: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let nothing = self.arrivals;
        let others: SmallVec<[usize; 16]> = self.call.others().collect();
        // SAFETY:
        // - the messages are empty.
        unsafe {
            for &other in others.iter().filter(|&&other| heard(other)) {
                self.hear(nothing, 0, other)?;
            }
            for &other in others.iter().filter(|&&other| told(other)) {
                self.tell(nothing, 0, other)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// - `bytes` may be written at `at` until the message has landed.
    unsafe fn hear(&mut self, at: *mut u8, bytes: usize, source: usize) -> Result<()> {
        let (mpi, Lane { comm, tag, .. }) = (self.call.mpi, &self.lane);
        // SAFETY:
        // - by the caller's promise.
        let request =
            unsafe { mpi.irecv(at, bytes as i64, byte(mpi), source as i32, *tag, *comm) }?;
        self.receives.push(self.requests.len());
        self.requests.push(request);
        Ok(())
    }

    /// # Safety
    /// - `bytes` lie at `at` until the message has left.
    unsafe fn tell(&mut self, at: *const u8, bytes: usize, target: usize) -> Result<()> {
        let (mpi, Lane { comm, tag, .. }) = (self.call.mpi, &self.lane);
        // SAFETY:
        // - by the caller's promise.
        let request =
            unsafe { mpi.isend(at, bytes as i64, byte(mpi), target as i32, *tag, *comm) }?;
        self.requests.push(request);
        Ok(())
    }
}
