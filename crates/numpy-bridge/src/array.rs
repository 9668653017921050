//! Arrays of the `ndarray` crate as checked views of their memory.
//!
//! Every layout is lent as it is: transposed, sliced, reversed, broadcast (to send only). Elements are what
//! [`Element`] says: numbers, `half::f16` and `half::bf16`, complex numbers.

use dlpack_core::{Device, DoorError, Element, View};
use ndarray::{ArrayBase, ArrayRef, Data, DataMut, Dimension};

/// An array to read from.
///
/// ```
/// use ndarray::{Array2, s};
///
/// let array = Array2::<f32>::zeros((4, 6));
/// let columns = numpy_bridge::array::view(&array.slice(s![.., ..;-2]))?;
/// assert_eq!(columns.layout().shape(), [4, 3]);
/// assert_eq!(columns.layout().strides(), [24, -8]);
/// # Ok::<(), dlpack_core::DoorError>(())
/// ```
///
/// # Errors
/// - [`DoorError`]: more dimensions than the door lets through.
pub fn view<S, D>(array: &ArrayBase<S, D>) -> Result<View, DoorError>
where
    S: Data<Elem: Element>,
    D: Dimension,
{
    of_ref(array)
}

/// An array to write to. A shared one (`ArcArray`) becomes its own first.
///
/// # Errors
/// - [`DoorError`]: more dimensions than the door lets through.
pub fn view_mut<S, D>(array: &mut ArrayBase<S, D>) -> Result<View, DoorError>
where
    S: DataMut<Elem: Element>,
    D: Dimension,
{
    of_mut(array)
}

/// What every array dereferences to, to read from.
///
/// # Errors
/// - As for [`view`].
pub fn of_ref<A: Element, D: Dimension>(array: &ArrayRef<A, D>) -> Result<View, DoorError> {
    let data = array.as_ptr().cast_mut();
    describe(data, array.shape(), array.strides(), true)
}

/// What every array dereferences to, to write to.
///
/// # Errors
/// - As for [`view`].
pub fn of_mut<A: Element, D: Dimension>(array: &mut ArrayRef<A, D>) -> Result<View, DoorError> {
    let data = array.as_mut_ptr();
    describe(data, array.shape(), array.strides(), false)
}

fn describe<A: Element>(
    data: *mut A,
    shape: &[usize],
    strides: &[isize],
    readonly: bool,
) -> Result<View, DoorError> {
    let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    // Of an array without elements no stride is ever taken, and none need fit.
    let steps: Option<Vec<i64>> = (!shape.contains(&0)).then(|| {
        let item = size_of::<A>() as i64;
        let steps = strides.iter().zip(shape);
        steps
            .map(|(&stride, &size)| match size {
                // Never taken, and any number: that of `from_shape` with strides of its own, or of a slice with a huge step.
                1 => 0,
                _ => stride as i64 * item,
            })
            .collect()
    });
    // SAFETY:
    // - ndarray keeps every element that shape and strides reach inside the array's memory, whose offsets in bytes
    //   fit `isize`; who acts on the view answers for the array's life.
    unsafe {
        View::from_parts(
            data.cast(),
            &sizes,
            steps.as_deref(),
            A::DTYPE,
            Device::CPU,
            readonly,
        )
    }
}
