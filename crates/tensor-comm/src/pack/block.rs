//! Planes of small items of which one axis is contiguous where they come from and the other where they go: square
//! blocks whose sides are a line of cache. A block is read line by line into memory of this thread, and written line by
//! line from there, so that no line is needed twice, even where all lines of a column compete for the same few places of
//! a cache, as in rows of 2048 floats.

use super::tile::{Ends, Item, Step, plane};
use std::mem::MaybeUninit;

/// Bytes of a line of cache.
const LINE: usize = 64;
/// Lines of a block at most: items of one byte.
const LINES: usize = 64;
/// Items of an axis that are gone through before the other goes on: their pages are known to the processor all the time.
const SQUARE: usize = 512;
/// Bytes between the lines of a column from which they compete; below, the processor guesses what comes next.
const APART: usize = 1024;
/// Blocks between the one that is copied and the one that is fetched.
const AHEAD: usize = 2;

/// A block on its way.
#[repr(align(64))]
struct Lines(MaybeUninit<[u8; LINE * LINES]>);

/// Items of a block's side; `None` where they do not fill lines, or are as good as lines.
#[inline(always)]
fn side<I: Item>(item: I) -> Option<usize> {
    let size = item.size();
    (size > 0 && LINE.is_multiple_of(size) && size <= LINE / 4).then(|| LINE / size)
}

/// Copies as much of a plane as is blocks, from its first items on: so many steps of `read` and of `written`.
///
/// # Safety
/// As [`plane`].
#[inline(always)]
pub(super) unsafe fn blocks<I: Item>(
    item: I,
    read: Step,
    written: Step,
    ends: Ends,
) -> (usize, usize) {
    let size = item.size() as isize;
    let apart = written.from.unsigned_abs().min(read.to.unsigned_abs()) >= APART;
    let fits = read.from == size && written.to == size && apart;
    let Some(side) = side(item).filter(|_| fits) else {
        return (0, 0);
    };
    let whole = |axis: Step| axis.extent / side * side;
    let (across, down) = (whole(read), whole(written));
    if across == 0 || down == 0 {
        return (0, 0);
    }
    for top in (0..down).step_by(SQUARE) {
        for left in (0..across).step_by(SQUARE) {
            let (bottom, right) = (down.min(top + SQUARE), across.min(left + SQUARE));
            for row in (top..bottom).step_by(side) {
                for column in (left..right).step_by(side) {
                    // SAFETY: the blocks lie within both axes; the caller vouches for all of the plane.
                    unsafe {
                        let at = |row, column| ends.at(written, row).at(read, column);
                        let later = column + AHEAD * side;
                        if later < right {
                            fetch(side, read, written, at(row, later));
                        } else if row + side < bottom && left + later - right < right {
                            fetch(side, read, written, at(row + side, left + later - right));
                        }
                        block(item, side, read, written, at(row, column));
                    }
                }
            }
        }
    }
    (across, down)
}

/// Copies a block.
///
/// # Safety
/// As [`plane`], for `side` steps of both axes, whose items fill a line.
#[inline(always)]
unsafe fn block<I: Item>(item: I, side: usize, read: Step, written: Step, ends: Ends) {
    let mut lines = Lines(MaybeUninit::uninit());
    let lines = lines.0.as_mut_ptr().cast::<u8>();
    // SAFETY:
    // - both axes have `side` steps from `ends` on, and the caller vouches for their items;
    // - `lines` has room for `side` lines, and all were written before they are read.
    unsafe {
        for row in 0..side {
            let (from, to) = (ends.at(written, row).from, lines.add(row * LINE));
            Ends { from, to }.copy(LINE);
        }
        let step = |axis: isize| Step {
            extent: side,
            from: axis,
            to: item.size() as isize,
        };
        for column in 0..side {
            let (from, to) = (lines.add(column * item.size()), ends.at(read, column).to);
            let once = Step {
                extent: 1,
                from: 0,
                to: 0,
            };
            plane(item, once, step(LINE as isize), Ends { from, to });
        }
    }
}

/// Asks for the lines of the block at `ends`.
///
/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn fetch(side: usize, read: Step, written: Step, ends: Ends) {
    #[cfg(target_arch = "x86_64")]
    for step in 0..side {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY:
        // - the block lies within the plane, which the caller vouches for;
        // - a prefetch reads nothing that the program could see.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(ends.at(written, step).from.cast());
            _mm_prefetch::<_MM_HINT_T1>(ends.at(read, step).to.cast_const().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (side, read, written, ends);
}
