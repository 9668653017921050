//! The same reduction where ranks can use each other's memory (`ground/peers.rs`): nothing but addresses
//! and news travel as messages.
//!
//! ```text
//! greet:   all tell all where their contributions are, and where they want results
//! gather:  each rank reads the contributions to all that it owns, step by step, combines them, and writes
//!          the result where it is wanted
//! leave:   all tell all that they have done so, or could not: nobody's memory is used any more
//! ```
//!
//! A rank waits twice in all, and meanwhile needs no other rank to run: on cores that compute as well each
//! wait is dear. A step stays in the cache from its reading to its writing. Where a rank writes results in
//! place of contributions, it alone has read these.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Direct, Flight, Goal, Lane, Output, Progress, Receive, fold};
use crate::error::{Error, Result};
use crate::ground::peers::{self, Peers};
use crate::wiretype::byte;

/// Bytes of the whole reduction from which two waits are cheaper than the copies through the library.
pub(crate) const LEAST: usize = 256 << 10;
/// Bytes of all ranks together that are combined at once: they stay in the second-level cache. Each step is a call of
/// the system per other rank, which takes as long as some 30 KiB.
const STEP: usize = 1 << 20;
/// What ranks tell each other: whether others can use their memory, the addresses of contributions and of the
/// room for results, if they get any, and the number of their call.
type Places = [u64; 4];

/// What is known of the others.
pub(super) struct Near {
    peers: Arc<Peers>,
    /// By rank. The own ones are sent.
    places: Box<[Places]>,
    /// Why this rank could not do its part.
    failed: Option<Error>,
    /// Others know this rank's places, and use them until they say that they have left.
    told: bool,
}

/// How far a rank is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// Places are under way.
    Greet,
    /// This chunk is combined, up to this element of the own block.
    Gather(usize, usize),
    /// This rank has done its part, or failed.
    Leave,
}

impl Near {
    /// Where it is possible and worth it: known to all ranks alike.
    pub fn of(call: &Direct, lane: &Lane) -> Option<Near> {
        let peers = Arc::clone(lane.peers.as_ref()?);
        let worth = call.route.is_none() && call.geometry.elements() * call.wire.bytes >= LEAST;
        worth.then(|| Near {
            peers,
            places: vec![[0; 4]; call.ranks].into(),
            failed: None,
            told: false,
        })
    }
}

impl Direct {
    /// Elements that `rank` owns in the chunks before this one.
    fn before(&self, chunk: usize, rank: usize) -> usize {
        let blocks = (0..chunk).map(|chunk| self.geometry.block(chunk, rank).1);
        blocks.sum()
    }

    /// Whether `rank` gets results of others.
    fn gets(&self, rank: usize) -> bool {
        match self.goal {
            Goal::All => true,
            Goal::Root(root) => rank == root,
            Goal::Owner => false,
        }
    }

    /// Elements that are read of one rank before they are combined.
    fn step(&self) -> usize {
        (STEP / self.ranks / self.wire.bytes).max(1)
    }
}

impl<D: Deref<Target = Direct>> Flight<D> {
    /// Goes on as far as it can without waiting, or to the end if `block`.
    ///
    /// An error while others use this rank's memory ends the job: nothing would say when they have left, and
    /// the caller's tensors may go as soon as this returns.
    ///
    /// # Safety
    /// - As for [`Direct::run`], from the first call until it has ended, or for ever after an error.
    pub unsafe fn advance(&mut self, block: bool) -> Result<Progress> {
        // SAFETY:
        // - by the caller's promise.
        let done = unsafe { self.go_on(block) };
        if let (Err(error), true) = (&done, self.near.as_ref().is_some_and(|near| near.told)) {
            eprintln!(
                "dlmpi: a reduction failed while other ranks work on this one's memory, so the job ends: {error}"
            );
            self.call.mpi.abort(self.call.mpi.comm_world(), 1);
        }
        done
    }

    /// Scratch memory for steps, and for results that have no place in the tensor.
    pub(super) fn make_room_near(&mut self, near: Near) -> Result<()> {
        let Direct { output, ranks, .. } = *self.call;
        let (item, step) = (self.call.wire.bytes, self.call.step());
        let kept = match output {
            Output::Whole(_) | Output::Owned(_, false) => 0,
            Output::Nowhere => step * item,
            Output::Owned(_, true) => self.call.owned() * item,
        };
        self.near = Some(near);
        self.take_scratch((ranks - 1) * step * item, kept)
    }

    /// Tells all others where things are.
    ///
    /// # Safety
    /// - As for [`Direct::run`].
    pub(super) unsafe fn greet(&mut self) -> Result<Stage> {
        let Direct {
            rank,
            output,
            label,
            ..
        } = *self.call;
        let input = self.call.input;
        let bytes = self.call.geometry.elements() * self.call.wire.bytes;
        let results = match output {
            Output::Whole(base) if self.call.gets(rank) => Some(base),
            _ => None,
        };
        let open = self.conveyor.is_none()
            && peers::is_readable(input, bytes)
            && results.is_none_or(|results| peers::is_writable(results, bytes));
        let others: SmallVec<[usize; 16]> = self.call.others().collect();
        let Some(near) = &mut self.near else {
            return Ok(Stage::Greet);
        };
        if let Some(own) = near.places.get_mut(rank) {
            let results = results.map_or(0, |results| results.addr() as u64);
            *own = [open.into(), input.addr() as u64, results, label];
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
            if let Some(near) = &mut self.near {
                near.told = true;
            }
        }
        Ok(Stage::Greet)
    }

    /// The next piece of work, and what comes after it.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; everything that was under way has landed.
    pub(super) unsafe fn approach(&mut self, stage: Stage) -> Result<super::Stage> {
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            Ok(super::Stage::Near(match stage {
                Stage::Greet => {
                    if let Some(other) = self.other_call() {
                        // All ranks see a difference, so nobody uses anybody's memory.
                        self.near = None;
                        return Err(super::different(self.call.rank, other));
                    }
                    let closed = |near: &Near| near.places.iter().any(|place| place[0] == 0);
                    if self.near.as_ref().is_none_or(closed) {
                        // All ranks see which one's memory others cannot use, and go the other way.
                        self.near = None;
                        self.make_room()?;
                        return Ok(super::Stage::Exchange(0));
                    }
                    Stage::Gather(0, 0)
                }
                Stage::Gather(chunk, at) if chunk < self.call.geometry.chunks() => {
                    match self.gather(chunk, at) {
                        Ok(Some(next)) => Stage::Gather(chunk, next),
                        Ok(None) => Stage::Gather(chunk + 1, 0),
                        Err(why) => self.leave(Some(why))?,
                    }
                }
                Stage::Gather(..) => self.leave(None)?,
                Stage::Leave => return self.judge().map(|()| super::Stage::End),
            }))
        }
    }

    /// A rank that told of another call than this one.
    fn other_call(&self) -> Option<usize> {
        let places = &self.near.as_ref()?.places;
        places.iter().position(|place| place[3] != self.call.label)
    }

    /// Reads and combines one step of a chunk's own block, from this element on, and hands the result out; says
    /// where the next begins.
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
            Output::Owned(_, true) => self.results.wrapping_add(since * item),
            Output::Nowhere => self.results,
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
            unsafe { self.fetch(rank, first * item, (to, n * item)) }?;
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
        for other in call.others().filter(|&other| call.gets(other)) {
            // SAFETY:
            // - the result lies at `out`. The other rank's room for it is read by nobody: where it holds a
            //   contribution, that was read here.
            unsafe { self.hand_out(other, first * item, (out, n * item)) }?;
        }
        Ok((at + n < block).then_some(at + n))
    }

    /// Reads contributions of a rank.
    ///
    /// # Safety
    /// - `to` is valid for writes of as many bytes.
    unsafe fn fetch(
        &self,
        rank: usize,
        offset: usize,
        (to, bytes): (*mut u8, usize),
    ) -> Result<()> {
        let Some((near, [_, input, ..])) = self.place_of(rank) else {
            return Ok(());
        };
        // SAFETY:
        // - by the caller's promise.
        unsafe { near.peers.read(rank, input as usize + offset, to, bytes) }
    }

    /// Writes results where a rank wants them.
    ///
    /// # Safety
    /// - `from` is valid for reads of as many bytes; the rank uses that part of its room no more.
    unsafe fn hand_out(
        &self,
        rank: usize,
        offset: usize,
        (from, bytes): (*const u8, usize),
    ) -> Result<()> {
        let Some((near, [_, _, results, _])) = self.place_of(rank) else {
            return Ok(());
        };
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            near.peers
                .write(rank, results as usize + offset, from, bytes)
        }
    }

    fn place_of(&self, rank: usize) -> Option<(&Near, Places)> {
        let near = self.near.as_ref()?;
        near.places.get(rank).map(|places| (near, *places))
    }

    /// Tells all others that this rank uses their memory no more, and whether it did its part; hears it of
    /// them.
    ///
    /// # Safety
    /// - As for [`Direct::run`].
    unsafe fn leave(&mut self, failed: Option<Error>) -> Result<Stage> {
        let rank = self.call.rank;
        let others: SmallVec<[usize; 16]> = self.call.others().collect();
        let Some(near) = &mut self.near else {
            return Ok(Stage::Leave);
        };
        if let Some(own) = near.places.get_mut(rank) {
            own[0] = failed.is_none().into();
        }
        near.failed = failed;
        let places = near.places.as_mut_ptr();
        // SAFETY:
        // - each of the places begins with the word; they stay until the messages have landed (`Drop`).
        unsafe {
            for &other in &others {
                self.hear(places.wrapping_add(other).cast(), size_of::<u64>(), other)?;
            }
            for &other in &others {
                self.tell(places.wrapping_add(rank).cast(), size_of::<u64>(), other)?;
            }
        }
        Ok(Stage::Leave)
    }

    /// Whether all ranks did their part.
    fn judge(&mut self) -> Result<()> {
        let Some(near) = &mut self.near else {
            return Ok(());
        };
        // All have left.
        near.told = false;
        if let Some(why) = near.failed.take() {
            return Err(why);
        }
        match near.places.iter().position(|place| place[0] == 0) {
            None => Ok(()),
            Some(rank) => Err(Error::State(format!(
                "rank {rank} could not use the memory of the other ranks, so its part of the result is missing \
                 everywhere; it knows why (DLMPI_CMA=off: ranks send messages instead)"
            ))),
        }
    }

    /// # Safety
    /// - `bytes` may be written at `at` until the message has landed.
    unsafe fn hear(&mut self, at: *mut u8, bytes: usize, source: usize) -> Result<()> {
        let (mpi, Lane { comm, tag, .. }) = (self.call.mpi, &self.lane);
        // SAFETY:
        // - by the caller's promise.
        let request =
            unsafe { mpi.irecv(at, bytes as i64, byte(mpi), source as i32, *tag, *comm) }?;
        self.receives.push(Receive {
            request: self.requests.len(),
            source,
            count: None,
        });
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
