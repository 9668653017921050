//! A broadcast by cards: the root gives its block to each other rank, and all of them copy at once.
//!
//! Only in process groups ([`crate::prepare`]), where no rank calls MPI with a Datatype of its own. Whether a call goes this
//! way follows from its bytes alone ([`wanted`]). Where others cannot use the root's memory it sends messages in place of
//! cards, which each rank tells apart.

use std::sync::Arc;

use mpi_runtime::{Datatype, Family, Mpi, Request, StatusBuf, StatusPtr};
use smallvec::SmallVec;

use super::{CARD, Card, Giving, LEAST, Taking};
use crate::comm::Comm;
use crate::direct::{Lane, Progress};
use crate::error::{Error, Result};
use crate::ground::peers::{self, Peers};
use crate::wiretype::byte;

/// Whether a broadcast goes by cards. The same on every rank.
pub(crate) fn wanted(comm: Comm, bytes: usize) -> Result<bool> {
    if !comm.hands_over() {
        return Ok(false);
    }
    Ok(least(comm.size()?, comm.mpi().family()).is_some_and(|least| bytes >= least))
}

/// Bytes from which it was measured to be faster than the library's trees (two cores, 2026-11-30): half again as fast between
/// two ranks, up to twice between three and four of MPICH's; Open MPI's are faster then.
fn least(ranks: usize, family: Family) -> Option<usize> {
    match (ranks, family) {
        (2, _) => Some(2 * LEAST),
        (3 | 4, Family::Mpich) => Some(32 << 20),
        _ => None,
    }
}

/// A broadcast, ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub mpi: &'static Mpi,
    pub rank: usize,
    pub ranks: usize,
    pub root: usize,
    /// The block, or room for it, as MPI takes it; and its bytes.
    pub ptr: *mut u8,
    pub count: i64,
    /// Made of `MPI_BYTE`.
    pub datatype: Datatype,
    pub bytes: usize,
}

// SAFETY:
// - its address is only used by who carries it out, whose owner keeps the memory.
unsafe impl Send for Spread {}

/// A broadcast under way.
pub(crate) struct Spreading {
    call: Spread,
    peers: Arc<Peers>,
    /// Of the root.
    givings: SmallVec<[Giving; 3]>,
    /// The root's messages, or this rank's receive.
    requests: SmallVec<[Request; 3]>,
    taking: Option<Taking>,
    /// What one of them failed with; the others go on.
    failed: Option<Error>,
}

impl Spreading {
    /// Sends the cards, or waits for one.
    ///
    /// # Safety
    /// - The block is there, nobody writes it or, where it is room, uses it, until this has ended; after an error for ever.
    pub unsafe fn begin(call: Spread, lane: Lane) -> Result<Spreading> {
        let Lane { comm, tag, peers } = lane;
        let nowhere = || Error::State("dlmpi: these ranks cannot use each other's memory".into());
        let peers = peers.ok_or_else(nowhere)?;
        let Spread {
            mpi,
            ptr,
            count,
            datatype,
            bytes,
            ..
        } = call;
        let mut begun = Spreading {
            call,
            peers,
            givings: SmallVec::new(),
            requests: SmallVec::new(),
            taking: None,
            failed: None,
        };
        if call.rank != call.root {
            // SAFETY:
            // - the room is writable, and kept until the request has completed: the caller's promise.
            let request = unsafe { mpi.irecv(ptr, count, datatype, call.root as i32, tag, comm) }?;
            begun.requests.push(request);
            return Ok(begun);
        }
        let open = peers::is_readable(ptr, bytes);
        for taker in (0..call.ranks).filter(|&rank| rank != call.root) {
            // SAFETY:
            // - the block stays until all have ended: the caller's promise.
            unsafe {
                if open {
                    let peers = Arc::clone(&begun.peers);
                    let giving = Giving::begin(mpi, peers, (ptr, bytes), (taker, tag, comm))?;
                    begun.givings.push(giving);
                } else {
                    let sent = mpi.isend(ptr, count, datatype, taker as i32, tag, comm)?;
                    begun.requests.push(sent);
                }
            }
        }
        Ok(begun)
    }

    /// Goes on as far as it can without waiting, by one chunk for each other rank at most.
    ///
    /// # Errors
    /// What MPI reports, and what a rank found with which this one had to do.
    pub fn advance(&mut self) -> Result<Progress> {
        let mut progress = Progress::Ended;
        let mut found = Progress::Idle;
        let mut note = |each: Progress| {
            if each != Progress::Ended {
                progress = Progress::Idle;
            }
            if each == Progress::Moved {
                found = Progress::Moved;
            }
        };
        let failed = &mut self.failed;
        self.givings.retain(|giving| match giving.advance() {
            Ok(each) => {
                note(each);
                each != Progress::Ended
            }
            Err(why) => {
                failed.get_or_insert(why);
                false
            }
        });
        if !self.requests.is_empty() {
            note(self.land()?);
        }
        if let Some(taking) = &mut self.taking {
            note(taking.advance()?);
        }
        match (progress, self.failed.take()) {
            (Progress::Ended, Some(why)) => Err(why),
            (Progress::Ended, None) => Ok(Progress::Ended),
            (_, failed) => {
                self.failed = failed;
                Ok(found)
            }
        }
    }

    /// The messages.
    fn land(&mut self) -> Result<Progress> {
        let Spread {
            mpi,
            bytes,
            rank,
            root,
            ptr,
            ..
        } = self.call;
        if rank == root {
            while let Some(request) = self.requests.last_mut() {
                // SAFETY:
                // - the request is ours, and completed nowhere else.
                if !unsafe { mpi.test(request, StatusPtr::ignore()) }? {
                    return Ok(Progress::Idle);
                }
                self.requests.pop();
            }
            return Ok(Progress::Ended);
        }
        let Some(request) = self.requests.first_mut() else {
            return Ok(Progress::Ended);
        };
        let mut status = StatusBuf::new();
        let status = status.as_ptr();
        // SAFETY:
        // - the request is ours, and completed nowhere else; the status is writable.
        if !unsafe { mpi.test(request, status) }? {
            return Ok(Progress::Idle);
        }
        self.requests.clear();
        // SAFETY:
        // - MPI has just filled the status in.
        let came = unsafe { mpi.get_elements(status, byte(mpi)) }?;
        let came = came.map_or(bytes, |came| came as usize);
        let mut card = [0u8; CARD];
        if came == CARD {
            // SAFETY:
            // - the room has at least `LEAST` bytes, of which MPI has just written these.
            unsafe { std::ptr::copy_nonoverlapping(ptr, card.as_mut_ptr(), CARD) };
        }
        match Card::read(&card) {
            Some(card) if card.bytes == bytes => {
                // SAFETY:
                // - the room has as many bytes, and is nobody else's until this has ended.
                let taking = unsafe { Taking::new(Arc::clone(&self.peers), root, card, ptr) };
                self.taking = Some(taking);
                Ok(Progress::Moved)
            }
            Some(card) => {
                Taking::decline(&self.peers, root, card, true)?;
                Err(different(card.bytes, bytes, root))
            }
            None if came == bytes => Ok(Progress::Ended),
            None => Err(different(came, bytes, root)),
        }
    }
}

fn different(came: usize, bytes: usize, root: usize) -> Error {
    Error::Mismatch(format!(
        "Bcast: rank {root} sends {came} bytes, but this rank's call is of {bytes}; DLMPI_CHECK=always says what each rank called"
    ))
}
