//! The same reduction by a schedule (`schedule.rs`) of messages, for ranks that are many or far apart.
//!
//! ```text
//! for each chunk:   load:    this rank's contributions, in the form in which partial results travel
//!                   combine: round by round, partial results are sent on and those that come are combined
//!                   finish:  what this rank owns is divided and rounded
//!                   spread:  round by round, results are sent on
//! ```
//!
//! Partial results of 16- and 8-bit floats travel as float32 and are rounded once, results in their own dtype.

use std::ops::{Deref, Range};

use super::schedule::{Part, Pattern, Round, Schedule};
use super::{Direct, Flight, Fold, Goal, Output};
use crate::comm::Comm;
use crate::error::Result;
use crate::ground::state::State;
use crate::wiretype::{WireType, wire_type};

/// How the blocks go.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub pattern: Pattern,
    pub schedule: Schedule,
    /// Partial results on the wire.
    pub wide: WireType,
}

impl Route {
    /// For this rank of a communicator. Where it is not known where ranks run, they run together.
    pub fn new(comm: Comm, pattern: Pattern, goal: Goal, fold: &Fold) -> Result<Route> {
        let (rank, ranks, wide) = (comm.rank()? as usize, comm.size()?, fold.wide());
        let nodes = State::existing(comm)?.and_then(|state| state.nodes());
        let nodes = nodes.unwrap_or_else(|| vec![0; ranks].into());
        Ok(Route {
            pattern,
            schedule: Schedule::new(pattern, rank, &nodes, goal),
            wide: wire_type(comm.mpi(), wide, wide.itemsize().unwrap_or(1))?,
        })
    }

    fn rounds(&self) -> usize {
        self.schedule.combine.len() + self.schedule.spread.len()
    }
}

impl Direct {
    /// Bytes of scratch memory: for partial results that arrive, for results without a place in the tensor, and for
    /// this rank's partial results.
    pub(super) fn room_on(&self, route: &Route) -> (usize, usize, usize) {
        let (block, wide) = (self.geometry.largest(), route.wide.bytes);
        let most = |round: &Round| round.receives.iter().map(|part| part.blocks.len()).sum();
        let arrivals: usize = route.schedule.combine.iter().map(most).max().unwrap_or(0);
        let results = match self.output {
            Output::Whole(_) | Output::Owned(_, false) => 0,
            Output::Nowhere => route.schedule.blocks * block * self.wire.bytes,
            Output::Owned(_, true) => self.owned() * self.wire.bytes,
        };
        let work = match self.works_in_place(route) {
            true => 0,
            false => route.schedule.blocks * block * wide,
        };
        // Each part is aligned as the first is.
        let round_up = |bytes: usize| bytes.next_multiple_of(64);
        (round_up(arrivals * block * wide), round_up(results), work)
    }

    /// First element, and number of elements, of consecutive blocks of a chunk. Ranks that own blocks of the tensor
    /// pass them one by one.
    fn span(&self, chunk: usize, blocks: &Range<usize>) -> (usize, usize) {
        let (first, n) = self.geometry.block(chunk, blocks.start);
        match blocks.len() {
            0 => (first, 0),
            1 => (first, n),
            _ => {
                let (last, n) = self.geometry.block(chunk, blocks.end - 1);
                (first, last + n - first)
            }
        }
    }

    /// Elements of scratch memory before those of a block.
    fn since(&self, chunk: usize, block: usize) -> usize {
        match self.goal {
            Goal::Owner => block * self.geometry.largest(),
            _ => self.geometry.block(chunk, block).0 - self.geometry.block(chunk, 0).0,
        }
    }

    /// Whether partial results have the form and the place of results.
    fn works_in_place(&self, route: &Route) -> bool {
        matches!(self.output, Output::Whole(_)) && route.wide.bytes == self.wire.bytes
    }
}

impl<D: Deref<Target = Direct>> Flight<D> {
    /// What follows once all messages of the rounds before this one have landed; `None` at the end.
    ///
    /// # Safety
    /// - As for [`Direct::run`].
    pub(super) unsafe fn round(&mut self, chunk: usize, round: usize) -> Result<(usize, usize)> {
        let Some(route) = self.call.route.clone() else {
            return Ok((self.call.geometry.chunks(), 0));
        };
        let Schedule {
            combine, spread, ..
        } = &route.schedule;
        // SAFETY:
        // - by the caller's promise; places of this chunk are used by nothing that is under way.
        unsafe {
            match round.checked_sub(1).and_then(|last| combine.get(last)) {
                Some(last) => self.absorb(&route, chunk, last),
                None if round == 0 => self.load(&route, chunk),
                None => {}
            }
            if round == combine.len() {
                self.finish(&route, chunk);
            }
            if let Some(next) = combine.get(round) {
                self.pass_on(&route, chunk, next)?;
            } else if let Some(next) = spread.get(round - combine.len()) {
                self.hand_on(chunk, next)?;
            }
        }
        Ok(match round < route.rounds() {
            true => (chunk, round + 1),
            false => (chunk + 1, 0),
        })
    }

    /// Where partial results of some of the chunk's blocks lie, and their elements.
    fn partial(&self, route: &Route, chunk: usize, blocks: &Range<usize>) -> (*mut u8, usize) {
        let call = &*self.call;
        let (first, n) = call.span(chunk, blocks);
        let at = match call.output {
            Output::Whole(base) if call.works_in_place(route) => {
                base.wrapping_add(first * route.wide.bytes)
            }
            _ => {
                let since = call.since(chunk, blocks.start);
                self.work.wrapping_add(since * route.wide.bytes)
            }
        };
        (at, n)
    }

    /// Where results of some of the chunk's blocks lie, and their elements.
    fn finished(&self, chunk: usize, blocks: &Range<usize>) -> (*mut u8, usize) {
        let call = &*self.call;
        let (first, n) = call.span(chunk, blocks);
        let item = call.wire.bytes;
        let at = match call.output {
            Output::Nowhere => {
                let since = call.since(chunk, blocks.start);
                self.results.wrapping_add(since * item)
            }
            Output::Whole(base) => base.wrapping_add(first * item),
            // A rank's own block is all that it has a result of.
            Output::Owned(..) => self.out(chunk),
        };
        (at, n)
    }

    /// # Safety
    /// - As for [`Direct::run`]; nothing of this chunk is under way.
    unsafe fn load(&self, route: &Route, chunk: usize) {
        for block in 0..route.schedule.blocks {
            let blocks = block..block + 1;
            let (first, _) = self.call.span(chunk, &blocks);
            let (to, n) = self.partial(route, chunk, &blocks);
            // SAFETY:
            // - the contributions hold `n` elements from `first` on, and there is room for as many partial results:
            //   apart, or at the same place.
            unsafe { self.call.fold.load(self.call.input(first), to, n) };
        }
    }

    /// Sends partial results and receives others.
    ///
    /// # Safety
    /// - As for [`Flight::load`].
    unsafe fn pass_on(&mut self, route: &Route, chunk: usize, round: &Round) -> Result<()> {
        let mut at = self.arrivals;
        for Part { peer, blocks } in &round.receives {
            let (_, n) = self.partial(route, chunk, blocks);
            // SAFETY:
            // - there is room for what one round brings.
            unsafe { self.receive_as(route.wide, at, n, *peer) }?;
            at = at.wrapping_add(n * route.wide.bytes);
        }
        for Part { peer, blocks } in &round.sends {
            let (from, n) = self.partial(route, chunk, blocks);
            // SAFETY:
            // - what is sent in a round is not combined in it.
            unsafe { self.send_as(route.wide, from, n, *peer) }?;
        }
        Ok(())
    }

    /// Combines what has arrived.
    ///
    /// # Safety
    /// - As for [`Flight::load`]; the round's messages have landed.
    unsafe fn absorb(&self, route: &Route, chunk: usize, round: &Round) {
        let mut at = self.arrivals;
        for Part { blocks, .. } in &round.receives {
            let (into, n) = self.partial(route, chunk, blocks);
            // SAFETY:
            // - both hold `n` partial results and lie apart.
            unsafe { self.call.fold.join(at, into, n) };
            at = at.wrapping_add(n * route.wide.bytes);
        }
    }

    /// # Safety
    /// - As for [`Flight::load`]; this rank has all contributions to what it owns.
    unsafe fn finish(&self, route: &Route, chunk: usize) {
        let owned = &route.schedule.owned;
        let (from, n) = self.partial(route, chunk, owned);
        let (to, _) = self.finished(chunk, owned);
        // SAFETY:
        // - there are `n` partial results, and room for as many results: apart, or at the same place.
        unsafe { self.call.fold.finish(from, to, n) };
    }

    /// Sends results and receives others.
    ///
    /// # Safety
    /// - As for [`Flight::load`].
    unsafe fn hand_on(&mut self, chunk: usize, round: &Round) -> Result<()> {
        let wire = self.call.wire;
        for Part { peer, blocks } in &round.receives {
            let (to, n) = self.finished(chunk, blocks);
            // SAFETY:
            // - a rank that receives results has room for all of them.
            unsafe { self.receive_as(wire, to, n, *peer) }?;
        }
        for Part { peer, blocks } in &round.sends {
            let (from, n) = self.finished(chunk, blocks);
            // SAFETY:
            // - results stay until they were sent.
            unsafe { self.send_as(wire, from, n, *peer) }?;
        }
        Ok(())
    }
}
