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
//! - [`DoorError`]: why the door stayed shut, in words for the person who passed the tensor.

pub mod abi;
mod device;
mod door;
mod dtype;
mod error;
mod foreign;
mod layout;
mod overlap;
mod view;

pub use device::{Device, DeviceKind};
pub use dtype::{DType, TypeCode};
pub use error::{DoorError, LayoutError};
pub use foreign::Foreign;
pub use layout::{Layout, MAX_NDIM};
pub use view::View;
