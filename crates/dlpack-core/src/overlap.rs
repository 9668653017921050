//! Do two elements of one tensor share memory? Knows nothing but sizes and strides.
//!
//! Two different elements collide when some difference of their indices, not all zero and at most
//! `size - 1` along each axis, moves by less than one element. The search goes from the largest stride
//! to the smallest and drops a branch as soon as the smaller strides cannot bring it back, so sane
//! layouts take a handful of steps whatever their size.

use smallvec::SmallVec;

use crate::Layout;

/// Branches looked at before the answer becomes a cautious "yes".
const BUDGET: usize = 20_000;

/// One axis that has more than one element.
#[derive(Clone, Copy)]
struct Axis {
    stride: i128,
    /// Largest index difference.
    most: i128,
    /// How far the axes of smaller strides can move, together with the width of an element less one.
    rest: i128,
}

pub(crate) fn overlaps(layout: &Layout) -> bool {
    if layout.numel() <= 1 || layout.itemsize() == 0 {
        return false;
    }
    let mut axes: SmallVec<[Axis; 6]> = SmallVec::new();
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
        if size > 1 {
            if stride == 0 {
                return true;
            }
            let stride = i128::from(stride.unsigned_abs());
            axes.push(Axis {
                stride,
                most: i128::from(size - 1),
                rest: 0,
            });
        }
    }
    axes.sort_unstable_by_key(|axis| axis.stride);
    let mut rest = layout.itemsize() as i128 - 1;
    let mut nested = true;
    for axis in &mut axes {
        nested &= axis.stride > rest;
        axis.rest = rest;
        rest += axis.stride * axis.most;
    }
    // Each axis steps over all that the smaller ones can reach: nothing to search.
    if nested {
        return false;
    }
    axes.reverse();
    let mut budget = BUDGET;
    collides(&axes, 0, true, &mut budget)
}

/// Can the axes left bring `offset` to less than one element, with some index difference not zero?
fn collides(axes: &[Axis], offset: i128, all_zero: bool, budget: &mut usize) -> bool {
    let Some((axis, smaller)) = axes.split_first() else {
        return !all_zero;
    };
    // Differences come in pairs of opposite sign: the first that is not zero may be taken positive.
    let least = if all_zero { 0 } else { -axis.most };
    let from = div_ceil(-axis.rest - offset, axis.stride).max(least);
    let to = (axis.rest - offset).div_euclid(axis.stride).min(axis.most);
    let mut step = from;
    while step <= to {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        if collides(
            smaller,
            offset + step * axis.stride,
            all_zero && step == 0,
            budget,
        ) {
            return true;
        }
        step += 1;
    }
    false
}

fn div_ceil(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}
