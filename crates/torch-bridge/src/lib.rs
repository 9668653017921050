//! `torch.Tensor` from Python, `tch::Tensor` from Rust.
//!
//! torch's own exports say nothing of three things that make numbers wrong: the negative bit, storage
//! that somebody resizes, and autograd's version counter. So this bridge checks the bits, holds the
//! storage and bumps the counter; behind its checks it reads the C exchange API, which torch publishes on
//! the type since 2.10, and falls back to `__dlpack__` before that and for device memory. Knows no other
//! framework and no operation.
//!
//! From Rust (feature `tch`) the same rules hold: see its module `tensor`.

#[cfg(feature = "python")]
mod all_reduce;
#[cfg(feature = "python")]
mod check;
#[cfg(feature = "python")]
mod exchange;
#[cfg(feature = "python")]
mod fields;
#[cfg(feature = "python")]
mod flats;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod versions;
#[cfg(feature = "python")]
mod written;
#[cfg(feature = "python")]
pub use {all_reduce::AllReduce, python::Torch};

#[cfg(feature = "tch")]
mod asked;
#[cfg(feature = "tch")]
pub use tch;
#[cfg(feature = "tch")]
pub mod tensor;
