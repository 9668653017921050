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

mod conveyor;
mod elements;
mod fold;
mod geometry;
mod messages;
mod near;
mod places;
mod rounds;
mod schedule;
mod shared;
mod step;

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use mpi_runtime::{Datatype, Mpi, Request, StatusArray};
use smallvec::SmallVec;

use crate::copying::copy;
use crate::error::{Error, Result};
use crate::ground::peers::Peers;
use crate::scratch::Scratch;
use crate::wiretype::WireType;

pub(crate) use conveyor::{Conveyor, Place};
pub(crate) use elements::{Elements, Piece};
pub(crate) use fold::Fold;
pub(crate) use geometry::{Extent, Geometry, USUAL_ROOM};
pub(crate) use near::LEAST as NEAR;
pub(crate) use rounds::Route;
pub use schedule::Pattern;
pub(crate) use shared::{ONCE, Poll, Prefix, Shared, Target, block_bytes};

/// One number of many, to compare.
pub(crate) fn label(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |hash: u64, number: u64| {
        (hash ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The error where `other` gave another label than this rank did.
fn different(rank: usize, other: usize) -> Error {
    Error::Mismatch(format!(
        "the ranks called different reductions: rank {other}'s differs from rank {rank}'s in operation, dtype, number of elements, reduce operation or root; DLMPI_CHECK=always says what each rank called"
    ))
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

/// A reduction by messages, ready.
pub(crate) struct Direct {
    pub mpi: &'static Mpi,
    pub rank: usize,
    pub ranks: usize,
    pub geometry: Geometry,
    pub goal: Goal,
    pub fold: Fold,
    pub wire: WireType,
    /// How blocks go where ranks don't exchange them directly.
    pub route: Option<Route>,
    /// This rank's contributions.
    pub input: *mut u8,
    pub output: Output,
    /// The same on every rank exactly if all make the same call.
    pub label: u64,
    /// For the flight: had before the others are told that this rank comes.
    pub scratch: Cell<Option<Scratch>>,
    /// Where contributions or results are on a device.
    pub conveyor: Cell<Option<Box<Conveyor>>>,
}

/// A reduction under way: its messages, and the scratch memory that they may still write.
pub(crate) struct Flight<D> {
    call: D,
    lane: Lane,
    stage: Stage,
    requests: SmallVec<[Request; 16]>,
    receives: SmallVec<[Receive; 16]>,
    /// Of the requests.
    statuses: Option<StatusArray>,
    scratch: Option<Scratch>,
    /// A block for each other rank's contribution.
    arrivals: *mut u8,
    /// Where owned results are kept that have no place in the tensor: one block for even chunks and one
    /// for odd ones, since they are still leaving when the next contributions arrive; or all of them.
    results: *mut u8,
    /// Where partial results are kept that have no place in the tensor.
    work: *mut u8,
    /// Where ranks read each other's memory.
    near: Option<near::Near>,
    conveyor: Option<Box<Conveyor>>,
    /// Why this rank has nothing to say: its own reason, or that another one had nothing to say to it.
    failed: Option<Error>,
    /// Why results could not be brought home, which is no other rank's business.
    stranded: Option<Error>,
}

/// A receive under way.
#[derive(Debug, Clone, Copy)]
struct Receive {
    /// Which of the requests it is.
    request: usize,
    source: usize,
    /// Units of a type, where less means that the source has failed.
    count: Option<(i64, Datatype)>,
}

/// What happens when the messages under way have landed.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The first contributions are sent.
    Start,
    /// The contributions to this chunk are sent as soon as they are in host memory.
    Exchange(usize),
    /// The contributions to this chunk are combined.
    Combine(usize),
    /// This round of this chunk is next.
    Round(usize, usize),
    /// Ranks read each other's memory: how far this one is.
    Near(near::Stage),
    /// The last results have come.
    End,
    /// They are where they belong as soon as they are on the device.
    Home,
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
        let (arrivals, results, work) = self.room();
        self.scratch
            .set(Some(Scratch::new(arrivals + results + work)?));
        Ok(self)
    }

    /// Bytes of scratch memory for contributions that arrive, for results without a place in the tensor, and for
    /// partial results.
    fn room(&self) -> (usize, usize, usize) {
        if let Some(route) = &self.route {
            return self.room_on(route);
        }
        let item = self.wire.bytes;
        let block = self.geometry.largest() * item;
        let results = match self.output {
            Output::Whole(_) | Output::Owned(_, false) => 0,
            Output::Nowhere => 2 * block,
            Output::Owned(_, true) => self.owned() * item,
        };
        ((self.ranks - 1) * block, results, 0)
    }

    /// In words.
    pub fn name(&self) -> &'static str {
        match self.route.as_ref().map(|route| route.pattern) {
            None => "direct exchange",
            Some(Pattern::Ring) => "ring",
            Some(Pattern::Halving) => "halving",
            Some(Pattern::TwoLevel) => "two levels",
        }
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
        let conveyor = call.conveyor.take();
        let mut flight = Flight {
            lane,
            stage: Stage::Start,
            requests: SmallVec::new(),
            receives: SmallVec::new(),
            statuses: None,
            results: std::ptr::null_mut(),
            work: std::ptr::null_mut(),
            arrivals: std::ptr::null_mut(),
            scratch: None,
            near: None,
            conveyor,
            failed: None,
            stranded: None,
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
        let (arrivals, results, work) = self.call.room();
        self.take_scratch(arrivals, results + work)?;
        self.work = self.results.wrapping_add(results);
        Ok(())
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
            if let Stage::Exchange(chunk) = self.stage {
                // Results of the chunk before travel meanwhile, so they are not waited for.
                if !self.is_ready(chunk, block) {
                    return Ok(progress);
                }
                // SAFETY:
                // - by the caller's promise; the chunk before has been combined.
                unsafe { self.exchange(chunk) }?;
                self.stage = Stage::Combine(chunk);
            }
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
                        if let Some(before) = chunk.checked_sub(1) {
                            self.turn(before);
                        }
                        self.combine(chunk);
                        self.deliver(chunk)?;
                        self.stage = if chunk + 1 < chunks {
                            Stage::Exchange(chunk + 1)
                        } else {
                            Stage::End
                        };
                    }
                    Stage::Exchange(_) => {}
                    Stage::Round(chunk, _) if chunk >= chunks => self.stage = Stage::End,
                    Stage::Round(chunk, round) => {
                        let (chunk, round) = self.round(chunk, round)?;
                        self.stage = Stage::Round(chunk, round);
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
                            copy(self.results, home, bytes);
                        }
                        if let Some(last) = chunks.checked_sub(1) {
                            self.turn(last);
                        }
                        self.stage = Stage::Home;
                    }
                    Stage::Home => {
                        return Ok(match self.is_home(block)? {
                            true => Progress::Ended,
                            false => progress,
                        });
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
            } else if self.call.route.is_some() {
                Stage::Round(0, 0)
            } else {
                Stage::Exchange(0)
            };
        }
        Ok(())
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
                let (_, n) = self.call.geometry.block(chunk, target);
                self.send(self.contribution(chunk, target), n, target)?;
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
        if self.failed.is_some() {
            // Not all have come.
            return;
        }
        let (_, n) = call.geometry.block(chunk, call.rank);
        let blocks: SmallVec<[*mut u8; 16]> = (0..call.ranks)
            .map(|rank| match rank == call.rank {
                true => self.contribution(chunk, rank),
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
        let Direct { rank, goal, .. } = *self.call;
        let (_, own) = self.call.geometry.block(chunk, rank);
        let gets = |rank: usize| match goal {
            Goal::All => true,
            Goal::Root(root) => rank == root,
            Goal::Owner => false,
        };
        // SAFETY:
        // - a rank that gets results has room for all of them; results stay until they were sent.
        unsafe {
            for source in self.call.sources().filter(|_| gets(rank)) {
                if let Some(at) = self.result(chunk, source) {
                    let (_, n) = self.call.geometry.block(chunk, source);
                    self.receive(at, n, source)?;
                }
            }
            for target in self.call.others().filter(|&rank| gets(rank)) {
                self.send(self.out(chunk), own, target)?;
            }
        }
        Ok(())
    }
}
