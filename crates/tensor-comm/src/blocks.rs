//! Elements of a tensor as blocks of memory that a copy engine takes: rows of equal length and distance. Knows no
//! device.

use dlpack_core::Layout;
use smallvec::SmallVec;

/// Rows of bytes; `first` is where the first of them begins, relative to the tensor's element 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub first: isize,
    pub width: usize,
    pub rows: usize,
    /// From one row to the next.
    pub pitch: usize,
}

impl Block {
    /// One row.
    pub fn line(first: isize, width: usize) -> Block {
        Block {
            first,
            width,
            rows: 1,
            pitch: width,
        }
    }
}

/// Bytes of a block from which it is worth a copy by itself.
const COARSE: usize = 64 << 10;

/// Size and distance in bytes of one dimension.
type Dim = (usize, isize);

/// The `count` elements from logical element `start` on, each byte of theirs once and no other byte.
pub(crate) fn blocks(layout: &Layout, start: usize, count: usize) -> Vec<Block> {
    let mut found = Vec::new();
    if count == 0 {
        return found;
    }
    let item = layout.itemsize();
    if layout.is_c_contiguous() {
        found.push(Block::line((start * item) as isize, count * item));
        return found;
    }
    let mut dims = merged(layout);
    // The innermost dimension is always that of bytes.
    match dims.last() {
        Some(&(size, stride)) if stride == item as isize => {
            dims.pop();
            divide(
                &dims,
                size * item,
                0,
                start * item,
                count * item,
                &mut found,
            );
        }
        _ => divide(&dims, item, 0, start * item, count * item, &mut found),
    }
    found
}

/// Whether blocks run upwards in memory and are many bytes each: one by one they are worth a copy. Of one that is not
/// dense.
pub(crate) fn is_coarse(layout: &Layout) -> bool {
    let dims = merged(layout);
    let item = layout.itemsize();
    let (rows, run) = match dims.last() {
        Some(&(n, stride)) if stride == item as isize => (&dims[..dims.len() - 1], n * item),
        _ => (&dims[..], item),
    };
    let blocks = rows.split_last().map_or(1, |(last, outer)| {
        // Rows that overlap are no rectangle.
        let apart = if last.1.unsigned_abs() >= run {
            1
        } else {
            last.0
        };
        outer.iter().map(|dim| dim.0).product::<usize>() * apart
    });
    let bytes = layout.numel().saturating_mul(layout.itemsize());
    dims.iter().all(|dim| dim.1 > 0) && bytes / blocks.max(1) >= COARSE
}

/// The dimensions, outermost first, without those of size 1, and as one where they go on in each other.
fn merged(layout: &Layout) -> SmallVec<[Dim; 6]> {
    let mut dims: SmallVec<[Dim; 6]> = SmallVec::new();
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
        let (size, stride) = (size as usize, stride as isize);
        match dims.last_mut() {
            _ if size == 1 => {}
            // The outer dimension goes on where this one ends: they are one.
            Some(outer) if outer.1 == stride * size as isize => {
                *outer = (outer.0 * size, stride);
            }
            _ => dims.push((size, stride)),
        }
    }
    dims
}

/// The bytes `start..start + count` of the elements of `dims`, each of which is a run of `run` bytes, from `at` on.
fn divide(dims: &[Dim], run: usize, at: isize, start: usize, count: usize, found: &mut Vec<Block>) {
    let Some((&(_, stride), inner)) = dims.split_first() else {
        found.push(Block::line(at + start as isize, count));
        return;
    };
    let below = inner.iter().map(|dim| dim.0).product::<usize>() * run;
    let (mut start, end) = (start, start + count);
    while start < end {
        let (index, offset) = (start / below, start % below);
        let from = at + stride * index as isize;
        let whole = (end - start) / below;
        let pitch = stride.unsigned_abs();
        if inner.is_empty() && offset == 0 && whole > 1 && pitch >= run {
            // Rows run upwards in memory, whichever way their numbers run.
            let last = from + stride * (whole - 1) as isize;
            found.push(Block {
                first: from.min(last),
                width: run,
                rows: whole,
                pitch,
            });
            start += whole * below;
            continue;
        }
        let n = (below - offset).min(end - start);
        divide(inner, run, from, offset, n, found);
        start += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(blocks: &[Block]) -> Vec<isize> {
        let of_row = |block: Block, row: usize| {
            let first = block.first + (row * block.pitch) as isize;
            (0..block.width as isize).map(move |byte| first + byte)
        };
        let rows = blocks
            .iter()
            .flat_map(|&block| (0..block.rows).map(move |row| (block, row)));
        let mut all: Vec<isize> = rows.flat_map(|(block, row)| of_row(block, row)).collect();
        all.sort_unstable();
        all
    }

    /// Byte by byte, from the definition of a stride.
    fn expected(layout: &Layout, start: usize, count: usize) -> Vec<isize> {
        let mut all = Vec::new();
        for element in start..start + count {
            let (mut rest, mut at) = (element, 0);
            for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
                at += (rest % size as usize) as isize * stride as isize;
                rest /= size as usize;
            }
            all.extend((0..layout.itemsize() as isize).map(|byte| at + byte));
        }
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn every_byte_of_the_elements_once_and_no_other(
            dims in proptest::collection::vec((1i64..5, 0usize..4, any::<bool>()), 0..5),
            item in prop_oneof![Just(1usize), Just(4), Just(8)],
            part in (0.0f64..1.0, 0.0f64..1.0),
            order in any::<bool>(),
        ) {
            // Strides that leave gaps and never overlap, in C or in Fortran order, some of them backwards.
            let mut strides = vec![0i64; dims.len()];
            let mut next = item as i64;
            let axes: Vec<usize> = if order { (0..dims.len()).collect() } else { (0..dims.len()).rev().collect() };
            for axis in axes {
                let (size, gap, backwards) = dims[axis];
                strides[axis] = if backwards { -next } else { next };
                next = next * size + (gap * item) as i64;
            }
            let shape: Vec<i64> = dims.iter().map(|dim| dim.0).collect();
            let layout = Layout::new(&shape, Some(&strides), item).expect("a lawful layout");
            let start = (layout.numel() as f64 * part.0) as usize;
            let count = ((layout.numel() - start) as f64 * part.1).ceil() as usize;
            prop_assert_eq!(bytes(&blocks(&layout, start, count)), expected(&layout, start, count));
        }
    }

    #[test]
    fn blocks_of_many_bytes_are_coarse() {
        let rows = |shape: &[i64], strides: &[i64]| {
            is_coarse(&Layout::new(shape, Some(strides), 4).expect("lawful"))
        };
        assert!(rows(&[1 << 20], &[8]) && rows(&[1 << 10, 1 << 10], &[8192, 4]));
        assert!(rows(&[4, 1 << 10, 20], &[1 << 20, 128, 4]));
        // Small ones, many small ones, backwards, the same element again and again, transposed.
        assert!(!rows(&[1 << 10], &[8]) && !rows(&[1 << 10, 64, 2], &[1 << 20, 16, 4]));
        assert!(!rows(&[1 << 20], &[-8]) && !rows(&[1 << 20], &[0]));
        assert!(!rows(&[1 << 10, 1 << 10], &[4, 4096]));
        assert!(!rows(&[1 << 20, 2], &[4, 4]) && rows(&[2, 1 << 20], &[4, 4]));
    }

    #[test]
    fn a_column_is_one_block_and_a_matrix_with_padded_rows_as_well() {
        let column = Layout::new(&[100], Some(&[40]), 4).expect("lawful");
        let padded = Layout::new(&[100, 5], Some(&[64, 4]), 4).expect("lawful");
        for (layout, width, pitch) in [(&column, 4, 40), (&padded, 20, 64)] {
            let rows = Block {
                first: 0,
                width,
                rows: 100,
                pitch,
            };
            assert_eq!(blocks(layout, 0, layout.numel()), [rows]);
        }
        // From the middle of a row to the middle of another.
        assert_eq!(blocks(&padded, 3, 14).len(), 3);
    }
}
