//! The giver's half: its card is sent, and once the taker has come it writes chunks, too.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mpi_runtime::{Comm, Mpi, Request, StatusPtr};

use super::{
    BUSY, CARD, Card, Desk, FAILED, HELP, OPEN, TAKEN, UNEQUAL, UNWRITTEN, WRITTEN, chunk, chunks,
};
use crate::direct::Progress;
use crate::error::{Error, Result};
use crate::ground::peers::Peers;
use crate::wiretype::byte;

/// One block on its way to one rank.
pub(crate) struct Giving {
    mpi: &'static Mpi,
    peers: Arc<Peers>,
    taker: usize,
    data: *const u8,
    bytes: usize,
    /// `None` once it has ended. The taker may still use it where this rank has failed: then it stays for ever.
    desk: Option<Box<Desk>>,
    /// MPI reads it until the request has completed.
    card: Box<[u8; CARD]>,
    sending: Option<Request>,
}

// SAFETY:
// - its address is of memory that the caller keeps; it is used by one thread at a time.
unsafe impl Send for Giving {}

impl Giving {
    /// Sends the card.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - `data` is valid for reads of `bytes`, and nobody writes it, until this has ended; after an error for ever.
    pub unsafe fn begin(
        mpi: &'static Mpi,
        peers: Arc<Peers>,
        (data, bytes): (*const u8, usize),
        (taker, tag, comm): (usize, i32, Comm),
    ) -> Result<Giving> {
        let desk = Box::<Desk>::default();
        let at = std::ptr::from_ref(&*desk).addr();
        let card = Card {
            bytes,
            data: data.addr(),
            desk: at,
        };
        let card = Box::new(card.words());
        // SAFETY:
        // - the card is boxed, and stays until the request has completed (`Drop`).
        let sending = unsafe {
            mpi.isend(
                card.as_ptr(),
                CARD as i64,
                byte(mpi),
                taker as i32,
                tag,
                comm,
            )
        }?;
        Ok(Giving {
            mpi,
            peers,
            taker,
            data,
            bytes,
            desk: Some(desk),
            card,
            sending: Some(sending),
        })
    }

    /// Goes on as far as it can without waiting, by one chunk at most.
    ///
    /// # Errors
    /// What MPI reports, and what the taker found: all of it comes when the taker uses this memory no more.
    pub fn advance(&mut self) -> Result<Progress> {
        if let Some(sending) = &mut self.sending {
            // SAFETY:
            // - the request is ours, and completed nowhere else.
            if unsafe { self.mpi.test(sending, StatusPtr::ignore()) }? {
                self.sending = None;
            }
        }
        let Some(desk) = &self.desk else {
            return Ok(Progress::Ended);
        };
        match desk.answer.load(Ordering::Acquire) {
            OPEN => Ok(Progress::Idle),
            HELP => Ok(self.help(desk)),
            // The taker has come, so the card has left.
            word if self.sending.is_none() => self.end(word),
            _ => Ok(Progress::Idle),
        }
    }

    /// Claims a chunk and writes it, if one is left.
    fn help(&self, desk: &Desk) -> Progress {
        if desk.finished.load(Ordering::Relaxed) != BUSY {
            return Progress::Idle;
        }
        let all = chunks(self.bytes);
        let claimed = desk.back.load(Ordering::Relaxed);
        desk.back.store(claimed + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if desk.front.load(Ordering::SeqCst) + claimed + 1 > all {
            // The taker has that one, or will see that nobody has.
            desk.back.store(claimed, Ordering::Release);
            desk.finished.store(WRITTEN, Ordering::Release);
            return Progress::Moved;
        }
        let (at, n) = chunk(all - 1 - claimed, self.bytes);
        let to = desk.room.load(Ordering::Acquire) as usize + at;
        // SAFETY:
        // - the chunk is within the block, which the caller keeps; the taker has offered its room and reads no
        //   chunk that is claimed here.
        let done = unsafe {
            self.peers
                .write(self.taker, to, self.data.wrapping_add(at), n)
        };
        if done.is_err() {
            // The taker reads them itself.
            desk.finished.store(UNWRITTEN, Ordering::Release);
        }
        Progress::Moved
    }

    /// The taker's last word.
    fn end(&mut self, word: u64) -> Result<Progress> {
        self.desk = None;
        let (taker, bytes) = (self.taker, self.bytes);
        match word {
            TAKEN => Ok(Progress::Ended),
            UNEQUAL => Err(Error::Mismatch(format!(
                "rank {taker} expected another number of bytes than the {bytes} of this rank's call; DLMPI_CHECK=always says what each rank called"
            ))),
            FAILED => Err(Error::State(format!(
                "rank {taker} could not use this rank's memory; it knows why (DLMPI_CMA=off: ranks send messages instead)"
            ))),
            _ => Err(Error::State(format!(
                "rank {taker} gave an answer that this rank does not know: {word}"
            ))),
        }
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        // The taker may still come to the desk, and MPI read the card.
        if let Some(desk) = self.desk.take() {
            Box::leak(desk);
        }
        if self.sending.take().is_some() {
            Box::leak(std::mem::replace(&mut self.card, Box::new([0; CARD])));
        }
    }
}
