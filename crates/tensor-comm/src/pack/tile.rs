//! The loops over one plane of items, from memory of one form to memory of another.
//! Refuses to know which of the two is packed, and how many planes there are.

use super::block::blocks;
use crate::copying::copy;

/// One axis of a plane: its extent, and the bytes from one step to the next on either side.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) extent: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

impl Step {
    /// `extent` steps or, at the end, what is left of them, from step `start` on.
    #[inline(always)]
    fn part(self, start: usize, extent: usize) -> Step {
        let extent = extent.min(self.extent - start);
        Step { extent, ..self }
    }
}

/// Where items come from and where they go.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: *const u8,
    pub(super) to: *mut u8,
}

impl Ends {
    /// Step `i` of an axis.
    ///
    /// # Safety
    /// The axis has that step, within the memory that these ends point into.
    #[inline(always)]
    pub(super) unsafe fn at(self, axis: Step, i: usize) -> Ends {
        // SAFETY: the caller vouches that both addresses are within the memory of either end.
        unsafe {
            Ends {
                from: self.from.offset(i as isize * axis.from),
                to: self.to.offset(i as isize * axis.to),
            }
        }
    }

    /// Copies `n` bytes.
    ///
    /// # Safety
    /// Both ends are valid for `n` bytes and don't overlap.
    #[inline(always)]
    pub(super) unsafe fn copy(self, n: usize) {
        // SAFETY: the caller vouches for both ends; bytes need no alignment.
        unsafe { copy(self.from, self.to, n) }
    }
}

/// An item: some bytes that stay together.
pub(super) trait Item: Copy {
    /// Their number.
    fn size(self) -> usize;
}

/// An item whose size the compiler knows.
#[derive(Clone, Copy)]
pub(super) struct Fixed<const N: usize>;
impl<const N: usize> Item for Fixed<N> {
    #[inline(always)]
    fn size(self) -> usize {
        N
    }
}

/// An item of any size.
impl Item for usize {
    #[inline(always)]
    fn size(self) -> usize {
        self
    }
}

/// Copies a plane: `inner` steps within `outer` ones.
///
/// # Safety
/// `ends` are valid for an item at each step of the two axes, and the two sides don't overlap.
#[inline(always)]
pub(super) unsafe fn plane<I: Item>(item: I, outer: Step, inner: Step, ends: Ends) {
    for i in 0..outer.extent {
        for k in 0..inner.extent {
            // SAFETY: `i` and `k` are steps of their axes, and the caller vouches for all of them.
            unsafe { ends.at(outer, i).at(inner, k).copy(item.size()) }
        }
    }
}

/// Items of a tile along the axis on which reading is the more contiguous: whole lines of cache.
const READ: usize = 64;
/// Items of a tile along the axis on which writing is the more contiguous.
const WRITTEN: usize = 32;
/// An axis this short needs no tiles: the lines of its few steps stay in cache by themselves.
const SHORT: usize = 8;
/// Steps of the other axis that are taken at a time beside a short one.
const LONG: usize = 512;

/// Copies a plane of which one axis, `read`, is the more contiguous where items come from, and the other,
/// `written`, where they go: tile by tile, so that lines of cache on both sides are used whole while they
/// are there.
///
/// # Safety
/// As [`plane`].
pub(super) unsafe fn transposed<I: Item>(item: I, read: Step, written: Step, ends: Ends) {
    if read.extent <= SHORT {
        for start in (0..written.extent).step_by(LONG) {
            // SAFETY: the part lies within the axis; the caller vouches for all of the plane.
            unsafe {
                plane(
                    item,
                    read,
                    written.part(start, LONG),
                    ends.at(written, start),
                )
            };
        }
        return;
    }
    if written.extent <= SHORT {
        for start in (0..read.extent).step_by(LONG) {
            // SAFETY: the part lies within the axis; the caller vouches for all of the plane.
            unsafe { plane(item, written, read.part(start, LONG), ends.at(read, start)) };
        }
        return;
    }
    // SAFETY: the caller vouches for all of the plane.
    let (across, down) = unsafe { blocks(item, read, written, ends) };
    if (across, down) != (0, 0) {
        let (right, below) = (
            read.part(across, usize::MAX),
            written.part(down, usize::MAX),
        );
        // SAFETY: what is left lies beside the blocks and below them; the caller vouches for all of the plane.
        unsafe {
            plane(item, written, right, ends.at(read, across));
            plane(item, read.part(0, across), below, ends.at(written, down));
        }
        return;
    }
    for top in (0..read.extent).step_by(READ) {
        let tall = read.part(top, READ);
        for left in (0..written.extent).step_by(WRITTEN) {
            let wide = written.part(left, WRITTEN);
            // SAFETY: the tile lies within both axes; the caller vouches for all of the plane.
            unsafe {
                let ends = ends.at(read, top).at(written, left);
                if left + 2 * WRITTEN <= written.extent {
                    let next = ends.at(written, WRITTEN);
                    prefetch(tall, wide, next);
                }
                if tall.extent == READ && wide.extent == WRITTEN {
                    let (tall, wide) = (
                        Step {
                            extent: READ,
                            ..tall
                        },
                        Step {
                            extent: WRITTEN,
                            ..wide
                        },
                    );
                    if wide.to == item.size() as isize {
                        let wide = Step {
                            to: item.size() as isize,
                            ..wide
                        };
                        plane(item, tall, wide, ends);
                    } else {
                        plane(item, tall, wide, ends);
                    }
                } else {
                    plane(item, tall, wide, ends);
                }
            }
        }
    }
}

/// Asks for the lines of cache of the tile at `ends`: between columns lie more bytes than the processor's
/// own guesses reach.
///
/// # Safety
/// As [`plane`], for the tile.
#[inline(always)]
unsafe fn prefetch(tall: Step, wide: Step, ends: Ends) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        const LINE: usize = 64;
        let column = (tall.extent - 1) * tall.from.unsigned_abs();
        if column > READ * 2 * LINE {
            return;
        }
        for k in 0..wide.extent {
            for byte in (0..=column).step_by(LINE) {
                // SAFETY:
                // - the column lies within the tile, which the caller vouches for;
                // - a prefetch reads nothing that the program could see.
                unsafe {
                    let first = ends.at(wide, k).from;
                    let at = if tall.from < 0 {
                        first.sub(byte)
                    } else {
                        first.add(byte)
                    };
                    _mm_prefetch::<_MM_HINT_T1>(at.cast());
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (tall, wide, ends);
}
