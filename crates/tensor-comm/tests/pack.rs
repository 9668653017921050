//! `pack` and `unpack` against plain indexing, over layouts of every form, with poison around and between
//! the elements. Refuses to know how the crate copies.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tensor_comm::Layout;
use tensor_comm::pack::{pack, unpack};

/// Poisoned bytes on either side of what a copy may touch.
const GUARD: usize = 64;

/// A layout and the memory it lies in.
struct Case {
    layout: Layout,
    /// The bytes of the span, with guards.
    memory: Vec<u8>,
    /// Where the first logical element is.
    first: usize,
}

impl Case {
    fn new(shape: &[i64], strides: &[i64], itemsize: usize, shift: usize) -> Case {
        let layout = Layout::new(shape, Some(strides), itemsize).unwrap();
        let (low, high) = layout.span();
        let length = (high - low) as usize + 2 * GUARD + shift;
        // No two neighbours alike, and no period that a stride could hide in.
        let memory = (0..length)
            .map(|i| (i * 167 + i / 251 * 31 + i / 65521) as u8)
            .collect();
        let first = (GUARD + shift).checked_add_signed(-low).unwrap();
        Case {
            layout,
            memory,
            first,
        }
    }

    /// Where logical element `index` begins in memory, by division.
    fn place(&self, index: usize) -> usize {
        let mut rest = index as i64;
        let mut offset = 0;
        for (&size, &stride) in self.layout.shape().iter().zip(self.layout.strides()).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        assert_eq!(rest, 0, "the index lies beyond the layout");
        self.first.checked_add_signed(offset as isize).unwrap()
    }

    fn check_pack(&self, start: usize, n: usize) {
        let itemsize = self.layout.itemsize();
        let mut wanted = vec![0xA5; n * itemsize + 2 * GUARD];
        for i in 0..n {
            let (from, to) = (self.place(start + i), GUARD + i * itemsize);
            wanted[to..to + itemsize].copy_from_slice(&self.memory[from..from + itemsize]);
        }
        let mut found = vec![0xA5; n * itemsize + 2 * GUARD];
        // SAFETY:
        // - `first` is the first logical element of memory that was made as large as the layout's span;
        // - the caller keeps `start + n` within the layout, and `found` has room for `n` elements.
        unsafe {
            let data = self.memory.as_ptr().add(self.first);
            pack(&self.layout, data, start, n, found.as_mut_ptr().add(GUARD));
        }
        assert!(found == wanted, "pack {start}+{n} of {:?}", self.layout);
    }

    fn check_unpack(&self, start: usize, n: usize) {
        let itemsize = self.layout.itemsize();
        let packed: Vec<u8> = (0..n * itemsize)
            .map(|i| (i * 59 + i / 256 * 7 + 13) as u8)
            .collect();
        let mut wanted = self.memory.clone();
        for i in 0..n {
            let to = self.place(start + i);
            wanted[to..to + itemsize].copy_from_slice(&packed[i * itemsize..(i + 1) * itemsize]);
        }
        let mut found = self.memory.clone();
        // SAFETY:
        // - `first` is the first logical element of memory that was made as large as the layout's span;
        // - the caller gives no overlapping layout and keeps `start + n` within it;
        // - `packed` has `n` elements.
        unsafe {
            let data = found.as_mut_ptr().add(self.first);
            unpack(&self.layout, data, start, n, packed.as_ptr());
        }
        assert!(found == wanted, "unpack {start}+{n} of {:?}", self.layout);
    }
}

/// Strides without overlap: axes nested in any order, with gaps, some of them backwards.
fn nested(shape: &[i64], order: &[usize], gaps: &[i64], backwards: &[bool], item: i64) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut room = item;
    for &axis in order {
        let stride = room + gaps[axis];
        strides[axis] = if backwards[axis] { -stride } else { stride };
        room = stride * shape[axis].max(1);
    }
    strides
}

const ITEMSIZES: [usize; 15] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 33, 64, 100];

prop_compose! {
    fn layouts()(ndim in 0usize..6)(
        shape in prop::collection::vec(prop_oneof![8 => 1i64..6, 1 => 6i64..12, 1 => 0i64..2], ndim),
        order in Just((0..ndim).collect::<Vec<_>>()).prop_shuffle(),
        gaps in prop::collection::vec(prop_oneof![2 => Just(0i64), 1 => 0i64..9], ndim),
        backwards in prop::collection::vec(prop::bool::weighted(0.25), ndim),
        itemsize in prop::sample::select(&ITEMSIZES[..]),
    ) -> (Vec<i64>, Vec<i64>, usize) {
        let strides = nested(&shape, &order, &gaps, &backwards, itemsize as i64);
        (shape, strides, itemsize)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_any_layout(
        (shape, strides, itemsize) in layouts(),
        shift in 0usize..5,
        ends in (0.0f64..=1.0, 0.0f64..=1.0),
    ) {
        let case = Case::new(&shape, &strides, itemsize, shift);
        let numel = case.layout.numel();
        let start = (ends.0 * numel as f64) as usize;
        let n = (ends.1 * (numel - start) as f64) as usize;
        for (start, n) in [(start, n), (0, numel), (0, n), (start, numel - start)] {
            case.check_pack(start, n);
            case.check_unpack(start, n);
        }
    }

    #[test]
    fn overlapping_layouts_are_packed(
        shape in prop::collection::vec(1i64..7, 0..5),
        seed in prop::collection::vec(-9i64..10, 5),
        itemsize in prop::sample::select(&ITEMSIZES[..]),
    ) {
        // Any strides at all: zero, smaller than an item, equal for two axes.
        let case = Case::new(&shape, &seed[..shape.len()], itemsize, 1);
        let numel = case.layout.numel();
        case.check_pack(0, numel);
        case.check_pack(numel / 3, numel - numel / 3 - numel / 5);
    }
}

/// Every order of the axes of `shape`.
fn orders(ndim: usize) -> Vec<Vec<usize>> {
    if ndim == 0 {
        return vec![vec![]];
    }
    let mut all = vec![];
    for shorter in orders(ndim - 1) {
        for at in 0..ndim {
            let mut order = shorter.clone();
            order.insert(at, ndim - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn large_planes_of_every_order_and_item() {
    // Whole tiles, cut tiles, short sides, and planes within planes.
    let shapes: [&[i64]; 6] = [
        &[64, 32],
        &[130, 97],
        &[3, 700],
        &[700, 5],
        &[2, 67, 33],
        &[9, 3, 2, 65],
    ];
    for shape in shapes {
        for order in orders(shape.len()) {
            for itemsize in [1, 2, 4, 12, 16, 33, 64] {
                for (gap, backwards) in [(0, false), (3, false), (0, true), (itemsize as i64, true)]
                {
                    // A gap inside the innermost axis and outside the others.
                    let mut gaps = vec![0; shape.len()];
                    gaps[order[0]] = gap;
                    let mut turned = vec![false; shape.len()];
                    turned[order[shape.len() / 2]] = backwards;
                    let strides = nested(shape, &order, &gaps, &turned, itemsize as i64);
                    let case = Case::new(shape, &strides, itemsize, 1);
                    let numel = case.layout.numel();
                    case.check_pack(0, numel);
                    case.check_unpack(0, numel);
                    case.check_pack(numel / 7, numel / 2);
                    case.check_unpack(numel / 7, numel / 2);
                }
            }
        }
    }
}

#[test]
fn planes_whose_lines_lie_far_apart() {
    // No whole block: one side is shorter.
    for (shape, order) in [
        ([2000, 13], [1, 0]),
        ([13, 2000], [1, 0]),
        ([2000, 63], [0, 1]),
        ([63, 2000], [0, 1]),
    ] {
        for (itemsize, gap) in [(1, 1200), (4, 1000), (16, 0)] {
            let mut gaps = [0; 2];
            gaps[order[1]] = gap;
            let strides = nested(&shape, &order, &gaps, &[false; 2], itemsize);
            let case = Case::new(&shape, &strides, itemsize as usize, 1);
            case.check_pack(0, case.layout.numel());
            case.check_unpack(0, case.layout.numel());
        }
    }
    // Whole blocks alone, ragged on both sides, and more than are gone through at a time.
    let ragged = [(0, 0), (1, 37), (63, 2), (350, 300)];
    for itemsize in [1i64, 2, 4, 8, 16, 3] {
        let side = (1023 + itemsize) / itemsize;
        for (right, below) in ragged.into_iter().take(if itemsize == 4 { 4 } else { 3 }) {
            let (rows, columns) = (side + below, side + right);
            for backwards in [false, true] {
                let turned = [false, false, backwards];
                let strides = nested(
                    &[1, rows, columns],
                    &[1, 2, 0],
                    &[0, 0, 7],
                    &turned,
                    itemsize,
                );
                let case = Case::new(&[1, rows, columns], &strides, itemsize as usize, 1);
                let numel = case.layout.numel();
                case.check_pack(0, numel);
                case.check_unpack(0, numel);
                case.check_pack(numel / 7, numel / 2);
                case.check_unpack(numel / 7, numel / 2);
            }
        }
    }
}

#[test]
fn chunks_join_to_the_whole() {
    let case = Case::new(&[7, 5, 11], &[4, 28 * 11, 28], 4, 0);
    for chunk in 1..=12 {
        for start in (0..case.layout.numel()).step_by(chunk) {
            let n = chunk.min(case.layout.numel() - start);
            case.check_pack(start, n);
            case.check_unpack(start, n);
        }
    }
}

#[test]
fn nothing_is_touched_for_no_elements() {
    for shape in [&[0i64, 3][..], &[3, 0], &[0]] {
        let layout = Layout::new(shape, None, 4).unwrap();
        // SAFETY: no element is asked for, so no pointer is followed.
        unsafe {
            pack(&layout, std::ptr::null(), 0, 0, std::ptr::null_mut());
            unpack(&layout, std::ptr::null_mut(), 0, 0, std::ptr::null());
        }
    }
}

#[test]
fn sixty_four_axes() {
    // Most of extent 1, as NumPy allows; the strides of those mean nothing.
    let mut shape = vec![1i64; 64];
    let mut strides = vec![i64::MAX; 64];
    (shape[3], strides[3], shape[60], strides[60]) = (5, 2, 4, 10);
    let case = Case::new(&shape, &strides, 2, 1);
    case.check_pack(0, 20);
    case.check_unpack(3, 13);
    // And all of extent 2 is the most that memory can hold of such.
    let shape = vec![2i64; 12];
    let order: Vec<_> = (0..12).collect();
    let strides = nested(&shape, &order, &[0; 12], &[false; 12], 1);
    let case = Case::new(&shape, &strides, 1, 0);
    case.check_pack(1, 4094);
    case.check_unpack(1, 4094);
}
