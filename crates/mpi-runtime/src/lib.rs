//! Finds the libmpi of this process at run time and calls it: MPICH, Open MPI and the standard ABI.
//!
//! In: the name of a loaded extension module (mpi4py's), a program that links MPI itself, or a
//! library to open. Out: [`Mpi`], one table of checked function pointers, with one method per MPI
//! function, named like it in snake case and with its argument order. Return codes are checked
//! and become [`MpiError`]; counts and displacements are `i64` on every library.
//!
//! This is the only crate that calls MPI. It refuses to know tensors, dtypes and devices, to choose
//! algorithms, and to link a libmpi: one binary serves every MPI.
//!
//! # Handles
//! [`Comm`], [`Datatype`] and the rest hold the *native* handle of the loaded library, the very
//! number that mpi4py's `handle` shows, so that they travel between the two without a table.
//!
//! # Threads
//! [`Mpi`] is `Sync`: it is a table of function pointers and constants that never changes. Whether
//! two threads may *call* it at once is MPI's rule, which the caller keeps: see [`ThreadLevel`] and
//! [`Mpi::query_thread`].
//!
//! # Errors
//! What MPI does on an error is decided by the error handler of the communicator that the call
//! names. Under `MPI_ERRORS_RETURN` (mpi4py's default) the code comes back as an [`Error`]; under
//! `MPI_ERRORS_ARE_FATAL` (MPI's own default) the job ends inside the call.

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("mpi-runtime knows the ABIs of 64-bit Unix only");

mod abi;
mod basic;
mod calls;
mod constants;
mod error;
mod find;
mod gpu;
mod handle;
mod library;
mod mpi;
#[cfg(feature = "rsmpi")]
pub mod rsmpi;
mod status;
mod table;

pub use abi::Family;
pub use basic::{Basic, BuiltinOp};
pub use calls::attributes::{AttributeDelete, Keyval};
pub use calls::communicators::PendingComm;
pub use calls::datatypes::Envelope;
pub use calls::generalized::GeneralizedRequest;
pub use calls::groups::Comparison;
pub use calls::operations::UserOp;
pub use calls::vectors::CountArrays;
pub use constants::{Constants, ThreadLevel};
pub use error::{Error, LoadError, MpiError};
pub use gpu::{Flavour, GpuSupport};
pub use handle::{Comm, Datatype, Errhandler, Group, Message, Op, Request, Win};
pub use mpi::Mpi;
pub use status::{StatusArray, StatusBuf, StatusPtr};
