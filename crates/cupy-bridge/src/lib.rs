//! `cupy.ndarray` from Python, slices of cudarc from Rust (feature `cudarc`: the module `slice`).
//!
//! CuPy orders its work by stream and takes the stream to order it on as an argument of `__dlpack__`, so a
//! stream is always passed: ours, with the array's device current, since CuPy records its event on the
//! current device whatever the array's. What is collected in the call's `StreamOrder` is waited for once.
//! Knows no other framework and no operation.

#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
pub use python::CuPy;

#[cfg(feature = "cudarc")]
pub use cudarc;
#[cfg(feature = "cudarc")]
pub mod slice;
