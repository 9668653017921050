//! The DLPack protocol: ABI, ownership, checks, layouts, element types. No Python, no GPU, no MPI.
//!
//! ```text
//! capsule's pointer --> Foreign --(the door)--> View
//!                       owns                    describes
//! ```
//!
//! - [`abi`]: the C structs, frozen by the specification.
//! - [`Foreign`]: a managed tensor that a producer handed over. Its deleter runs exactly once.
//! - [`View`]: address, [`Layout`], [`DType`], [`Device`] and permissions, checked once, at the door.
//!   Everything after it may rely on them: no size overflows, no pointer with elements is NULL.
//! - [`Element`]: Rust types that are elements; [`export`]: memory of ours as a managed tensor.
//! - [`DoorError`]: why the door stayed shut, in words for the person who passed the tensor.
//!
//! A view of memory whose owner is known needs no capsule:
//!
//! ```
//! use dlpack_core::{DType, Device, View};
//!
//! let mut data = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! // The transpose of a 2 x 3 array: strides are bytes here, elements in DLPack itself.
//! // SAFETY:
//! // - Six floats are behind `data`, and it outlives the view.
//! let view = unsafe {
//!     View::from_parts(data.as_mut_ptr().cast(), &[3, 2], Some(&[4, 12]), DType::F32, Device::CPU, false)
//! }?;
//! assert_eq!((view.numel(), view.layout().nbytes(), view.layout().span()), (6, 24, (0, 24)));
//! assert!(!view.layout().is_c_contiguous() && view.check_writable().is_ok());
//! # Ok::<(), dlpack_core::DoorError>(())
//! ```
//!
//! # What is refused, and what is not
//! - Refused: another major version (its deleter still runs), flags that are not known, more than [`MAX_NDIM`]
//!   dimensions, sizes that are negative or overflow, elements without memory, an element type without a size or with
//!   a width that contradicts its name, and dlmpi's own type codes from foreign memory.
//! - Not refused: unknown device kinds and type codes, which can still be moved as bytes; NULL strides, which mean
//!   compact whatever the version; NULL data without elements; strides that are never taken, however odd.
//! - [`View::readonly`] is what the producer said. A legacy capsule can say nothing, so `false` is no permission:
//!   the bridge of an immutable framework sets it by [`View::with_readonly`].
//! - Elements of less than a byte are packed unless the producer's flag says that each is padded to bytes of its
//!   own. Padded ones become [`DType::raw`]: the same numbers in other bytes must not pass for the packed type.

pub mod abi;
mod device;
mod door;
mod dtype;
mod element;
mod error;
mod export;
mod foreign;
mod layout;
mod overlap;
mod view;

pub use device::{Device, DeviceKind};
pub use dtype::{DType, TypeCode};
pub use element::Element;
pub use error::{DoorError, LayoutError};
pub use export::export;
pub use foreign::Foreign;
pub use layout::{Layout, MAX_NDIM};
pub use view::View;

#[cfg(feature = "half")]
pub use half;
#[cfg(feature = "complex")]
pub use num_complex;
