//! The [`Framework`] of NumPy.

use std::sync::Arc;

use dlpack_core::DType;
use py_bridge::framework::derives_from;
use py_bridge::{
    ExportError, ExportResult, Exporter, Framework, Intent, Loan, StreamOrder, array_interface,
    buffer, typestr,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// NumPy.
pub struct NumPy;

/// The classes whose memory NumPy shows; scalars are read-only.
const CLASSES: [&str; 2] = ["ndarray", "generic"];

impl Framework for NumPy {
    fn name(&self) -> &'static str {
        "numpy"
    }

    fn claim(&self, ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>> {
        for class in CLASSES {
            if derives_from(ty, "numpy", class)? {
                return Ok(Some(Arc::new(Array)));
            }
        }
        Ok(None)
    }
}

/// Lends arrays. Nothing differs from type to type.
struct Array;

impl Exporter for Array {
    fn framework(&self) -> &'static str {
        "numpy"
    }

    #[inline]
    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        _order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        match buffer::export(obj, intent) {
            Ok((buffer, view)) => Ok(Loan::of_buffer(buffer, view)),
            Err(ExportError::Raised(_, refusal)) => by_interface(obj, refusal),
            Err(error) => Err(error),
        }
    }
}

/// Dtypes that have no buffer format, by their name or typestr; else what the buffer protocol said.
#[cold]
fn by_interface(obj: &Bound<'_, PyAny>, refusal: PyErr) -> ExportResult<Loan> {
    let py = obj.py();
    match array_interface::export(obj, named(obj)?) {
        Ok(loan) => Ok(loan),
        Err(ExportError::Raised(..)) => Err(ExportError::raised(
            py,
            "its buffer cannot be exported",
            refusal,
        )),
        Err(error) => Err(error),
    }
}

/// The dtype that only its name tells (`bfloat16`, whose typestr is `<V2`).
fn named(obj: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let py = obj.py();
    let dtype = obj.getattr(intern!(py, "dtype"))?;
    let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
    let itemsize: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    Ok(typestr::named(&name, itemsize))
}
