//! Large blocks from one rank to another of the same node, where both are ours: a card with addresses goes as the
//! message, and both copy (`ground/peers.rs`).
//!
//! ```text
//! giver:  sends the card               taker:  receives it
//!         ... writes chunks from the           reads chunks from the front,
//!         back, once the taker has             until both meet,
//!         said where its room is               and says that it has all
//! ```
//!
//! Both claim chunks on the giver's desk, which the card names, so whoever is busy elsewhere copies less. The desk stays
//! until the taker has said its last word. A taker ends only when the giver writes nothing any more: it has then either
//! seen that the giver claimed nothing after it had claimed all itself, or heard that the giver has finished.
//!
//! A card is known by its length and its first bytes. A tensor that looks like one travels by a card, so no message can
//! be misread. Knows bytes, no tensors.

mod giving;
mod spread;
mod taking;

use std::sync::atomic::AtomicU64;

use crate::ground::peers;

pub(crate) use giving::Giving;
pub(crate) use spread::{Spread, Spreading, wanted};
pub(crate) use taking::Taking;

/// Bytes from which two copies at once are cheaper than the library's way, although two ranks must meet.
pub(crate) const LEAST: usize = 256 << 10;
/// Bytes of one claim: so long does one wait for the other's last one.
const CHUNK: usize = 256 << 10;

/// Bytes of a card: a number that few tensors have.
pub(crate) const CARD: usize = 31;
/// How it begins.
const MARK: [u8; 7] = *b"\xd1dlmpi\x01";

/// What a giver sends instead of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Card {
    /// Bytes of the block.
    pub bytes: usize,
    /// Where they are.
    pub data: usize,
    /// Where the giver's desk is.
    pub desk: usize,
}

impl Card {
    /// As it travels.
    pub fn words(self) -> [u8; CARD] {
        let mut words = [0; CARD];
        let fields = [self.bytes, self.data, self.desk].map(|field| (field as u64).to_ne_bytes());
        let (mark, rest) = words.split_at_mut(MARK.len());
        mark.copy_from_slice(&MARK);
        rest.copy_from_slice(fields.as_flattened());
        words
    }

    /// The card that a message is, if it is one.
    pub fn read(message: &[u8]) -> Option<Card> {
        let rest = message.strip_prefix(&MARK)?;
        let field = |at: usize| {
            let bytes = rest.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?) as usize)
        };
        let whole = message.len() == CARD;
        let card = Card {
            bytes: field(0)?,
            data: field(1)?,
            desk: field(2)?,
        };
        whole.then_some(card)
    }
}

/// Whether this message goes by a card: it is large, and others can use its memory; or it looks like a card itself.
///
/// # Safety
/// - `data` is valid for reads of `bytes`.
pub(crate) unsafe fn by_card(data: *const u8, bytes: usize) -> bool {
    if bytes != CARD {
        return bytes >= LEAST && peers::is_readable(data, bytes);
    }
    let mut words = [0u8; CARD];
    // SAFETY:
    // - the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(data, words.as_mut_ptr(), CARD) };
    Card::read(&words).is_some()
}

/// Where giver and taker meet: in the giver's memory. The taker reads and writes it from its own process.
#[derive(Debug, Default)]
#[repr(C)]
struct Desk {
    /// The taker's word: [`OPEN`] and the rest.
    answer: AtomicU64,
    /// Where the taker's room is.
    room: AtomicU64,
    /// Chunks that the taker has claimed, from the first on.
    front: AtomicU64,
    /// Chunks that the giver has claimed, from the last on.
    back: AtomicU64,
    /// The giver's word: [`BUSY`] and the rest.
    finished: AtomicU64,
}

/// The taker's words: none yet; help is welcome; it has all, or did not want it; the block has another length; it could not
/// read the giver's memory.
const OPEN: u64 = 0;
const HELP: u64 = 1;
const TAKEN: u64 = 2;
const UNEQUAL: u64 = 3;
const FAILED: u64 = 4;

/// The giver's words: it may be writing; all that it has claimed is written; it could not write.
const BUSY: u64 = 0;
const WRITTEN: u64 = 1;
const UNWRITTEN: u64 = 2;

/// Where a chunk begins, and its bytes.
fn chunk(number: u64, bytes: usize) -> (usize, usize) {
    let at = (number as usize * CHUNK).min(bytes);
    (at, CHUNK.min(bytes - at))
}

fn chunks(bytes: usize) -> u64 {
    bytes.div_ceil(CHUNK) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_as_what_was_written_and_nothing_else_is_one() {
        let card = Card {
            bytes: usize::MAX,
            data: 0x1234,
            desk: 1 << 40,
        };
        let words = card.words();
        assert_eq!(Card::read(&words), Some(card));
        assert_eq!(Card::read(&words[..CARD - 1]), None);
        assert_eq!(Card::read(&[words.as_slice(), &[0]].concat()), None);
        assert_eq!(Card::read(&[0; CARD]), None);
        assert_eq!(Card::read(&[]), None);
    }

    #[test]
    fn chunks_cover_a_block_once() {
        for bytes in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7] {
            let all: Vec<_> = (0..chunks(bytes)).map(|n| chunk(n, bytes)).collect();
            let total: usize = all.iter().map(|(_, n)| n).sum();
            assert_eq!(total, bytes);
            assert!(all.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0));
        }
    }
}
