#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod agree;
#[cfg(feature = "ndarray")]
mod array;
mod collectives;
mod comm;
pub mod dlpack;
mod error;
mod immediate;
mod messages;
mod observe;
mod op;
mod scope;
mod site;
#[cfg(feature = "cudarc")]
mod slice;
#[cfg(feature = "tch")]
pub mod tch;
mod tensor;
mod universe;

pub use comm::Comm;
pub use dlpack_core::{DType, Device, Element, View};
pub use error::{Error, ErrorKind, KnownTo, Result};
pub use messages::{Source, Status, Tag};
pub use mpi_runtime::ThreadLevel;
pub use op::Op;
pub use scope::{Borrowed, Request, Scope, scope};
pub use tensor::{Exclusive, Loan, Tensor, TensorMut};
pub use universe::{Universe, initialize, initialize_from};

#[cfg(feature = "cudarc")]
pub use cupy_bridge::cudarc;
#[cfg(feature = "ndarray")]
pub use numpy_bridge::ndarray;
