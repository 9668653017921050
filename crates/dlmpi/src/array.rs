//! Arrays of the `ndarray` crate as tensors: owned, shared and borrowed ones, of any layout.

use dlpack_core::Element;
use numpy_bridge::array;
use numpy_bridge::ndarray::{Array, ArrayBase, ArrayRef, Data, DataMut, Dimension};

use crate::dlpack::Stable;
use crate::error::Result;
use crate::tensor::{Exclusive, Loan, Tensor, TensorMut};

// SAFETY:
// - ndarray's arrays are initialised memory, which a borrow of the array keeps, and keeps from being written: a shared
//   one (`ArcArray`) is copied before anybody writes it.
unsafe impl<S: Data<Elem: Element>, D: Dimension> Tensor for ArrayBase<S, D> {
    fn lend(&self) -> Result<Loan<'_>> {
        Ok(Loan::new(array::view(self)?))
    }
}

// SAFETY:
// - A mutable borrow of an array whose memory may be written is the only way to it (a shared one becomes its own
//   first), and every bit pattern is an `Element`.
unsafe impl<S: DataMut<Elem: Element>, D: Dimension> TensorMut for ArrayBase<S, D> {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        Ok(Loan::new(array::view_mut(self)?))
    }
}

// SAFETY:
// - As above.
unsafe impl<S: Data<Elem: Element>, D: Dimension> Exclusive for ArrayBase<S, D> {}

// SAFETY:
// - An array's elements are on the heap.
unsafe impl<A: Element, D: Dimension> Stable for Array<A, D> {}

// SAFETY:
// - As of `ArrayBase`, which dereferences to it.
unsafe impl<A: Element, D: Dimension> Tensor for ArrayRef<A, D> {
    fn lend(&self) -> Result<Loan<'_>> {
        Ok(Loan::new(array::of_ref(self)?))
    }
}

// SAFETY:
// - As of `ArrayBase`: a mutable `ArrayRef` is never a shared array.
unsafe impl<A: Element, D: Dimension> TensorMut for ArrayRef<A, D> {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        Ok(Loan::new(array::of_mut(self)?))
    }
}

// SAFETY:
// - As above.
unsafe impl<A: Element, D: Dimension> Exclusive for ArrayRef<A, D> {}
