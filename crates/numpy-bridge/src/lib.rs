//! NumPy arrays from Python, `ndarray` arrays from Rust.
//!
//! From Python (feature `python`): `numpy.ndarray`, its subclasses, and NumPy scalars to send.
//!
//! Plain arrays (C order, native numbers) are read as NumPy's C headers say. For all others the buffer
//! protocol comes first: it is the only one that shows read-only arrays and `longdouble` on every NumPy. What it refuses (`ml_dtypes`, datetimes) is read through
//! `__array_interface__`. DLPack is not needed.
//!
//! From Rust (feature `ndarray`): any array or view, of any layout. Knows no other framework and no operation.

#[cfg(feature = "ndarray")]
pub mod array;
#[cfg(feature = "python")]
mod plain;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
pub use python::NumPy;

#[cfg(feature = "ndarray")]
pub use ndarray;
