//! Views of `ndarray` arrays: each element is where ndarray itself finds it.
#![cfg(feature = "ndarray")]
#![allow(missing_docs, clippy::unwrap_used)]

use dlpack_core::{DType, Element, View};
use ndarray::{
    ArcArray, Array, Array0, Array2, Array3, ArrayD, ArrayView2, Axis, IxDyn, ShapeBuilder, s,
};
use numpy_bridge::array::{of_ref, view, view_mut};

/// Reads a view in C order, by its own description.
fn read<T: Element>(view: &View) -> Vec<T> {
    assert_eq!(view.dtype(), T::DTYPE);
    let (shape, strides) = (view.layout().shape(), view.layout().strides());
    (0..view.numel())
        .map(|mut index| {
            let mut offset = 0;
            for (size, stride) in shape.iter().zip(strides).rev() {
                offset += (index as i64 % size) * stride;
                index /= *size as usize;
            }
            // SAFETY:
            // - The offset is that of an element of the array, which the caller holds.
            unsafe { view.data().offset(offset as isize).cast::<T>().read() }
        })
        .collect()
}

#[test]
fn every_layout_is_lent_as_it_is() {
    let array = Array3::from_shape_fn((3, 4, 5), |(i, j, k)| (100 * i + 10 * j + k) as i64);
    let views = [
        array.view(),
        array.slice(s![..;-1, 1..;2, ..]),
        array.view().reversed_axes(),
        array.slice(s![1..2, .., ..;-3]),
        array.slice(s![2..2, .., ..]),
    ];
    for lent in views {
        let expected: Vec<i64> = lent.iter().copied().collect();
        assert_eq!(read::<i64>(&view(&lent).unwrap()), expected);
        assert_eq!(read::<i64>(&of_ref(&lent).unwrap()), expected);
    }
    let row = array.index_axis(Axis(0), 1);
    let wide = row.broadcast((7, 4, 5)).unwrap();
    let view = view(&wide).unwrap();
    assert_eq!(read::<i64>(&view), wide.iter().copied().collect::<Vec<_>>());
    assert!(view.readonly() && view.layout().overlaps());
}

#[test]
fn a_stride_that_is_never_taken_may_be_any_number() {
    let numbers = [1f64, 2.0, 3.0];
    for far in [isize::MAX as usize, isize::MAX as usize / 4 + 1] {
        let row = ArrayView2::from_shape((1, 3).strides((far, 1)), &numbers).unwrap();
        assert_eq!(read::<f64>(&view(&row).unwrap()), numbers);
    }
    let table = Array2::from_elem((5, 2), 7u64);
    let row = table.slice(s![..;isize::MAX / 2, ..]);
    assert_eq!(read::<u64>(&view(&row).unwrap()), [7, 7]);
}

#[test]
fn element_types_by_name() {
    fn dtype<T: Element + Default>() -> DType {
        view(&Array2::<T>::from_elem((2, 2), T::default()))
            .unwrap()
            .dtype()
    }
    assert_eq!(dtype::<half::bf16>(), DType::BF16);
    assert_eq!(dtype::<half::f16>(), DType::F16);
    assert_eq!(dtype::<u8>(), DType::U8);
    assert_eq!(dtype::<f64>(), DType::F64);
    let scalar = Array0::from_elem((), 2.5f32);
    assert_eq!(read::<f32>(&view(&scalar).unwrap()), [2.5]);
    let empty = Array::<f32, _>::zeros(IxDyn(&[0, 3]));
    assert_eq!(view(&empty).unwrap().numel(), 0);
    let deep = ArrayD::<f32>::zeros(IxDyn(&[1; 65]));
    assert!(view(&deep).is_err());
}

#[test]
fn a_shared_array_becomes_its_own_before_it_is_written() {
    let kept = ArcArray::from_elem((2, 3), 1u16);
    let mut other = kept.clone();
    let lent = view_mut(&mut other).unwrap();
    assert!(lent.check_writable().is_ok());
    assert_ne!(lent.data().cast_const(), kept.as_ptr().cast());
}
