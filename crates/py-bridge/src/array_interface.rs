//! Host memory by `__array_interface__`, for what has neither a buffer slot that works nor DLPack.

use dlpack_core::{DType, Device};
use pyo3::prelude::*;

use crate::errors::ExportResult;
use crate::interface::Interface;
use crate::loan::Loan;

/// The attribute.
pub const ATTRIBUTE: &str = "__array_interface__";

/// Lends `obj`; `dtype` is what the bridge knows better than the typestr (`ml_dtypes`).
///
/// # Errors
/// What cannot be read or used.
pub fn export(obj: &Bound<'_, PyAny>, dtype: Option<DType>) -> ExportResult<Loan> {
    let interface = Interface::read(obj, ATTRIBUTE, dtype)?;
    // SAFETY:
    // - The protocol: the address is host memory of this shape, which lives as long as `obj`, which the loan holds.
    let view = unsafe { interface.view(Device::CPU) }?;
    Ok(Loan::of_object(
        view,
        "array interface",
        obj.clone().unbind(),
    ))
}
