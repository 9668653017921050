//! The [`Framework`] of CuPy.

use std::sync::Arc;

use dlpack_core::DeviceKind;
use py_bridge::dlpack_call::{self, CallForms};
use py_bridge::framework::derives_from;
use py_bridge::{ExportError, ExportResult, Exporter, Framework, Intent, Loan, StreamOrder};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// CuPy.
pub struct CuPy;

impl Framework for CuPy {
    fn name(&self) -> &'static str {
        "cupy"
    }

    fn claim(&self, ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>> {
        match derives_from(ty, "cupy", "ndarray")? {
            true => Ok(Some(Arc::new(Array {
                forms: CallForms::default(),
            }))),
            false => Ok(None),
        }
    }
}

/// Lends arrays of one type.
struct Array {
    forms: CallForms,
}

impl Exporter for Array {
    fn framework(&self) -> &'static str {
        "cupy"
    }

    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        // Never the buffer protocol, which arrays of managed memory also have: it ignores what it is asked.
        let device = dlpack_call::device(obj)?;
        if matches!(device.kind, DeviceKind::CUDA | DeviceKind::CUDA_MANAGED)
            && let Some(stream) = order.on_device(device.id, || current_stream(obj))??
        {
            order.refuse_capture(stream, device.id)?;
        }
        dlpack_call::export(obj, &self.forms, intent, order)
    }
}

/// CuPy's current stream on this thread and the current device, where this CuPy can tell.
fn current_stream(obj: &Bound<'_, PyAny>) -> ExportResult<Option<u64>> {
    let py = obj.py();
    let ask = || -> PyResult<Option<u64>> {
        let cuda = py.import("cupy")?.getattr("cuda")?;
        match cuda.getattr_opt("get_current_stream")? {
            Some(ask) => ask.call0()?.getattr("ptr")?.extract().map(Some),
            None => Ok(None),
        }
    };
    ask().map_err(|error| ExportError::raised(py, "CuPy has no current stream", error))
}
