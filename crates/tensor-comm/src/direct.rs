//! Our own reduction of large tensors: reduce-scatter by direct exchange, then allgather, over
//! point-to-point messages on the private communicator.
//!
//! ```text
//! for each chunk:   every rank sends each other rank the block that this one owns,
//!                   the owner combines all contributions in the order of the ranks,
//!                   and sends the result to all (Allreduce), to the root (Reduce) or to nobody
//! ```
//!
//! Results travel while the next chunk's contributions do. One rank alone computes each element, so all
//! get the same bits. Libraries allocate a temporary as large as the tensor in every call, which the
//! kernel fills page by page; here a chunk's worth of scratch memory is kept.

mod elements;
mod fold;
mod geometry;
mod messages;
mod near;
mod shared;

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use mpi_runtime::{Mpi, Request};
use smallvec::SmallVec;

use crate::error::Result;
use crate::ground::peers::Peers;
use crate::scratch::Scratch;
use crate::wiretype::WireType;

pub(crate) use elements::{Elements, Piece};
pub(crate) use fold::Fold;
pub(crate) use geometry::{Extent, Geometry, USUAL_ROOM};
pub(crate) use near::LEAST as NEAR;
pub(crate) use shared::{Shared, Target, block_bytes};

/// One number of many, to compare.
pub(crate) fn label(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |hash: u64, number: u64| {
        (hash ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Who gets the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Every rank all of them.
    All,
    /// This rank all of them.
    Root(usize),
    /// Every rank those that it owns.
    Owner,
}

/// Where this rank's results go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output {
    /// All elements from this address on.
    Whole(*mut u8),
    /// Only those that this rank owns, from this address on; `true`: the memory may hold contributions
    /// that are still to be sent.
    Owned(*mut u8, bool),
    /// Nowhere: they are the root's.
    Nowhere,
}

/// The place of one call on the private communicator.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub comm: mpi_runtime::Comm,
    pub tag: i32,
    /// The ranks' processes, where they can read each other's memory.
    pub peers: Option<Arc<Peers>>,
}

/// How far a reduction came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing moved.
    Idle,
    /// Something moved.
    Moved,
    /// It has ended.
    Ended,
}

/// A reduction by direct exchange, ready.
pub(crate) struct Direct {
    pub mpi: &'static Mpi,
    pub rank: usize,
    pub ranks: usize,
    pub geometry: Geometry,
    pub goal: Goal,
    pub fold: Fold,
    pub wire: WireType,
    /// This rank's contributions.
    pub input: *mut u8,
    pub output: Output,
    /// For the flight: had before the others are told that this rank comes.
    pub scratch: Cell<Option<Scratch>>,
}

/// A reduction under way: its messages, and the scratch memory that they may still write.
pub(crate) struct Flight<D> {
    call: D,
    lane: Lane,
    stage: Stage,
    requests: SmallVec<[Request; 16]>,
    /// Which of them are receives.
    receives: SmallVec<[usize; 16]>,
    scratch: Option<Scratch>,
    /// A block for each other rank's contribution.
    arrivals: *mut u8,
    /// Where owned results are kept that have no place in the tensor: one block for even chunks and one
    /// for odd ones, since they are still leaving when the next contributions arrive; or all of them.
    results: *mut u8,
    /// Where ranks read each other's memory.
    near: Option<near::Near>,
}

/// What happens when the messages under way have landed.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The first contributions are sent.
    Start,
    /// The contributions to this chunk are combined.
    Combine(usize),
    /// Ranks read each other's memory: how far this one is.
    Near(near::Stage),
    /// The last results have come.
    End,
}

// SAFETY:
// - the addresses are of tensors that the owner of the flight keeps, and of its own scratch memory; it is
//   used by one thread at a time.
unsafe impl<D: Send> Send for Flight<D> {}

// SAFETY:
// - its addresses are only used by the flight, whose owner keeps their memory.
unsafe impl Send for Direct {}

impl Direct {
    /// Runs it, on this thread.
    ///
    /// # Safety
    /// - `input` holds the contributions that the geometry divides, and the output has room for the results;
    ///   they are one place, or lie apart; nothing else touches them until this returns.
    pub unsafe fn run(&self, lane: Lane) -> Result<()> {
        let mut flight = Flight::new(self, lane)?;
        // SAFETY:
        // - by the caller's promise.
        unsafe { flight.advance(true) }.map(drop)
    }

    /// With the scratch memory that messages need, the most that any way needs.
    pub fn with_room(self) -> Result<Direct> {
        let (arrivals, results) = self.room();
        self.scratch.set(Some(Scratch::new(arrivals + results)?));
        Ok(self)
    }

    /// Bytes of scratch memory for contributions that arrive, and for results without a place in the tensor.
    fn room(&self) -> (usize, usize) {
        let item = self.wire.bytes;
        let block = self.geometry.largest() * item;
        let results = match self.output {
            Output::Whole(_) | Output::Owned(_, false) => 0,
            Output::Nowhere => 2 * block,
            Output::Owned(_, true) => self.owned() * item,
        };
        ((self.ranks - 1) * block, results)
    }

    /// Elements that this rank owns.
    fn owned(&self) -> usize {
        (0..self.geometry.chunks())
            .map(|chunk| self.geometry.block(chunk, self.rank).1)
            .sum()
    }

    /// The other ranks, those to send to first: each rank starts with another one.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |distance| (rank + distance) % ranks)
    }

    /// The other ranks in the order in which their messages come.
    fn sources(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |distance| (rank + ranks - distance) % ranks)
    }

    fn input(&self, element: usize) -> *mut u8 {
        self.input.wrapping_add(element * self.wire.bytes)
    }
}

impl<D: Deref<Target = Direct>> Flight<D> {
    /// Ready to start.
    pub fn new(call: D, lane: Lane) -> Result<Flight<D>> {
        let near = near::Near::of(&call, &lane);
        let mut flight = Flight {
            lane,
            stage: Stage::Start,
            requests: SmallVec::new(),
            receives: SmallVec::new(),
            results: std::ptr::null_mut(),
            arrivals: std::ptr::null_mut(),
            scratch: None,
            near: None,
            call,
        };
        match near {
            Some(near) => flight.make_room_near(near)?,
            None => flight.make_room()?,
        }
        Ok(flight)
    }

    /// Scratch memory for messages.
    fn make_room(&mut self) -> Result<()> {
        let (arrivals, results) = self.call.room();
        self.take_scratch(arrivals, results)
    }

    fn take_scratch(&mut self, arrivals: usize, results: usize) -> Result<()> {
        let had = self.scratch.take().or_else(|| self.call.scratch.take());
        let scratch = match had.filter(|had| had.bytes() >= arrivals + results) {
            Some(scratch) => scratch,
            None => Scratch::new(arrivals + results)?,
        };
        self.arrivals = scratch.ptr();
        self.results = self.arrivals.wrapping_add(arrivals);
        self.scratch = Some(scratch);
        Ok(())
    }

    /// As [`Flight::advance`] (near.rs).
    ///
    /// # Safety
    /// - As there.
    unsafe fn go_on(&mut self, block: bool) -> Result<Progress> {
        let chunks = self.call.geometry.chunks();
        let mut progress = Progress::Idle;
        loop {
            if !self.land(block)? {
                return Ok(progress);
            }
            progress = Progress::Moved;
            // SAFETY:
            // - by the caller's promise; everything that was under way has landed.
            unsafe {
                match self.stage {
                    Stage::Start => self.start()?,
                    Stage::Combine(chunk) => {
                        self.combine(chunk);
                        self.deliver(chunk)?;
                        self.stage = if chunk + 1 < chunks {
                            self.exchange(chunk + 1)?;
                            Stage::Combine(chunk + 1)
                        } else {
                            Stage::End
                        };
                    }
                    Stage::Near(stage) => {
                        self.stage = self.approach(stage)?;
                        if !block && self.requests.is_empty() {
                            // Others get their turn between two pieces of work.
                            return Ok(progress);
                        }
                    }
                    Stage::End => {
                        if let Output::Owned(home, true) = self.call.output {
                            let bytes = self.call.owned() * self.call.wire.bytes;
                            std::ptr::copy_nonoverlapping(self.results, home, bytes);
                        }
                        return Ok(Progress::Ended);
                    }
                }
            }
        }
    }

    /// # Safety
    /// - As for [`Direct::run`].
    unsafe fn start(&mut self) -> Result<()> {
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            self.stage = if self.near.is_some() {
                Stage::Near(self.greet()?)
            } else {
                self.exchange(0)?;
                Stage::Combine(0)
            };
        }
        Ok(())
    }

    /// Where the result of the block that this rank owns goes.
    fn out(&self, chunk: usize) -> *mut u8 {
        let Direct { geometry, rank, .. } = &*self.call;
        let item = self.call.wire.bytes;
        let (first, _) = geometry.block(chunk, *rank);
        // Blocks that ranks own as a whole are contiguous over the chunks.
        let since = first - geometry.block(0, *rank).0;
        match self.call.output {
            Output::Whole(base) => base.wrapping_add(first * item),
            Output::Owned(base, false) => base.wrapping_add(since * item),
            Output::Owned(_, true) => self.results.wrapping_add(since * item),
            Output::Nowhere => self
                .results
                .wrapping_add((chunk % 2) * geometry.largest() * item),
        }
    }

    /// Whether the own contribution lies where the result goes.
    fn in_place(&self, chunk: usize) -> bool {
        let (first, _) = self.call.geometry.block(chunk, self.call.rank);
        self.out(chunk) == self.call.input(first)
    }

    /// Where the contribution of `source` arrives: the last one where the result goes, which spares a pass,
    /// unless the own one is there.
    fn arrival(&self, chunk: usize, source: usize) -> *mut u8 {
        let Direct { rank, ranks, .. } = *self.call;
        let last = if rank + 1 == ranks {
            rank - 1
        } else {
            ranks - 1
        };
        if source == last && !self.in_place(chunk) {
            return self.out(chunk);
        }
        let slot = if source < rank { source } else { source - 1 };
        let block = self.call.geometry.largest() * self.call.wire.bytes;
        self.arrivals.wrapping_add(slot * block)
    }

    /// Starts the exchange of contributions.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; what arrived before has been combined.
    unsafe fn exchange(&mut self, chunk: usize) -> Result<()> {
        let (_, own) = self.call.geometry.block(chunk, self.call.rank);
        // SAFETY:
        // - each arrival has room for a block, and messages of two steps never share one (`results`).
        // - contributions are within the input and stay until they were sent.
        unsafe {
            for source in self.call.sources() {
                self.receive(self.arrival(chunk, source), own, source)?;
            }
            for target in self.call.others() {
                let (first, n) = self.call.geometry.block(chunk, target);
                self.send(self.call.input(first), n, target)?;
            }
        }
        Ok(())
    }

    /// Combines what has arrived with the own contribution.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; the contributions to this chunk have arrived.
    unsafe fn combine(&self, chunk: usize) {
        let call = &*self.call;
        let (first, n) = call.geometry.block(chunk, call.rank);
        let blocks: SmallVec<[*mut u8; 16]> = (0..call.ranks)
            .map(|rank| match rank == call.rank {
                true => call.input(first),
                false => self.arrival(chunk, rank),
            })
            .collect();
        let from = fold::Contributions {
            blocks: &blocks,
            own: call.rank,
            out: self.out(chunk),
        };
        // SAFETY:
        // - every block holds `n` elements: the own one by the caller's promise, the others arrived; they
        //   lie apart, and the last of the others is where the result goes unless the own one is.
        unsafe { call.fold.run(&from, n) };
    }

    /// Starts to send results to those who get them.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; the chunk has been combined.
    unsafe fn deliver(&mut self, chunk: usize) -> Result<()> {
        let Direct {
            rank, goal, output, ..
        } = *self.call;
        let (_, own) = self.call.geometry.block(chunk, rank);
        let gets = |rank: usize| match goal {
            Goal::All => true,
            Goal::Root(root) => rank == root,
            Goal::Owner => false,
        };
        // SAFETY:
        // - a rank that gets results has room for all of them; results stay until they were sent.
        unsafe {
            if let (Output::Whole(base), true) = (output, gets(rank)) {
                for source in self.call.sources() {
                    let (first, n) = self.call.geometry.block(chunk, source);
                    self.receive(base.wrapping_add(first * self.call.wire.bytes), n, source)?;
                }
            }
            for target in self.call.others().filter(|&rank| gets(rank)) {
                self.send(self.out(chunk), own, target)?;
            }
        }
        Ok(())
    }
}
