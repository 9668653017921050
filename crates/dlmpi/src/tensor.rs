//! What an operation needs to know of a tensor, as two traits. Knows no operation and no framework.

use dlpack_core::{Device, Element, View};

use crate::error::{Error, Result};

/// A tensor's memory, described and lent for as long as `'a`.
///
/// It holds whatever must live meanwhile: a copy with resolved bits, a mark on a CUDA stream.
///
/// ```
/// use dlmpi::{DType, Tensor};
///
/// let samples = vec![0f32; 6];
/// let loan = samples.lend()?; // `samples` cannot change while it is there
/// assert_eq!((loan.view().layout().shape(), loan.view().dtype()), (&[6][..], DType::F32));
/// # Ok::<(), dlmpi::Error>(())
/// ```
pub struct Loan<'a> {
    view: View,
    keep: Kept<'a>,
}

/// What a loan holds, if anything.
pub(crate) type Kept<'a> = Option<Box<dyn Keep + 'a>>;

/// Anything may be held.
pub(crate) trait Keep {}
impl<T> Keep for T {}

impl std::fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loan").field(&self.view).finish()
    }
}

impl<'a> Loan<'a> {
    /// Lends memory that the lender itself keeps.
    ///
    /// ```
    /// use dlmpi::{Error, Loan, Tensor};
    ///
    /// /// A picture, of which the alpha values are not sent.
    /// struct Picture { rgba: Vec<u8> }
    ///
    /// // SAFETY:
    /// // - The vector keeps the memory, and cannot change while it is borrowed.
    /// unsafe impl Tensor for Picture {
    ///     fn lend(&self) -> Result<Loan<'_>, Error> {
    ///         let (data, pixels) = (self.rgba.as_ptr().cast_mut(), self.rgba.len() as i64 / 4);
    ///         let (shape, strides) = ([pixels, 3], [4, 1]);
    ///         // SAFETY:
    ///         // - Three of every four bytes of the vector.
    ///         let view = unsafe {
    ///             dlmpi::View::from_parts(data, &shape, Some(&strides), dlmpi::DType::U8, dlmpi::Device::CPU, true)
    ///         }?;
    ///         Ok(Loan::new(view))
    ///     }
    /// }
    /// assert_eq!(Picture { rgba: vec![0; 8] }.lend()?.view().numel(), 6);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(view: View) -> Loan<'a> {
        Loan { view, keep: None }
    }

    /// Lends memory that `keep` keeps; it is dropped when the operation has ended.
    ///
    /// ```
    /// use dlmpi::{Error, Loan, Tensor};
    ///
    /// /// Numbers that are made when they are wanted.
    /// struct Squares(u32);
    ///
    /// // SAFETY:
    /// // - The loan keeps the vector, which nobody else has.
    /// unsafe impl Tensor for Squares {
    ///     fn lend(&self) -> Result<Loan<'_>, Error> {
    ///         let made: Vec<u32> = (0..self.0).map(|i| i * i).collect();
    ///         let view = made.lend()?.view().clone();
    ///         Ok(Loan::keeping(view, made))
    ///     }
    /// }
    /// assert_eq!(Squares(5).lend()?.view().numel(), 5);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn keeping<K: 'a>(view: View, keep: K) -> Loan<'a> {
        let keep: Box<dyn Keep + 'a> = Box::new(keep);
        Loan {
            view,
            keep: Some(keep),
        }
    }

    /// The memory: address, shape, strides in bytes, dtype, device.
    ///
    /// ```
    /// use dlmpi::Tensor;
    ///
    /// let table = [1f32; 6];
    /// let loan = table.lend()?;
    /// assert_eq!((loan.view().numel(), loan.view().dtype()), (6, dlmpi::DType::F32));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The memory, and what keeps it.
    pub(crate) fn into_parts(self) -> (View, Kept<'a>) {
        (self.view, self.keep)
    }
}

/// A tensor that can be sent: its memory can be described, and is ready to be read.
///
/// A tensor is its elements in C order, whatever their order in memory, so that a transposed array arrives
/// as what it reads as. Implemented for numbers (as tensors of no dimension), slices, arrays and vectors of them,
/// and for the types of the features `ndarray`, `tch` and `cudarc`. Elements are numbers: of `bool` only two of
/// 256 bytes are values, and nobody knows what another process sends.
///
/// ```
/// use dlmpi::{Element, Error, Loan, Tensor, View};
///
/// /// Every second sample of a recording.
/// struct Left(Vec<f32>);
///
/// // SAFETY:
/// // - The vector owns the memory, and cannot change while it is borrowed.
/// unsafe impl Tensor for Left {
///     fn lend(&self) -> Result<Loan<'_>, Error> {
///         let (data, n) = (self.0.as_ptr().cast_mut().cast(), self.0.len() as i64 / 2);
///         // SAFETY:
///         // - Element `i` is 8 * i bytes on, inside the vector.
///         let view = unsafe {
///             View::from_parts(data, &[n], Some(&[8]), f32::DTYPE, dlmpi::Device::CPU, true)
///         }?;
///         Ok(Loan::new(view))
///     }
/// }
/// assert_eq!(Left(vec![0.0; 6]).lend()?.view().numel(), 3);
/// # Ok::<(), Error>(())
/// ```
///
/// # Safety
/// - What [`lend`](Tensor::lend) returns describes initialised memory of its device, which stays valid, and which
///   nobody writes, as long as the loan and the borrow behind it live.
/// - Device memory is ready: what was queued to write it has happened, or our stream of this device and thread
///   (`device::Cuda::stream`) waits for it.
/// - To lend a value neither frees, moves nor writes the memory of another one: an operation lends several.
pub unsafe trait Tensor {
    /// Describes the memory and makes it ready to be read.
    ///
    /// # Errors
    /// - [`Error`]: it has no plain memory (a sparse tensor), or its device reports an error.
    fn lend(&self) -> Result<Loan<'_>>;
}

/// A tensor that can be received into.
///
/// ```
/// use dlmpi::{Op, TensorMut};
///
/// /// Any tensor will do.
/// fn normalise(comm: &dlmpi::Comm<'_>, tensor: &mut dyn TensorMut) -> dlmpi::Result<()> {
///     comm.all_reduce(tensor, Op::Avg)
/// }
///
/// let universe = dlmpi::initialize()?;
/// let mut mean = vec![2f64; 3];
/// normalise(&universe.world(), &mut mean)?;
/// assert_eq!(mean, [2.0; 3]);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// Not every type can: of a `bool` only two of 256 bytes are values.
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// universe.world().broadcast(&mut [true; 3], 0).unwrap();
/// ```
///
/// # Safety
/// - What [`lend_mut`](TensorMut::lend_mut) returns describes memory of its device, which stays valid, and which
///   nobody else reads or writes, as long as the loan and the borrow behind it live.
/// - Every pattern of bytes is a value of its elements.
/// - Device memory is ready to be written, as [`Tensor`] says of reading.
pub unsafe trait TensorMut: Tensor {
    /// Describes the memory and makes it ready to be written.
    ///
    /// # Errors
    /// - As for [`Tensor::lend`]; besides where elements share memory, or the memory may not be written.
    fn lend_mut(&mut self) -> Result<Loan<'_>>;

    /// Told after its memory was written, and after a call that failed on the way: where a framework counts versions, here is
    /// where.
    ///
    /// ```
    /// use dlmpi::{Error, Loan, Tensor, TensorMut};
    ///
    /// struct Counted { data: Vec<f32>, version: u64 }
    ///
    /// // SAFETY:
    /// // - It is its vector.
    /// unsafe impl Tensor for Counted {
    ///     fn lend(&self) -> Result<Loan<'_>, Error> {
    ///         self.data.lend()
    ///     }
    /// }
    /// // SAFETY:
    /// // - It is its vector.
    /// unsafe impl TensorMut for Counted {
    ///     fn lend_mut(&mut self) -> Result<Loan<'_>, Error> {
    ///         self.data.lend_mut()
    ///     }
    ///     fn wrote(&mut self) {
    ///         self.version += 1;
    ///     }
    /// }
    ///
    /// let universe = dlmpi::initialize()?;
    /// let mut tensor = Counted { data: vec![1.0; 2], version: 0 };
    /// universe.world().broadcast(&mut tensor, 0)?;
    /// assert_eq!(tensor.version, 1);
    /// # Ok::<(), Error>(())
    /// ```
    fn wrote(&mut self) {}
}

/// A tensor whose memory is reached by its borrow alone, so that an operation may work on it while other code runs.
///
/// What [`crate::scope`] starts needs it. Numbers, slices, vectors, and arrays of `ndarray` are; a type of your own that owns
/// its memory can be:
///
/// ```
/// use dlmpi::{Error, Exclusive, Loan, Tensor};
///
/// struct Row(Vec<f64>);
///
/// // SAFETY:
/// // - It is its vector.
/// unsafe impl Tensor for Row {
///     fn lend(&self) -> Result<Loan<'_>, Error> {
///         self.0.lend()
///     }
/// }
/// // SAFETY:
/// // - A vector moves or changes its memory by a mutable borrow only.
/// unsafe impl Exclusive for Row {}
///
/// let universe = dlmpi::initialize()?;
/// let (world, row) = (universe.world(), Row(vec![1.0; 3]));
/// let mut sum = [0f64; 3];
/// dlmpi::scope(|scope| {
///     world.immediate_all_reduce_into(scope, &row, &mut sum, dlmpi::Op::Sum)?.wait().map(|_| ())
/// })?;
/// assert_eq!(sum, [world.size() as f64; 3]);
/// # Ok::<(), Error>(())
/// ```
///
/// A `tch::Tensor` is none: its clones share its memory, and may resize it. Nor is what safe code may change behind a shared
/// borrow:
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// let world = universe.world();
/// let cells = [std::cell::Cell::new(1f32)];
/// let _ = dlmpi::scope(|scope| world.immediate_send(scope, &cells, 0, 0)?.wait());
/// ```
///
/// # Safety
/// - While a value is borrowed, safe code can neither free nor move its memory; while it is borrowed mutably, safe
///   code reaches its memory through that borrow only.
#[diagnostic::on_unimplemented(
    message = "memory of `{Self}` can be reached while it is lent, so it cannot take part in a non-blocking operation",
    note = "use the blocking form, or a slice or `ndarray` array that owns its memory"
)]
pub unsafe trait Exclusive: Tensor {}

/// The memory of consecutive elements.
fn consecutive<T: Element>(data: *const T, shape: &[i64], readonly: bool) -> Result<Loan<'static>> {
    let data = data.cast_mut().cast();
    // SAFETY:
    // - The callers below pass the address and length of a borrowed slice or number, which outlives the loan.
    let view = unsafe { View::from_parts(data, shape, None, T::DTYPE, Device::CPU, readonly) };
    view.map(Loan::new).map_err(Error::from)
}

// SAFETY:
// - A slice is initialised memory, which its borrow keeps, and keeps from being written.
unsafe impl<T: Element> Tensor for [T] {
    fn lend(&self) -> Result<Loan<'_>> {
        consecutive(self.as_ptr(), &[self.len() as i64], true)
    }
}
// SAFETY:
// - A slice that is borrowed mutably is reached by that borrow only, and every bit pattern is an `Element`.
unsafe impl<T: Element> TensorMut for [T] {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        consecutive(self.as_mut_ptr(), &[self.len() as i64], false)
    }
}
// SAFETY:
// - As above: a borrow of a slice is exclusive where it is mutable.
unsafe impl<T: Element> Exclusive for [T] {}

macro_rules! like_slices {
    ($([$($generics:tt)*] $type:ty;)+) => {$(
        // SAFETY:
        // - It is its slice.
        unsafe impl<$($generics)*> Tensor for $type {
            fn lend(&self) -> Result<Loan<'_>> {
                self[..].lend()
            }
        }
        // SAFETY:
        // - It is its slice.
        unsafe impl<$($generics)*> TensorMut for $type {
            fn lend_mut(&mut self) -> Result<Loan<'_>> {
                self[..].lend_mut()
            }
        }
        // SAFETY:
        // - It is its slice; what could move the memory needs a mutable borrow.
        unsafe impl<$($generics)*> Exclusive for $type {}
    )+};
}

like_slices! {
    [T: Element] Vec<T>;
    [T: Element] Box<[T]>;
    [T: Element, const N: usize] [T; N];
}

macro_rules! numbers {
    ($($(#[$attribute:meta])* $type:ty;)+) => {$(
        $(#[$attribute])*
        // SAFETY:
        // - A number is initialised memory, which its borrow keeps, and keeps from being written.
        unsafe impl Tensor for $type {
            fn lend(&self) -> Result<Loan<'_>> {
                consecutive(self, &[], true)
            }
        }
        $(#[$attribute])*
        // SAFETY:
        // - A number that is borrowed mutably is reached by that borrow only.
        unsafe impl TensorMut for $type {
            fn lend_mut(&mut self) -> Result<Loan<'_>> {
                consecutive((&raw mut *self).cast_const(), &[], false)
            }
        }
        $(#[$attribute])*
        // SAFETY:
        // - As above.
        unsafe impl Exclusive for $type {}
    )+};
}

numbers! {
    i8; i16; i32; i64; isize; u8; u16; u32; u64; usize; f32; f64;
    #[cfg(any(feature = "half", feature = "ndarray"))]
    dlpack_core::half::f16;
    #[cfg(any(feature = "half", feature = "ndarray"))]
    dlpack_core::half::bf16;
    #[cfg(any(feature = "complex", feature = "ndarray"))]
    dlpack_core::num_complex::Complex<f32>;
    #[cfg(any(feature = "complex", feature = "ndarray"))]
    dlpack_core::num_complex::Complex<f64>;
}

macro_rules! through {
    ($($type:ty;)+) => {$(
        // SAFETY:
        // - It borrows or owns the tensor, which keeps its own promises.
        unsafe impl<T: Tensor + ?Sized> Tensor for $type {
            fn lend(&self) -> Result<Loan<'_>> {
                (**self).lend()
            }
        }
        // SAFETY:
        // - As above.
        unsafe impl<T: Exclusive + ?Sized> Exclusive for $type {}
    )+};
}

through! {
    &T;
    &mut T;
}

// SAFETY:
// - A mutable borrow of the tensor, which keeps its own promises.
unsafe impl<T: TensorMut + ?Sized> TensorMut for &mut T {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        (**self).lend_mut()
    }

    fn wrote(&mut self) {
        (**self).wrote();
    }
}
