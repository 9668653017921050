//! Bounds of raw memory under a Datatype of the caller's: what an explicit count or displacement reaches
//! must lie in the tensor. mpi4py trusts them. Knows no tensor, only lengths.

use mpi_runtime::{Datatype, Mpi};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors;

/// Bytes of an object's buffer.
///
/// # Errors
/// What the exporter raised.
pub fn length(obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    // SAFETY:
    // - The thread is attached; a new reference, or NULL with an exception set.
    let view = unsafe {
        Bound::from_owned_ptr_or_err(obj.py(), ffi::PyMemoryView_FromObject(obj.as_ptr()))
    }?;
    view.getattr(pyo3::intern!(obj.py(), "nbytes"))?.extract()
}

/// Where elements of a Datatype lie.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    extent: i64,
    low: i64,
    high: i64,
}

impl Reach {
    /// Asks MPI.
    ///
    /// # Errors
    /// What MPI reports about the Datatype.
    pub fn of(py: Python<'_>, mpi: &Mpi, datatype: Datatype) -> PyResult<Reach> {
        let ask = || -> Result<Reach, mpi_runtime::Error> {
            let (_, extent) = mpi.type_get_extent(datatype)?;
            let (low, size) = mpi.type_get_true_extent(datatype)?;
            let high = low.saturating_add(size);
            Ok(Reach { extent, low, high })
        };
        ask().map_err(|error| errors::mpi(py, &error))
    }

    /// Checks `count` elements from element `displ` on against `length` bytes.
    ///
    /// # Errors
    /// `ValueError` naming the argument.
    pub fn check(self, name: &str, displ: i64, count: i64, length: usize) -> PyResult<()> {
        if displ < 0 {
            return Err(PyValueError::new_err(format!(
                "{name}: message: negative displacement {displ}"
            )));
        }
        if count < 0 {
            return Err(PyValueError::new_err(format!(
                "{name}: message: negative count {count}"
            )));
        }
        if count == 0 {
            return Ok(());
        }
        let extent = i128::from(self.extent);
        let at = |element: i128| element * extent;
        let (first, last) = (i128::from(displ), i128::from(displ) + i128::from(count) - 1);
        let low = at(first).min(at(last)) + i128::from(self.low);
        let high = at(first).max(at(last)) + i128::from(self.high);
        if low >= 0 && high <= length as i128 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{name}: {count} elements from element {displ} on of a Datatype with an extent of {extent} bytes reach from byte {low} to {high}, but the tensor has {length} bytes"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLE: Reach = Reach {
        extent: 8,
        low: 0,
        high: 8,
    };

    #[test]
    fn what_fits_fits_exactly() {
        assert!(DOUBLE.check("buf", 0, 4, 32).is_ok());
        assert!(DOUBLE.check("buf", 2, 2, 32).is_ok());
        assert!(DOUBLE.check("buf", 9, 0, 32).is_ok());
    }

    #[test]
    fn what_reaches_out_is_refused_without_overflow() {
        Python::initialize();
        for (displ, count) in [
            (0, 5),
            (3, 2),
            (-1, 1),
            (0, -1),
            (i64::MAX, 1),
            (1, i64::MAX),
        ] {
            assert!(
                DOUBLE.check("buf", displ, count, 32).is_err(),
                "{displ} {count}"
            );
        }
        // A Datatype that reaches below its address, and one with gaps at the end.
        let below = Reach {
            extent: 8,
            low: -8,
            high: 8,
        };
        assert!(below.check("buf", 0, 1, 32).is_err());
        assert!(below.check("buf", 1, 3, 32).is_ok());
        let gap = Reach {
            extent: 16,
            low: 0,
            high: 8,
        };
        assert!(gap.check("buf", 0, 2, 24).is_ok());
    }
}
