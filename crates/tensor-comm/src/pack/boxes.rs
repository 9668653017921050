//! Copies a whole box of elements: finds the form that its memory has and hands it to the loop for it.
//! Refuses to know layouts and ragged ends.

use super::axes::Axis;
use super::tile::{self, Ends, Fixed, Item, Step};
use smallvec::SmallVec;

type Steps = SmallVec<[Step; 8]>;

/// The ends of a copy, to packed memory or from it.
pub(super) fn ends<const PACK: bool>(strided: *mut u8, packed: *mut u8) -> Ends {
    let (from, to) = if PACK {
        (strided, packed)
    } else {
        (packed, strided)
    };
    Ends { from, to }
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
    let mut item = itemsize;
    let mut steps = Steps::new();
    for axis in [outer].iter().chain(inner) {
        // Fits: a layout's bytes do.
        let compact = axis.packed as isize;
        let (from, to) = if PACK {
            (axis.strided, compact)
        } else {
            (compact, axis.strided)
        };
        if axis.extent > 1 {
            steps.push(Step {
                extent: axis.extent,
                from,
                to,
            });
        }
    }
    // An innermost axis without gaps makes one item of all its steps.
    while let Some(last) = steps.last()
        && last.from == item as isize
        && last.to == item as isize
    {
        item *= last.extent;
        steps.pop();
    }
    let ends = ends::<PACK>(strided, packed);
    // SAFETY: the same memory, described by fewer axes and larger items.
    unsafe {
        match item {
            1 => planes::<_, PACK>(Fixed::<1>, steps, ends),
            2 => planes::<_, PACK>(Fixed::<2>, steps, ends),
            3 => planes::<_, PACK>(Fixed::<3>, steps, ends),
            4 => planes::<_, PACK>(Fixed::<4>, steps, ends),
            6 => planes::<_, PACK>(Fixed::<6>, steps, ends),
            8 => planes::<_, PACK>(Fixed::<8>, steps, ends),
            12 => planes::<_, PACK>(Fixed::<12>, steps, ends),
            16 => planes::<_, PACK>(Fixed::<16>, steps, ends),
            24 => planes::<_, PACK>(Fixed::<24>, steps, ends),
            32 => planes::<_, PACK>(Fixed::<32>, steps, ends),
            _ => planes::<_, PACK>(item, steps, ends),
        }
    }
}

/// Items from this size on fill lines of cache by themselves.
const LARGE: usize = 64;

/// Copies a box plane by plane. A plane is the innermost axis, along which packed memory is contiguous,
/// and that axis along which the tensor's memory is the closest to being so.
///
/// # Safety
/// `ends` are valid for an item at each step of the axes, which have extents above 1; the two sides don't
/// overlap.
unsafe fn planes<I: Item, const PACK: bool>(item: I, mut steps: Steps, ends: Ends) {
    let Some(columns) = steps.pop() else {
        // SAFETY: no axes are one item, which the caller vouches for.
        return unsafe { ends.copy(item.size()) };
    };
    let gap = |step: &Step| if PACK { step.from } else { step.to }.unsigned_abs();
    let closest = (0..steps.len()).rev().min_by_key(|&i| gap(&steps[i]));
    let Some(closest) = closest else {
        let once = Step {
            extent: 1,
            from: 0,
            to: 0,
        };
        // SAFETY: one axis remains, and the caller vouches for it.
        return unsafe { tile::plane(item, once, columns, ends) };
    };
    let is_transposed = gap(&steps[closest]) < gap(&columns) && item.size() < LARGE;
    let rows = steps.remove(if is_transposed {
        closest
    } else {
        steps.len() - 1
    });
    for_each(&steps, ends, |ends| {
        // SAFETY: `ends` are those of a plane of the box, and the caller vouches for the box.
        unsafe {
            match (is_transposed, PACK) {
                (false, _) => tile::plane(item, rows, columns, ends),
                (true, true) => tile::transposed(item, rows, columns, ends),
                (true, false) => tile::transposed(item, columns, rows, ends),
            }
        }
    });
}

/// Visits every step of the axes, the last axis fastest: the order of packed memory.
fn for_each(axes: &[Step], ends: Ends, mut visit: impl FnMut(Ends)) {
    let mut counters = SmallVec::<[usize; 8]>::from_elem(0, axes.len());
    let mut at = ends;
    loop {
        visit(at);
        let mut axis = axes.len();
        loop {
            let Some(above) = axis.checked_sub(1) else {
                return;
            };
            axis = above;
            let step = axes[axis];
            counters[axis] += 1;
            if counters[axis] < step.extent {
                at.from = at.from.wrapping_offset(step.from);
                at.to = at.to.wrapping_offset(step.to);
                break;
            }
            // Back to its first step, and on to the axis above.
            counters[axis] = 0;
            let back = step.extent as isize - 1;
            at.from = at.from.wrapping_offset(-back * step.from);
            at.to = at.to.wrapping_offset(-back * step.to);
        }
    }
}
