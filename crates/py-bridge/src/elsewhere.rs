//! Tensors on devices without a driver of ours (AMD's, Intel's, Apple's GPUs): their framework itself waits for its work
//! and copies them to the host and back, as `dlmpi._elsewhere` asks it to. For operations that read a tensor when they
//! begin and write it when they end; what lends memory for longer refuses such tensors.

use dlpack_core::{DeviceKind, View};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{ExportError, ExportResult};
use crate::framework::Intent;
use crate::loan::Loan;
use crate::order::StreamOrder;
use crate::registry;

/// Whether memory is neither the host's nor one that a driver of ours copies.
pub(crate) fn is(view: &View) -> bool {
    let device = view.device();
    !device.is_host_addressable() && device.kind != DeviceKind::CUDA && view.numel() > 0
}

/// A copy on the host in the place of `obj`; what is written to it goes back.
///
/// # Errors
/// What the framework raised, or that it has no way to the host or back.
#[cold]
pub(crate) fn bring(
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> ExportResult<Loan> {
    let py = obj.py();
    let raised = |error| ExportError::raised(py, "its framework does not copy it", error);
    let writable = intent == Intent::Receive;
    let host = py
        .import(intern!(py, "dlmpi._elsewhere"))?
        .call_method1(intern!(py, "to_host"), (obj, writable))
        .map_err(raised)?;
    let loan = registry::exporter(&host)?.export(&host, intent, order)?;
    if !loan.view().device().is_host_addressable() {
        let found = loan.view().device();
        return Err(ExportError::Buffer(format!(
            "its framework's copy of it on the host is on {found}"
        )));
    }
    Ok(match intent {
        Intent::Send => loan,
        Intent::Receive => {
            let pair = PyTuple::new(py, [obj, &host])?;
            loan.on_write(bring_back, pair.into_any().unbind())
        }
    })
}

/// Copies what was received from the second of each pair to the first.
fn bring_back(pairs: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = pairs.py();
    let elsewhere = py.import(intern!(py, "dlmpi._elsewhere"))?;
    let bring = |pair: Bound<'_, PyAny>| {
        let name = intern!(py, "from_host");
        elsewhere
            .call_method1(name, (pair.get_item(0)?, pair.get_item(1)?))
            .map(drop)
    };
    pairs.iter().map(bring).fold(Ok(()), PyResult::and)
}
