//! The elements of a reduction as they lie: in one piece, or in many that follow each other.

use std::sync::Arc;

use super::fold::STEP_BYTES;
use super::step::Step;
use crate::copying::{copy, copy_past_caches};

/// Consecutive elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Where they lie.
    pub at: *mut u8,
    /// Where they begin among all, in bytes.
    pub first: usize,
    /// How long they are.
    pub bytes: usize,
}

/// All elements, by their bytes.
#[derive(Debug, Clone)]
pub(crate) enum Elements {
    /// One after the other from this address on.
    Flat(*mut u8),
    /// In pieces that leave nothing out.
    Pieces(Arc<[Piece]>),
}

impl Elements {
    /// Where byte `first` lies, and how many bytes follow it there. `hint` is the piece to look at first, and becomes
    /// that of the byte.
    #[inline]
    pub fn run(&self, first: usize, hint: &mut usize) -> (*mut u8, usize) {
        let pieces = match self {
            Elements::Flat(base) => return (base.wrapping_add(first), usize::MAX),
            Elements::Pieces(pieces) => pieces,
        };
        let within = |i: usize| {
            let piece = pieces.get(i)?;
            let since = first.checked_sub(piece.first)?;
            (since < piece.bytes).then(|| (piece.at.wrapping_add(since), piece.bytes - since))
        };
        for i in [*hint, *hint + 1, holder(pieces, first)] {
            if let Some(run) = within(i) {
                *hint = i;
                return run;
            }
        }
        (std::ptr::null_mut(), 0)
    }

    /// Copies `bytes` bytes from byte `first` on.
    ///
    /// # Safety
    /// - The bytes are there; `to` has room for them and lies apart.
    #[inline]
    pub unsafe fn read(&self, first: usize, bytes: usize, to: *mut u8) {
        match self {
            // SAFETY:
            // - by the caller's promise.
            Elements::Flat(base) => unsafe { copy(base.wrapping_add(first), to, bytes) },
            Elements::Pieces(pieces) => each(pieces, first, bytes, |at, since, n| {
                // SAFETY:
                // - by the caller's promise; the part is within the piece.
                unsafe { copy(at, to.wrapping_add(since), n) };
            }),
        }
    }

    /// The same past the caches. Pieces are brought together before, since each line must be written as a whole.
    ///
    /// # Safety
    /// - As for it; [`crate::copying::passed`] is called before another core is told.
    pub unsafe fn read_past_caches(&self, first: usize, bytes: usize, to: *mut u8) {
        if let Elements::Flat(base) = self {
            // SAFETY:
            // - by the caller's promise.
            return unsafe { copy_past_caches(base.wrapping_add(first), to, bytes) };
        }
        let mut step = Step::new();
        for at in (0..bytes).step_by(STEP_BYTES) {
            let n = STEP_BYTES.min(bytes - at);
            // SAFETY:
            // - by the caller's promise; a step has room for so many.
            unsafe {
                self.read(first + at, n, step.ptr());
                copy_past_caches(step.ptr(), to.wrapping_add(at), n);
            }
        }
    }

    /// The reverse of [`Elements::read`].
    ///
    /// # Safety
    /// - As for it, with the bytes written and `from` read.
    #[inline]
    pub unsafe fn write(&self, first: usize, bytes: usize, from: *const u8) {
        match self {
            // SAFETY:
            // - by the caller's promise.
            Elements::Flat(base) => unsafe {
                copy(from, base.wrapping_add(first), bytes);
            },
            Elements::Pieces(pieces) => each(pieces, first, bytes, |at, since, n| {
                // SAFETY:
                // - by the caller's promise; the part is within the piece.
                unsafe { copy(from.wrapping_add(since), at, n) };
            }),
        }
    }
}

/// The number of the piece that holds byte `first`.
#[inline]
fn holder(pieces: &[Piece], first: usize) -> usize {
    pieces.partition_point(|piece| piece.first + piece.bytes <= first)
}

/// Calls `part` with the address, the distance from `first` and the length of each part of the pieces.
#[inline]
fn each(pieces: &[Piece], first: usize, bytes: usize, mut part: impl FnMut(*mut u8, usize, usize)) {
    let end = first + bytes;
    for piece in pieces.get(holder(pieces, first)..).unwrap_or_default() {
        if piece.first >= end {
            break;
        }
        let from = piece.first.max(first);
        let to = (piece.first + piece.bytes).min(end);
        part(
            piece.at.wrapping_add(from - piece.first),
            from - first,
            to - from,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_read_and_written_as_if_they_were_one(
            lengths in prop::collection::vec(1usize..200, 1..20),
            cut in (0.0..1.0f64, 0.0..1.0f64),
            hint in 0usize..20,
        ) {
            let total: usize = lengths.iter().sum();
            let whole: Vec<u8> = (0..total).map(|i| (i * 7 % 251) as u8).collect();
            let mut parts: Vec<Vec<u8>> = Vec::new();
            let mut at = 0;
            for n in &lengths {
                parts.push(whole[at..at + n].to_vec());
                at += n;
            }
            let mut first = 0;
            let pieces = parts.iter_mut().map(|part| {
                first += part.len();
                Piece { at: part.as_mut_ptr(), first: first - part.len(), bytes: part.len() }
            });
            let pieces = Elements::Pieces(pieces.collect());
            let first = (cut.0 * total as f64) as usize;
            let n = (cut.1 * (total - first) as f64) as usize;
            let mut flat = vec![0xee; n + 200];
            // SAFETY:
            // - the vectors hold what is read and written.
            unsafe {
                pieces.read(first, n, flat.as_mut_ptr());
                prop_assert_eq!(&flat[..n], &whole[first..first + n]);
                prop_assert!(flat[n..].iter().all(|&byte| byte == 0xee));
                flat[..n].iter_mut().for_each(|byte| *byte = !*byte);
                pieces.write(first, n, flat.as_ptr());
                let mut copy = vec![0u8; total + 3];
                Elements::Flat(copy.as_mut_ptr()).write(3, n, flat.as_ptr());
                let (mut byte, mut hint) = (0, hint);
                while byte < total {
                    let (at, run) = pieces.run(byte, &mut hint);
                    prop_assert!(run > 0 && byte + run <= total);
                    for i in 0..run {
                        let written = byte + i >= first && byte + i < first + n;
                        prop_assert_eq!(*at.add(i), if written { !whole[byte + i] } else { whole[byte + i] });
                    }
                    byte += run;
                }
                prop_assert_eq!(pieces.run(total, &mut hint).1, 0);
                prop_assert_eq!(&copy[3..3 + n], &flat[..n]);
                prop_assert!(copy[..3].iter().chain(&copy[3 + n..]).all(|&byte| byte == 0));
            }
            let now: Vec<u8> = parts.concat();
            for (i, &byte) in now.iter().enumerate() {
                let written = i >= first && i < first + n;
                prop_assert_eq!(byte, if written { !whole[i] } else { whole[i] });
            }
        }
    }
}
