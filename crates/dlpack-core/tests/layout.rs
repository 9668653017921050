//! Layouts against a brute-force list of the bytes of every element.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;

use dlpack_core::{Layout, LayoutError, MAX_NDIM};
use proptest::prelude::*;

/// The first byte of every element, in C order.
fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut all = vec![0];
    for (&size, &stride) in shape.iter().zip(strides) {
        all = all
            .iter()
            .flat_map(|&at| (0..size).map(move |i| at + i * stride))
            .collect();
    }
    all
}

/// Rows of `(size, stride)` and an element size, small enough to enumerate.
fn small() -> impl Strategy<Value = (Vec<(i64, i64)>, usize)> {
    let stride = prop_oneof![4 => -9i64..=9, 4 => -70i64..=70, 1 => Just(0), 1 => Just(1)];
    (prop::collection::vec((0i64..=5, stride), 0..=4), 1usize..=5)
}

/// Strides of a tensor in some memory order, some of them stretched or turned round: mostly disjoint.
fn sane() -> impl Strategy<Value = (Vec<(i64, i64)>, usize)> {
    let axis = (1i64..=5, 1i64..=2, any::<bool>());
    (prop::collection::vec(axis, 0..=4), 1usize..=4, any::<u64>()).prop_map(
        |(axes, itemsize, order)| {
            let mut step = itemsize as i64;
            let mut rows: Vec<(i64, i64)> = axes
                .into_iter()
                .map(|(size, stretch, reverse)| {
                    step *= stretch;
                    let row = (size, if reverse { -step } else { step });
                    step *= size;
                    row
                })
                .collect();
            let len = rows.len().max(1);
            for i in (1..rows.len()).rev() {
                rows.swap(i, (order >> (8 * i)) as usize % len.min(i + 1));
            }
            (rows, itemsize)
        },
    )
}

fn check(rows: &[(i64, i64)], itemsize: usize) -> Result<(), TestCaseError> {
    let (shape, strides): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
    let layout = Layout::new(&shape, Some(&strides), itemsize).unwrap();
    let starts = offsets(&shape, &strides);
    let size = itemsize as i64;
    prop_assert_eq!(layout.shape(), &shape[..]);
    prop_assert_eq!(layout.strides(), &strides[..]);
    prop_assert_eq!(layout.numel(), starts.len());
    prop_assert_eq!(layout.nbytes(), starts.len() * itemsize);

    let low = starts.iter().min().map_or(0, |&low| low);
    let high = starts.iter().max().map_or(0, |&high| high + size);
    prop_assert_eq!(layout.span(), (low as isize, high as isize));

    let contiguous = starts
        .iter()
        .enumerate()
        .all(|(i, &at)| at == i as i64 * size);
    prop_assert_eq!(layout.is_c_contiguous(), contiguous);

    let mut seen = HashSet::new();
    let shared = starts
        .iter()
        .flat_map(|&at| at..at + size)
        .any(|byte| !seen.insert(byte));
    prop_assert_eq!(layout.overlaps(), shared);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_enumeration((rows, itemsize) in small()) {
        check(&rows, itemsize)?;
    }

    #[test]
    fn agrees_with_enumeration_on_sane_layouts((rows, itemsize) in sane()) {
        check(&rows, itemsize)?;
    }

    #[test]
    fn without_strides_it_is_compact(shape in prop::collection::vec(0i64..=5, 0..=5), itemsize in 1usize..=17) {
        let layout = Layout::new(&shape, None, itemsize).unwrap();
        let starts = offsets(&shape, layout.strides());
        let expected: Vec<i64> = (0..starts.len() as i64).map(|i| i * itemsize as i64).collect();
        prop_assert_eq!(starts, expected);
        prop_assert!(layout.is_c_contiguous());
        prop_assert!(!layout.overlaps());
    }

    #[test]
    fn strides_in_elements_are_scaled(rows in prop::collection::vec((0i64..=5, -9i64..=9), 0..=4), itemsize in 1usize..=9) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        let bytes: Vec<i64> = strides.iter().map(|s| s * itemsize as i64).collect();
        prop_assert_eq!(
            Layout::from_elements(&shape, Some(&strides), itemsize).unwrap(),
            Layout::new(&shape, Some(&bytes), itemsize).unwrap()
        );
    }
}

#[test]
fn strides_that_are_never_taken_may_be_anything() {
    let (min, max) = (i64::MIN, i64::MAX);
    let layout = Layout::from_elements(&[1, 3, 1], Some(&[max, 1, min]), 8).unwrap();
    assert!(layout.is_c_contiguous());
    assert_eq!(layout.span(), (0, 24));
    let empty = Layout::from_elements(&[5, 0], Some(&[max, min]), 8).unwrap();
    assert!(empty.is_c_contiguous() && !empty.overlaps());
    assert_eq!(empty.span(), (0, 0));
}

#[test]
fn sizes_beside_a_zero_do_not_overflow() {
    for strides in [None, Some([1, 1, 1])] {
        let layout = Layout::new(
            &[i64::MAX, 0, i64::MAX],
            strides.as_ref().map(|s| &s[..]),
            8,
        )
        .unwrap();
        assert_eq!((layout.numel(), layout.nbytes()), (0, 0));
    }
    assert!(matches!(
        Layout::new(&[0, -1], None, 8),
        Err(LayoutError::NegativeSize { axis: 1, size: -1 })
    ));
}

#[test]
fn what_reaches_too_far_is_refused() {
    let overflow = |shape: &[i64], strides: Option<&[i64]>, itemsize| {
        matches!(
            Layout::new(shape, strides, itemsize),
            Err(LayoutError::Overflow { .. })
        )
    };
    let half = 1 << 62;
    assert!(overflow(&[half, 2], None, 1));
    assert!(overflow(&[half], None, 2));
    assert!(overflow(&[half - 1], None, usize::MAX));
    assert!(overflow(&[3], Some(&[half]), 1));
    assert!(overflow(&[3], Some(&[-half - 1]), 1));
    // Each end fits, their distance does not.
    assert!(overflow(&[2, 2], Some(&[half, -half]), 1));
    // A broadcast of more elements than any count can hold.
    assert!(overflow(&[half, half], Some(&[0, 0]), 1));
    assert!(!overflow(&[half], Some(&[0]), 1));
    assert!(matches!(
        Layout::from_elements(&[2], Some(&[i64::MAX / 4]), 8),
        Err(LayoutError::Overflow { .. })
    ));
}

#[test]
fn counts_of_dimensions_and_strides_are_checked() {
    assert!(Layout::new(&[1; MAX_NDIM], None, 1).is_ok());
    assert!(matches!(
        Layout::new(&[1; MAX_NDIM + 1], None, 1),
        Err(LayoutError::Ndim { ndim: 65 })
    ));
    assert!(matches!(
        Layout::new(&[1, 2], Some(&[1]), 1),
        Err(LayoutError::StrideCount {
            strides: 1,
            ndim: 2
        })
    ));
}

#[test]
fn large_layouts_are_decided_without_looking_at_every_element() {
    let overlaps =
        |shape: &[i64], strides: &[i64]| Layout::new(shape, Some(strides), 4).unwrap().overlaps();
    // Transposed, strided and reversed.
    assert!(!overlaps(&[1 << 20, 1 << 20], &[4, 4 << 20]));
    assert!(!overlaps(&[1 << 20, 1 << 20], &[-8, 8 << 20]));
    // Interleaved without a collision: 1000 rows of two elements, 2000 apart, starting 8 apart.
    assert!(!overlaps(&[2, 1000, 100], &[4, 8, 8000]));
    // Three of every five elements of a row, and the same with the rows one element too close.
    assert!(!overlaps(&[1 << 20, 3], &[20, 4]));
    assert!(overlaps(&[1 << 20, 3], &[8, 4]));
    // A sliding window, and one that slides by itself.
    assert!(overlaps(&[1 << 20, 3], &[4, 4]));
    assert!(!overlaps(&[1 << 20, 3], &[12, 4]));
    assert!(overlaps(&[1 << 40, 2], &[0, 4]));
    // Strides without a common divisor that only meet far out: 5 * 28 == 7 * 20.
    assert!(!overlaps(&[5, 7], &[28, 20]));
    assert!(overlaps(&[6, 8], &[28, 20]));
}

#[test]
fn entangled_layouts_end_in_a_cautious_answer() {
    // Twenty axes of nearly equal stride: a search without an end; no answer but "may overlap" is safe.
    let strides: Vec<i64> = (0..20).map(|i| (1 << 30) + (1 << i)).collect();
    let layout = Layout::new(&[2; 20], Some(&strides), 1).unwrap();
    assert!(layout.overlaps());
}
