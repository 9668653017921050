//! Slices of cudarc as tensors of one dimension. **Never run on a GPU**: tested with a driver that
//! only acts like one.

use cupy_bridge::cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use cupy_bridge::slice;
use dlpack_core::Element;

use crate::error::{Error, Result};
use crate::tensor::{Exclusive, Loan, Tensor, TensorMut};

impl From<slice::Refused> for Error {
    fn from(refused: slice::Refused) -> Error {
        Error::tensor(refused.to_string())
    }
}

macro_rules! slices {
    ($($type:ty $(: $mutable:ident)?;)+) => {$(
        // SAFETY:
        // - cudarc keeps the memory while the slice is borrowed, and makes mutable slices exclusive.
        // - The host has waited for everything that was queued on it.
        unsafe impl<T: Element> Tensor for $type {
            fn lend(&self) -> Result<Loan<'_>> {
                Ok(Loan::new(slice::lend(self)?))
            }
        }
        // SAFETY:
        // - As above.
        unsafe impl<T: Element> Exclusive for $type {}
        $(slices!($mutable $type);)?
    )+};
    (writable $type:ty) => {
        // SAFETY:
        // - As above; every bit pattern is an `Element`.
        unsafe impl<T: Element> TensorMut for $type {
            fn lend_mut(&mut self) -> Result<Loan<'_>> {
                Ok(Loan::new(slice::lend_mut(self)?))
            }
        }
    };
}

slices! {
    CudaSlice<T>: writable;
    CudaView<'_, T>;
    CudaViewMut<'_, T>: writable;
}
