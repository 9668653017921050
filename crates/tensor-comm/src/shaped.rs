//! A whole strided tensor as one derived datatype, for operations that work on memory as it lies each time
//! they start. Its signature is that of the elements in logical order.

use dlpack_core::View;
use mpi_runtime::{Datatype, Mpi};

use crate::counted::Derived;
use crate::error::Result;
use crate::wiretype::{moving_type, receiving_type};

/// The datatype of a tensor's layout. Freed when dropped; operations that were started with it go on.
pub struct Shaped(Derived);

impl Shaped {
    /// One element of it, at the tensor's first element, is the tensor; of a message that is received or not.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn new(mpi: &'static Mpi, view: &View, received: bool) -> Result<Shaped> {
        let wire = match received {
            true => receiving_type(mpi, view.dtype(), view.itemsize())?,
            false => moving_type(mpi, view.dtype(), view.itemsize())?,
        };
        let element = mpi.type_contiguous(wire.units as i64, wire.datatype)?;
        let mut whole = Derived::new(mpi, element);
        let layout = view.layout();
        for (&n, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
            let vector = mpi.type_create_hvector(n, 1, stride, whole.datatype())?;
            whole = Derived::new(mpi, vector);
        }
        whole.commit().map(Shaped)
    }

    /// The handle.
    pub fn datatype(&self) -> Datatype {
        self.0.datatype()
    }
}
