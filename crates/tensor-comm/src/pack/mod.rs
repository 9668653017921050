//! Strided tensors to contiguous bytes and back, in logical (C) order.
//! Refuses to know dtypes, devices and MPI: elements are bytes, and memory is host memory.
//!
//! ```text
//! Layout --> axes, merged --> a range is whole boxes and ragged ends --> rows | planes | tiles
//! ```
//!
//! Exactly the elements asked for are read and written; what lies between them is never touched.

mod axes;
mod block;
mod boxes;
mod tile;

use axes::Axis;
use boxes::{copy_box, ends};
use dlpack_core::Layout;

/// Copies the logical elements `start .. start + n` to `dst`, one after the other. Strides may be
/// negative, zero, or no multiple of the element size.
///
/// # Safety
/// - `data` points at the first logical element of memory that `layout` describes, valid for reads;
/// - `start + n <= layout.numel()`;
/// - `dst` is valid for writes of `n * layout.itemsize()` bytes and overlaps none of those elements.
pub unsafe fn pack(layout: &Layout, data: *const u8, start: usize, n: usize, dst: *mut u8) {
    // SAFETY:
    // - the caller's promises are those asked for;
    // - on the way `Pack` nothing is written through `data`.
    unsafe { copy::<true>(layout, data.cast_mut(), start, n, dst) }
}

/// Copies `n` elements from `src`, where they lie one after the other, to the logical elements
/// `start .. start + n`, and touches nothing else.
///
/// # Safety
/// - `data` points at the first logical element of memory that `layout` describes, valid for writes;
/// - no two of its elements share memory (`!layout.overlaps()`);
/// - `start + n <= layout.numel()`;
/// - `src` is valid for reads of `n * layout.itemsize()` bytes and overlaps none of those elements.
pub unsafe fn unpack(layout: &Layout, data: *mut u8, start: usize, n: usize, src: *const u8) {
    // SAFETY:
    // - the caller's promises are those asked for;
    // - on the way `Unpack` nothing is written through `src`.
    unsafe { copy::<false>(layout, data, start, n, src.cast_mut()) }
}

/// # Safety
/// As [`pack`] if `PACK`, else as [`unpack`].
unsafe fn copy<const PACK: bool>(
    layout: &Layout,
    data: *mut u8,
    start: usize,
    n: usize,
    packed: *mut u8,
) {
    let itemsize = layout.itemsize();
    if n == 0 || itemsize == 0 {
        return;
    }
    debug_assert!(
        start
            .checked_add(n)
            .is_some_and(|end| end <= layout.numel())
    );
    if layout.is_c_contiguous() {
        // SAFETY:
        // - the elements of a compact layout are one block, and the caller vouches for both sides of it.
        unsafe { ends::<PACK>(data.add(start * itemsize), packed).copy(n * itemsize) };
        return;
    }
    let axes = axes::merged(layout);
    // SAFETY: merged axes describe the same elements in the same order; the caller vouches for those.
    unsafe { range::<PACK>(&axes, itemsize, data, start, n, packed) }
}

/// Copies the elements `start .. start + n` of the box that `axes` span: whole steps of the outermost axis
/// as one box, the ragged ends by the axes below.
///
/// # Safety
/// - `axes` (all of extent > 0, their packed strides compact) at `strided` describe valid memory;
/// - `start + n` is within the box; `packed` has room for `n` elements.
unsafe fn range<const PACK: bool>(
    axes: &[Axis],
    itemsize: usize,
    strided: *mut u8,
    start: usize,
    n: usize,
    packed: *mut u8,
) {
    let Some((outer, inner)) = axes.split_first() else {
        // SAFETY: no axes are one element, which the caller vouches for.
        unsafe { ends::<PACK>(strided, packed).copy(n * itemsize) };
        return;
    };
    let step = outer.packed / itemsize;
    let (mut row, within) = (start / step, start % step);
    let (mut left, mut packed) = (n, packed);
    if within > 0 {
        let head = left.min(step - within);
        // SAFETY:
        // - `row` is a row of the box, since `start` is in it, and `within + head` stays in that row;
        // - `packed` has room for `n >= head` elements.
        unsafe {
            range::<PACK>(
                inner,
                itemsize,
                strided.offset(outer.at(row)),
                within,
                head,
                packed,
            );
            packed = packed.add(head * itemsize);
        }
        left -= head;
        row += 1;
    }
    let rows = left / step;
    if rows > 0 {
        // SAFETY:
        // - rows `row .. row + rows` are in the box, since `start + n` is;
        // - `packed` has room for the `left >= rows * step` elements that remain.
        unsafe {
            copy_box::<PACK>(
                outer.first(rows),
                inner,
                itemsize,
                strided.offset(outer.at(row)),
                packed,
            );
            packed = packed.add(rows * outer.packed);
        }
        left -= rows * step;
        row += rows;
    }
    if left > 0 {
        // SAFETY:
        // - elements remain, so `row` is a row of the box, and `left < step` stays in it;
        // - `packed` has room for the `left` elements that remain.
        unsafe {
            range::<PACK>(
                inner,
                itemsize,
                strided.offset(outer.at(row)),
                0,
                left,
                packed,
            )
        }
    }
}
