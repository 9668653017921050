//! NumPy arrays from Python: `numpy.ndarray`, its subclasses, and NumPy scalars to send.
//!
//! The buffer protocol comes first: it is the fastest, and the only one that shows read-only arrays
//! and `longdouble` on every NumPy. What it refuses (`ml_dtypes`, datetimes) is read through
//! `__array_interface__`. DLPack is not needed. Knows no other framework and no operation.

#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
pub use python::NumPy;
