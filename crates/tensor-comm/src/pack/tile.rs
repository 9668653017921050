//! The loops over one plane of items. Refuses to know how many planes there are.

use super::axes::Axis;
use super::boxes::copy_item;

/// Copies a row: one axis.
///
/// # Safety
/// As [`plane`], with one step of the rows.
#[inline(always)]
pub(super) unsafe fn row<T: Copy, const PACK: bool>(
    columns: Axis,
    item: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    for column in 0..columns.extent {
        // SAFETY: `column` is a step of the axis, and the caller vouches for all of them.
        unsafe {
            let strided = strided.offset(columns.at(column));
            copy_item::<T, PACK>(item, strided, packed.add(column * columns.packed));
        }
    }
}

/// Copies a plane row by row.
///
/// # Safety
/// - the axes describe valid memory of items from `strided` and from `packed` on, and the two don't overlap;
/// - `item` fits `T` as [`copy_item`] asks.
pub(super) unsafe fn plane<T: Copy, const PACK: bool>(
    rows: Axis,
    columns: Axis,
    item: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    for step in 0..rows.extent {
        // SAFETY: `step` is a row of the plane, and the caller vouches for all of them.
        unsafe {
            let (strided, packed) = (
                strided.offset(rows.at(step)),
                packed.add(step * rows.packed),
            );
            row::<T, PACK>(columns, item, strided, packed);
        }
    }
}

/// Bytes of one side of a tile: as many items as fit, along either axis.
const SIDE: usize = 128;

/// Copies a plane whose rows are closer together in the tensor than its columns, tile by tile, so that
/// lines of cache on both sides are used whole while they are there.
///
/// # Safety
/// As [`plane`].
pub(super) unsafe fn transposed<T: Copy, const PACK: bool>(
    rows: Axis,
    columns: Axis,
    item: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    let side = (SIDE / item).max(1);
    for top in (0..rows.extent).step_by(side) {
        for left in (0..columns.extent).step_by(side) {
            let height = side.min(rows.extent - top);
            let width = side.min(columns.extent - left);
            // SAFETY: the tile is part of the plane, and the caller vouches for that.
            unsafe {
                let strided = strided.offset(rows.at(top) + columns.at(left));
                let packed = packed.add(top * rows.packed + left * columns.packed);
                plane::<T, PACK>(
                    rows.first(height),
                    columns.first(width),
                    item,
                    strided,
                    packed,
                );
            }
        }
    }
}
