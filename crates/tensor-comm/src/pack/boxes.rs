//! Copies a whole box of elements: finds the form that its memory has and hands it to the loop for it.
//! Refuses to know layouts and ragged ends.

use super::axes::{Axes, Axis};
use super::tile;

/// Copies `n` bytes, to packed memory or from it.
///
/// # Safety
/// Both pointers are valid for `n` bytes, the one written to for writes, and don't overlap.
#[inline(always)]
pub(super) unsafe fn copy_bytes<const PACK: bool>(strided: *mut u8, packed: *mut u8, n: usize) {
    let (from, to) = if PACK {
        (strided, packed)
    } else {
        (packed, strided)
    };
    // SAFETY: the caller vouches for both pointers.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

/// Copies the box of `outer` and the axes `inner` below it.
///
/// # Safety
/// - the axes, none of extent 0, describe valid memory from `strided` on and, compact, from `packed` on;
/// - the two don't overlap.
pub(super) unsafe fn copy_box<const PACK: bool>(
    outer: Axis,
    inner: &[Axis],
    itemsize: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    let mut axes = Axes::new();
    axes.extend(
        [outer]
            .iter()
            .chain(inner)
            .filter(|axis| axis.extent > 1)
            .copied(),
    );
    // An innermost axis without gaps makes one item of all its steps.
    let mut item = itemsize;
    while let Some(last) = axes.last()
        && last.strided == item as isize
    {
        item *= last.extent;
        axes.pop();
    }
    // SAFETY: the same memory, described by fewer axes and larger items.
    unsafe {
        match item {
            1 => planes::<[u8; 1], PACK>(axes, item, strided, packed),
            2 => planes::<[u8; 2], PACK>(axes, item, strided, packed),
            3 => planes::<[u8; 3], PACK>(axes, item, strided, packed),
            4 => planes::<[u8; 4], PACK>(axes, item, strided, packed),
            6 => planes::<[u8; 6], PACK>(axes, item, strided, packed),
            8 => planes::<[u8; 8], PACK>(axes, item, strided, packed),
            12 => planes::<[u8; 12], PACK>(axes, item, strided, packed),
            16 => planes::<[u8; 16], PACK>(axes, item, strided, packed),
            24 => planes::<[u8; 24], PACK>(axes, item, strided, packed),
            32 => planes::<[u8; 32], PACK>(axes, item, strided, packed),
            _ => planes::<(), PACK>(axes, item, strided, packed),
        }
    }
}

/// Copies one item of `item` bytes: of the size of `T`, known to the compiler, unless `T` is `()`.
///
/// # Safety
/// - both pointers are valid for one item, and don't overlap;
/// - `item` is the size of `T`, or `T` is `()`.
#[inline(always)]
pub(super) unsafe fn copy_item<T: Copy, const PACK: bool>(
    item: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    let n = if size_of::<T>() > 0 {
        size_of::<T>()
    } else {
        item
    };
    // SAFETY: the caller vouches for `n` bytes on both sides.
    unsafe { copy_bytes::<PACK>(strided, packed, n) }
}

/// Copies a box plane by plane. A plane is the innermost axis, along which packed memory is contiguous,
/// and that axis along which the tensor's memory is the closest to being so.
///
/// # Safety
/// - the axes, all of extent > 1, describe valid memory of items from `strided` and from `packed` on;
/// - the two don't overlap; `item` fits `T` as [`copy_item`] asks.
unsafe fn planes<T: Copy, const PACK: bool>(
    mut axes: Axes,
    item: usize,
    strided: *mut u8,
    packed: *mut u8,
) {
    let Some(columns) = axes.pop() else {
        // SAFETY: no axes are one item, which the caller vouches for.
        return unsafe { copy_item::<T, PACK>(item, strided, packed) };
    };
    let Some(closest) = (0..axes.len())
        .rev()
        .min_by_key(|&i| axes[i].strided.unsigned_abs())
    else {
        // SAFETY: one axis remains, and the caller vouches for it.
        return unsafe { tile::row::<T, PACK>(columns, item, strided, packed) };
    };
    let is_transposed = axes[closest].strided.unsigned_abs() < columns.strided.unsigned_abs();
    let rows = axes.remove(if is_transposed {
        closest
    } else {
        axes.len() - 1
    });
    let mut steps = smallvec::SmallVec::<[usize; 8]>::from_elem(0, axes.len());
    let (mut from, mut to) = (0isize, 0usize);
    loop {
        // SAFETY:
        // - `from` and `to` are the offsets of the step that the counters are at, a plane of the box;
        // - the caller vouches for the box.
        unsafe {
            let (strided, packed) = (strided.offset(from), packed.add(to));
            if is_transposed {
                tile::transposed::<T, PACK>(rows, columns, item, strided, packed);
            } else {
                tile::plane::<T, PACK>(rows, columns, item, strided, packed);
            }
        }
        // The next plane, in the order of packed memory.
        let mut axis = axes.len();
        loop {
            let Some(above) = axis.checked_sub(1) else {
                return;
            };
            axis = above;
            steps[axis] += 1;
            if steps[axis] < axes[axis].extent {
                from += axes[axis].strided;
                to += axes[axis].packed;
                break;
            }
            let back = axes[axis].extent - 1;
            from -= axes[axis].at(back);
            to -= back * axes[axis].packed;
            steps[axis] = 0;
        }
    }
}
