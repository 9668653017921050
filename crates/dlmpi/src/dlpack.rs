//! Memory in and out in the form that every DLPack producer and consumer knows. Knows no framework.
//!
//! Whatever library yields a `DLManagedTensorVersioned` lends its memory by [`Imported`]; [`export`] makes one of a tensor
//! that owns its memory. Nothing is copied.

use dlpack_core::abi::DLManagedTensorVersioned;
use dlpack_core::{Foreign, View};

use crate::error::{Error, Result};
use crate::tensor::{Loan, Tensor, TensorMut};

/// A tensor that another library made and handed over. Its deleter runs once, when this is dropped.
///
/// It takes part in blocking operations. What runs meanwhile needs a tensor that nobody else can reach
/// ([`crate::Exclusive`]).
///
/// ```
/// use dlmpi::{Op, dlpack};
///
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let managed = dlpack::export(vec![1f32; 3])?; // or from any other producer
/// // SAFETY:
/// // - It was exported above, for this only consumer, and the vector went into it.
/// let mut tensor = unsafe { dlpack::Imported::new(managed) }?;
/// world.all_reduce(&mut tensor, Op::Sum)?;
/// let mut copy = [0f32; 3];
/// world.sendrecv(&tensor, world.rank(), 0, &mut copy, world.rank(), 0)?;
/// assert_eq!(copy, [world.size() as f32; 3]);
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug)]
pub struct Imported {
    /// Keeps what `view` describes.
    foreign: Foreign,
    view: View,
}

impl Imported {
    /// Takes a managed tensor over. Everything about it is checked here, and its deleter runs in any case.
    ///
    /// ```
    /// use dlmpi::{Tensor, dlpack};
    ///
    /// let managed = dlpack::export(vec![1f32, 2.0, 3.0])?;
    /// // SAFETY:
    /// // - It was exported above, for this only consumer, and the vector went into it.
    /// let tensor = unsafe { dlpack::Imported::new(managed) }?;
    /// assert_eq!(tensor.lend()?.view().numel(), 3);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::Tensor`]: another major version, sizes that overflow, elements without memory, and
    ///   whatever else does not describe memory.
    ///
    /// # Safety
    /// - `managed` is a live managed tensor that nobody else releases, and its deleter may be called on any thread.
    /// - Nobody writes its memory while the result is borrowed, or touches it at all while it is borrowed mutably.
    /// - On a CUDA device: what was queued to write it has happened.
    pub unsafe fn new(managed: *mut DLManagedTensorVersioned) -> Result<Imported> {
        // SAFETY:
        // - The caller's promise.
        let foreign = unsafe { Foreign::from_versioned(managed.cast()) };
        let view = foreign.view()?;
        Ok(Imported { foreign, view })
    }

    /// Hands it on to another consumer.
    ///
    /// ```
    /// use dlmpi::dlpack;
    ///
    /// let managed = dlpack::export(vec![1u8, 2])?;
    /// // SAFETY:
    /// // - It was exported above, for this only consumer, and the vector went into it.
    /// let tensor = unsafe { dlpack::Imported::new(managed) }?;
    /// let handed_on = tensor.into_managed()?;
    /// // SAFETY:
    /// // - It comes from above, and nobody else has it.
    /// drop(unsafe { dlpack::Imported::new(handed_on) }?);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::State`]: never, since only managed tensors of this form come in.
    pub fn into_managed(self) -> Result<*mut DLManagedTensorVersioned> {
        self.foreign
            .into_versioned()
            .map_err(|_| Error::state("a tensor of the older form cannot be handed on"))
    }
}

// SAFETY:
// - The memory lives as long as the managed tensor, which `self` owns; the rest was promised to `new`.
unsafe impl Tensor for Imported {
    fn lend(&self) -> Result<Loan<'_>> {
        Ok(Loan::new(self.view.clone()))
    }
}

// SAFETY:
// - As above; a producer that forbids writing is refused by the door.
unsafe impl TensorMut for Imported {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        self.view.check_writable()?;
        Ok(Loan::new(self.view.clone()))
    }
}

/// Gives a tensor away as a managed tensor, without a copy: whoever takes it calls its deleter, and then the tensor is
/// dropped, on that thread.
///
/// Whoever takes it may write it.
///
/// ```
/// use dlmpi::dlpack;
///
/// let managed = dlpack::export(vec![1f64; 8])?;
/// // Whoever takes it calls its deleter; here we do.
/// // SAFETY:
/// // - It was exported above, for this only consumer.
/// let taken = unsafe { dlpack::Imported::new(managed) }?;
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - [`crate::ErrorKind::Tensor`]: it cannot be lent, its loan is what keeps the memory ([`Loan::keeping`]), or its strides
///   are no whole number of elements.
pub fn export<T>(mut tensor: T) -> Result<*mut DLManagedTensorVersioned>
where
    T: TensorMut + Stable + Send + 'static,
{
    let view = match tensor.lend_mut()?.into_parts() {
        (view, None) => view,
        (_, Some(_)) => {
            return Err(Error::tensor(
                "the tensor's memory goes when its loan ends, which keeps it, so it cannot be given away",
            ));
        }
    };
    // SAFETY:
    // - A `Stable` tensor's memory stays where it is when the tensor is moved, and lives as long as it.
    // - It was lent mutably and is owned, so a consumer may write it.
    let foreign = unsafe { dlpack_core::export(&view, tensor) }?;
    foreign
        .into_versioned()
        .map_err(|_| Error::state("only managed tensors of the newer form are exported"))
}

/// A tensor whose memory stays where it is when the tensor itself is moved.
///
/// ```
/// use dlmpi::{Error, Loan, Tensor, TensorMut, dlpack};
///
/// struct Samples(Vec<f32>);
///
/// // SAFETY:
/// // - It is its vector.
/// unsafe impl Tensor for Samples {
///     fn lend(&self) -> Result<Loan<'_>, Error> {
///         self.0.lend()
///     }
/// }
/// // SAFETY:
/// // - It is its vector.
/// unsafe impl TensorMut for Samples {
///     fn lend_mut(&mut self) -> Result<Loan<'_>, Error> {
///         self.0.lend_mut()
///     }
/// }
/// // SAFETY:
/// // - A vector's elements are on the heap.
/// unsafe impl dlpack::Stable for Samples {}
///
/// let managed = dlpack::export(Samples(vec![0.0; 4]))?;
/// // SAFETY:
/// // - It was exported above, for this only consumer.
/// drop(unsafe { dlpack::Imported::new(managed) }?);
/// # Ok::<(), Error>(())
/// ```
///
/// # Safety
/// - The memory that a loan of [`Loan::new`] describes stays valid, and where it is, until the value is dropped: also when the
///   loan has ended, and when the value is moved.
pub unsafe trait Stable: Tensor {}

// SAFETY:
// - A vector's elements are on the heap.
unsafe impl<T: dlpack_core::Element> Stable for Vec<T> {}
