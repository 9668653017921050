//! Where the ranks run, asked by a non-blocking collective (`place.rs` has the questions): two small collectives
//! on the private duplicate, issued in their turn among the others.

use std::sync::{MutexGuard, PoisonError};

use mpi_runtime::{BuiltinOp, Mpi, Request, StatusPtr};

use super::patience::Patience;
use super::place::{self, Card, Places};
use super::state::State;
use crate::comm::Comm;
use crate::error::Result;

/// The questions under way. What MPI reads and writes is boxed, and left where it is if they never end.
#[derive(Debug)]
pub(crate) struct Asking {
    ticket: u64,
    stage: Stage,
    own: Box<Card>,
    cards: Box<[Card]>,
    /// This rank's part of the trial, and the least of all.
    trial: Box<[u64; 2]>,
}

/// What is under way.
#[derive(Debug)]
enum Stage {
    /// Nothing.
    Turn,
    /// Cards.
    Cards(Request),
    /// Whether all could read each other's memory.
    Trial(Request, Places),
}

impl Asking {
    /// Of all ranks, in the turn of this ticket.
    pub fn new(comm: Comm, ticket: u64) -> Result<Asking> {
        Ok(Asking {
            ticket,
            stage: Stage::Turn,
            own: Box::new(place::card(comm.mpi())?),
            cards: vec![Card::default(); comm.size()?].into(),
            trial: Box::default(),
        })
    }

    /// Its place in the order of issue, which it keeps to the end: it issues twice.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Goes on as far as it can without waiting, on the private duplicate, from its turn on.
    pub fn poll(&mut self, comm: Comm, private: mpi_runtime::Comm) -> Result<Option<Places>> {
        let mpi = comm.mpi();
        let uint64 = place::word_type(mpi)?;
        loop {
            match &mut self.stage {
                Stage::Turn => {
                    let words = self.own.len() as i64;
                    let (own, cards) = (self.own.as_ptr().cast(), self.cards.as_mut_ptr().cast());
                    // SAFETY:
                    // - the receive side has room for a card of each rank, the send side holds one; both are kept
                    //   until the request completes (`Drop`).
                    let request = unsafe {
                        mpi.iallgather(own, words, uint64, cards, words, uint64, private)
                    }?;
                    self.stage = Stage::Cards(request);
                }
                Stage::Cards(request) => {
                    // SAFETY:
                    // - the request is ours, and completed nowhere else.
                    if !unsafe { mpi.test(request, StatusPtr::ignore()) }? {
                        return Ok(None);
                    }
                    let (places, can) = place::judge(&self.cards);
                    let Some(can) = can else {
                        return Ok(Some(places));
                    };
                    self.trial[0] = can.into();
                    let words = self.trial.as_mut_ptr();
                    let (own, least) = (words.cast(), words.wrapping_add(1).cast());
                    let min = mpi.op(BuiltinOp::Min);
                    // SAFETY:
                    // - each is one uint64, kept as above.
                    let request = unsafe { mpi.iallreduce(own, least, 1, uint64, min, private) }?;
                    self.stage = Stage::Trial(request, places);
                }
                Stage::Trial(request, places) => {
                    // SAFETY:
                    // - as above.
                    if !unsafe { mpi.test(request, StatusPtr::ignore()) }? {
                        return Ok(None);
                    }
                    let mut places = places.clone();
                    places.peers = places.peers.filter(|_| self.trial[1] == 1);
                    return Ok(Some(places));
                }
            }
        }
    }
}

impl State {
    /// Agrees where the ranks run, at the same blocking call on every rank.
    pub fn agree_place(&self) -> Result<()> {
        let mut patience = Patience::default();
        // A non-blocking call may have asked before, and the answer may be there on some ranks.
        let asked = self.asking().is_some();
        while asked && !self.knows_place()? {
            patience.wait(self.comm().mpi());
        }
        if self.places.get().is_none() {
            let places = place::agree(self.comm())?;
            self.places.get_or_init(|| places);
        }
        Ok(())
    }

    /// Asks where the ranks run, at the same non-blocking call on every rank that is the first to want it.
    pub fn ask_place(&self) {
        let mut asking = self.asking();
        if asking.is_none() && self.places.get().is_none() {
            *asking = Some(Asking::new(self.comm(), self.ticket()));
        }
    }

    /// Whether the answer is there; gets on with it.
    pub fn knows_place(&self) -> Result<bool> {
        if self.places.get().is_some() {
            return Ok(true);
        }
        let mut slot = self.asking();
        let asking = match slot.as_mut() {
            Some(Ok(asking)) => asking,
            Some(Err(why)) => return Err(why.clone()),
            None => return Ok(false),
        };
        let ticket = asking.ticket();
        if !self.is_turn(ticket) {
            return Ok(false);
        }
        let Some(private) = self.private(false)? else {
            return Ok(false);
        };
        match asking.poll(self.comm(), private) {
            Ok(None) => return Ok(false),
            Ok(Some(places)) => drop(self.places.set(places)),
            Err(why) => *slot = Some(Err(self.report(why))),
        }
        self.pass_turn();
        match slot.as_ref() {
            Some(Err(why)) => Err(why.clone()),
            _ => Ok(true),
        }
    }

    fn asking(&self) -> MutexGuard<'_, Option<Result<Asking>>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let ended =
            |request: &Request| Mpi::global().is_some_and(|mpi| *request == mpi.request_null());
        let left = match &self.stage {
            Stage::Turn => false,
            Stage::Cards(request) | Stage::Trial(request, _) => !ended(request),
        };
        if left {
            // MPI may still read and write here.
            std::mem::forget((
                std::mem::take(&mut self.own),
                std::mem::take(&mut self.cards),
                std::mem::take(&mut self.trial),
            ));
        }
    }
}
