//! The taker's half: it reads chunks, welcomes the giver's help, and has the last word.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{BUSY, Card, Desk, FAILED, HELP, TAKEN, UNEQUAL, UNWRITTEN, chunk, chunks};
use crate::direct::Progress;
use crate::error::Result;
use crate::ground::peers::Peers;

/// One block that comes from one rank.
pub(crate) struct Taking {
    peers: Arc<Peers>,
    giver: usize,
    card: Card,
    room: *mut u8,
    stage: Stage,
}

// SAFETY:
// - its address is of memory that the caller keeps; it is used by one thread at a time.
unsafe impl Send for Taking {}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The giver does not know of this rank yet.
    Arrived,
    /// Chunks before this one are here.
    Reading(u64),
    /// Chunks before this one are here; the giver has claimed the others, or that many of them.
    Meeting(u64),
    Ended,
}

impl Taking {
    /// Of the block that `card` names, into room for it.
    ///
    /// # Safety
    /// - `room` is valid for writes of the card's bytes, and nobody else uses it, until this has ended; after an error or
    ///   where it is dropped before, as long as the giver may write it.
    pub unsafe fn new(peers: Arc<Peers>, giver: usize, card: Card, room: *mut u8) -> Taking {
        Taking {
            peers,
            giver,
            card,
            room,
            stage: Stage::Arrived,
        }
    }

    /// Tells the giver that nothing is taken: this rank's room is not for as much (`mismatch`: as every rank must have
    /// known), or too small.
    ///
    /// # Errors
    /// [`Error::State`] where the giver cannot be told.
    pub fn decline(peers: &Peers, giver: usize, card: Card, mismatch: bool) -> Result<()> {
        let word = if mismatch { UNEQUAL } else { TAKEN };
        tell(peers, giver, card, offset_of!(Desk, answer), &[word])
    }

    /// Goes on as far as it can without waiting, by one chunk at most.
    ///
    /// # Errors
    /// [`Error::State`] where the giver's memory cannot be read. Nobody writes the room then.
    pub fn advance(&mut self) -> Result<Progress> {
        match self.go_on() {
            Ok(progress) => Ok(progress),
            Err(why) => {
                // The giver hears of it if that is possible, and writes nothing more by then.
                self.await_giver();
                let answer = offset_of!(Desk, answer);
                let _ = tell(&self.peers, self.giver, self.card, answer, &[FAILED]);
                self.stage = Stage::Ended;
                Err(why)
            }
        }
    }

    fn go_on(&mut self) -> Result<Progress> {
        let all = chunks(self.card.bytes);
        match self.stage {
            Stage::Arrived => {
                if all > 1 {
                    self.tell(offset_of!(Desk, room), &[self.room.addr() as u64])?;
                    self.tell(offset_of!(Desk, answer), &[HELP])?;
                    self.stage = Stage::Reading(0);
                    return Ok(Progress::Moved);
                }
                self.read(0)?;
                self.end()
            }
            Stage::Reading(next) => {
                self.tell(offset_of!(Desk, front), &[next + 1])?;
                fence(Ordering::SeqCst);
                let [back, _] = self.giver()?;
                if next + 1 + back > all {
                    // The giver has this one, or withdraws.
                    self.stage = Stage::Meeting(next);
                    return Ok(Progress::Moved);
                }
                self.read(next)?;
                if next + 1 == all {
                    // It had claimed nothing when all was claimed here, so it never will.
                    return self.end();
                }
                self.stage = match next + 1 + back == all {
                    true => Stage::Meeting(next + 1),
                    false => Stage::Reading(next + 1),
                };
                Ok(Progress::Moved)
            }
            Stage::Meeting(next) => {
                let [_, finished] = self.giver()?;
                if finished == BUSY {
                    return Ok(Progress::Idle);
                }
                // What it claimed is read after its word: it may have withdrawn between the two words of one reading.
                let [back, _] = self.giver()?;
                let theirs = if finished == UNWRITTEN { 0 } else { back };
                if next + theirs < all {
                    self.read(next)?;
                    self.stage = Stage::Meeting(next + 1);
                    return Ok(Progress::Moved);
                }
                self.end()
            }
            Stage::Ended => Ok(Progress::Ended),
        }
    }

    /// Everything is here.
    fn end(&mut self) -> Result<Progress> {
        self.stage = Stage::Ended;
        self.tell(offset_of!(Desk, answer), &[TAKEN])?;
        Ok(Progress::Ended)
    }

    /// After a failure: until the giver, if it has begun to write, has finished or is gone.
    fn await_giver(&self) {
        if matches!(self.stage, Stage::Arrived | Stage::Ended) {
            return;
        }
        // No chunk is left for it to claim.
        let all = chunks(self.card.bytes);
        let mut known = self.tell(offset_of!(Desk, front), &[all]);
        fence(Ordering::SeqCst);
        while known.is_ok() {
            match self.giver() {
                Ok([back, BUSY]) if back > 0 => std::thread::yield_now(),
                Ok(_) => return,
                Err(why) => known = Err(why),
            }
        }
    }

    fn read(&self, number: u64) -> Result<()> {
        let (at, n) = chunk(number, self.card.bytes);
        // SAFETY:
        // - the room has that many bytes, and the giver writes no chunk that is claimed here.
        unsafe {
            self.peers.read(
                self.giver,
                self.card.data + at,
                self.room.wrapping_add(at),
                n,
            )
        }
    }

    /// The chunks that the giver has claimed, and its word.
    fn giver(&self) -> Result<[u64; 2]> {
        const { assert!(offset_of!(Desk, finished) == offset_of!(Desk, back) + 8) };
        let mut words = [0u64; 2];
        let at = self.card.desk + offset_of!(Desk, back);
        // SAFETY:
        // - both words are ours to write.
        unsafe {
            self.peers
                .read(self.giver, at, words.as_mut_ptr().cast(), 16)
        }?;
        Ok(words)
    }

    fn tell(&self, at: usize, words: &[u64]) -> Result<()> {
        tell(&self.peers, self.giver, self.card, at, words)
    }
}

/// Writes words of the taker's on the giver's desk.
fn tell(peers: &Peers, giver: usize, card: Card, at: usize, words: &[u64]) -> Result<()> {
    // SAFETY:
    // - the words are there; the desk stays until the last one was said.
    unsafe {
        peers.write(
            giver,
            card.desk + at,
            words.as_ptr().cast(),
            size_of_val(words),
        )
    }
}
