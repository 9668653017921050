//! Bounds of raw memory under a Datatype of the caller's: what an explicit count or displacement reaches
//! must lie in the tensor. mpi4py trusts them. Knows no tensor, only lengths.

use mpi_runtime::{Datatype, Mpi};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors;
use crate::mpi4py::Mpi4py;

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

/// Checks a message with one Datatype per peer, whose displacements are bytes:
/// `[buffer, counts, displacements, Datatypes]`. What is no such message is left to mpi4py to refuse.
///
/// # Errors
/// `ValueError` naming the argument and the peer; what MPI reports about a Datatype.
pub fn check_each(mpi4py: &Mpi4py, name: &str, msg: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(items) = msg.extract::<Vec<Bound<'_, PyAny>>>() else {
        return Ok(());
    };
    let (buffer, counts, displs, types) = match &items[..] {
        [buffer, types] => (buffer, Vec::new(), Vec::new(), types),
        [buffer, both, types] => match both.extract::<(Vec<i64>, Vec<i64>)>() {
            Ok((counts, displs)) => (buffer, counts, displs, types),
            Err(_) => return Ok(()),
        },
        [buffer, counts, displs, types] => match (counts.extract(), displs.extract()) {
            (Ok(counts), Ok(displs)) => (buffer, counts, displs, types),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    if mpi4py.is_bottom(buffer) {
        return Ok(());
    }
    let (Ok(length), Ok(types)) = (length(buffer), types.try_iter()) else {
        return Ok(());
    };
    for (peer, datatype) in types.enumerate() {
        let (count, displ) = match (counts.get(peer), displs.get(peer)) {
            (Some(&count), Some(&displ)) => (count, displ),
            _ if counts.is_empty() && displs.is_empty() => (1, 0),
            _ => return Ok(()),
        };
        let Ok(handle) = mpi4py.datatype(&datatype?) else {
            return Ok(());
        };
        if count != 0 && handle != mpi4py.mpi().datatype_null() {
            let reach = Reach::of(msg.py(), mpi4py.mpi(), handle)?;
            reach.check_at(
                &format!("{name}: block of rank {peer}"),
                displ,
                count,
                length,
            )?;
        }
    }
    Ok(())
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
        let start = i128::from(displ) * i128::from(self.extent);
        self.within(name, (start, "element", displ), count, length)
    }

    /// Where element `displ` from `start` on is.
    pub fn address(self, start: usize, displ: i64) -> usize {
        start.wrapping_add_signed(displ.wrapping_mul(self.extent) as isize)
    }

    /// How many elements `length` bytes are, as mpi4py counts them; they must lie inside.
    ///
    /// # Errors
    /// `ValueError` naming the argument: a Datatype without an extent, or that reaches out.
    pub fn check_all(self, name: &str, length: usize) -> PyResult<i64> {
        let count = i64::try_from(length).unwrap_or(i64::MAX);
        let count = count.checked_div(self.extent).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{name}: the Datatype has an extent of 0 bytes, so how many elements there are cannot be told"
            ))
        })?;
        self.check(name, 0, count, length).map(|()| count)
    }

    /// Checks `count` elements from byte `displ` on against `length` bytes.
    ///
    /// # Errors
    /// As for [`Reach::check`].
    pub fn check_at(self, name: &str, displ: i64, count: i64, length: usize) -> PyResult<()> {
        self.within(name, (i128::from(displ), "byte", displ), count, length)
    }

    fn within(
        self,
        name: &str,
        (start, unit, displ): (i128, &str, i64),
        count: i64,
        length: usize,
    ) -> PyResult<()> {
        if count < 0 {
            return Err(PyValueError::new_err(format!(
                "{name}: message: negative count {count}"
            )));
        }
        if count == 0 {
            return Ok(());
        }
        let extent = i128::from(self.extent);
        let last = start + (i128::from(count) - 1) * extent;
        let low = start.min(last) + i128::from(self.low);
        let high = start.max(last) + i128::from(self.high);
        if low >= 0 && high <= length as i128 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{name}: {count} elements from {unit} {displ} on of a Datatype with an extent of {extent} bytes reach from byte {low} to {high}, but there are {length} bytes"
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
