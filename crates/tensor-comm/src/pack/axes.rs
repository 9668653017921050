//! The axes of a layout, as few as describe it. Refuses to know addresses and copying.

use dlpack_core::Layout;
use smallvec::SmallVec;

/// One axis of a box of elements: its extent, and the bytes from one step to the next on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Steps along it, never 0.
    pub(super) extent: usize,
    /// Bytes between steps in the tensor.
    pub(super) strided: isize,
    /// Bytes between steps in packed memory.
    pub(super) packed: usize,
}

impl Axis {
    /// Where step `i` begins in the tensor, in bytes from step 0.
    #[inline(always)]
    pub(super) fn at(self, i: usize) -> isize {
        i as isize * self.strided
    }

    /// Only its first steps.
    pub(super) fn first(self, extent: usize) -> Axis {
        Axis { extent, ..self }
    }
}

pub(super) type Axes = SmallVec<[Axis; 8]>;

/// The axes of a layout with elements, outermost first: those of size 1 left out, and neighbours that are
/// one axis in memory merged.
pub(super) fn merged(layout: &Layout) -> Axes {
    let mut inner_first = Axes::new();
    let mut packed = layout.itemsize();
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
        // A `Layout` vouches that sizes are not negative and that every offset fits.
        let (extent, strided) = (size as usize, stride as isize);
        if extent == 1 {
            continue;
        }
        match inner_first.last_mut() {
            Some(inner) if inner.at(inner.extent) == strided => inner.extent *= extent,
            _ => inner_first.push(Axis {
                extent,
                strided,
                packed,
            }),
        }
        packed *= extent;
    }
    inner_first.reverse();
    inner_first
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn axes(shape: &[i64], strides: &[i64], itemsize: usize) -> Vec<(usize, isize, usize)> {
        let layout = Layout::new(shape, Some(strides), itemsize).unwrap();
        let axes = merged(&layout);
        axes.iter()
            .map(|a| (a.extent, a.strided, a.packed))
            .collect()
    }

    #[test]
    fn neighbours_merge_and_ones_vanish() {
        assert_eq!(axes(&[2, 1, 3, 4], &[48, 7, 16, 4], 4), [(24, 4, 4)]);
        assert_eq!(axes(&[2, 3, 4], &[96, 16, 4], 4), [(2, 96, 48), (12, 4, 4)]);
        assert_eq!(axes(&[4, 3], &[4, 16], 4), [(4, 4, 12), (3, 16, 4)]);
        assert_eq!(axes(&[2, 3], &[-12, -4], 4), [(6, -4, 4)]);
        assert_eq!(axes(&[5, 6], &[0, 0], 8), [(30, 0, 8)]);
        assert_eq!(axes(&[], &[], 8), []);
    }
}
