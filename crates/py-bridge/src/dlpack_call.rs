//! Asks an object for a DLPack capsule in the form that its type accepts. Knows no framework.
//!
//! `TypeError` is no proof of an old signature, so forms are tried one keyword fewer at a time, what
//! worked is remembered per type, `stream` is never dropped on a device that has streams, and the
//! first exception is the one that people see.

use std::sync::atomic::{AtomicU8, Ordering};

use dlpack_core::{Device, DeviceKind};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{ExportError, ExportResult};
use crate::framework::Intent;
use crate::loan::Loan;
use crate::order::StreamOrder;

/// The newest version that we read.
const MAX_VERSION: (u32, u32) = (dlpack_core::abi::MAJOR, dlpack_core::abi::MINOR);

/// Call forms, newest first; each drops one keyword of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Form {
    /// `max_version=…, copy=False`
    NoCopy = 1,
    /// `max_version=…`
    Versioned = 2,
    /// neither: signatures of the time before DLPack 1.0
    Plain = 3,
}

/// The forms to try for an intent. A send does not mind a copy, a receive does.
fn ladder(intent: Intent) -> &'static [Form] {
    match intent {
        Intent::Send => &[Form::Versioned, Form::Plain],
        Intent::Receive => &[Form::NoCopy, Form::Versioned, Form::Plain],
    }
}

/// What is known about one type: the form that worked, per intent.
#[derive(Default)]
pub struct CallForms {
    /// On any device: the producer itself waits for its work.
    takes_no_stream: bool,
    send: AtomicU8,
    receive: AtomicU8,
}

impl CallForms {
    /// Those of a type whose exporter waits for its own work and refuses a stream.
    pub fn without_stream() -> CallForms {
        CallForms {
            takes_no_stream: true,
            ..CallForms::default()
        }
    }

    fn cell(&self, intent: Intent) -> &AtomicU8 {
        match intent {
            Intent::Send => &self.send,
            Intent::Receive => &self.receive,
        }
    }
}

/// Lends `obj` through `__dlpack_device__` and `__dlpack__`.
///
/// # Errors
/// [`ExportError`]: what the producer raised, or why its answer cannot be used.
pub fn export(
    obj: &Bound<'_, PyAny>,
    forms: &CallForms,
    intent: Intent,
    order: &mut StreamOrder,
) -> ExportResult<Loan> {
    let claimed = device(obj)?;
    let stream = match claimed.kind {
        _ if forms.takes_no_stream => None,
        DeviceKind::CUDA | DeviceKind::CUDA_MANAGED => Some(order.stream(claimed.id)?),
        // Producers of host memory, pinned memory included, accept no stream at all; on other devices only the
        // framework itself waits and copies (`elsewhere.rs`).
        _ => None,
    };
    let capsule = match stream {
        Some(_) => order.on_device(claimed.id, || request(obj, forms, intent, stream))??,
        None => request(obj, forms, intent, None)?,
    };
    let (foreign, view) = crate::capsule::take(&capsule)?;
    let device = merge(claimed, view.device())?;
    let loan = Loan::of_foreign(foreign, view.with_device(device));
    // The capsule too: some producers free the structure with it instead of in the deleter.
    Ok(loan.holding(obj.clone().unbind()).holding(capsule.unbind()))
}

/// `__dlpack_device__()`, read leniently: some producers give `None` as the index of the CPU.
///
/// # Errors
/// [`ExportError::Raised`]: what the producer raised, or an answer of another kind.
pub fn device(obj: &Bound<'_, PyAny>) -> ExportResult<Device> {
    let py = obj.py();
    let read = || -> PyResult<Device> {
        let pair = obj.call_method0(intern!(py, "__dlpack_device__"))?;
        let kind: i32 = pair.get_item(0)?.extract()?;
        let id = pair.get_item(1)?;
        let id = if id.is_none() { 0 } else { id.extract()? };
        Ok(Device::new(DeviceKind(kind), id))
    };
    read().map_err(|e| ExportError::raised(py, "it does not tell its device", e))
}

/// The capsule and `__dlpack_device__` may lawfully differ: kinds of host memory are one class, of which
/// the more special one says more (pinned memory may still be written by kernels).
fn merge(claimed: Device, found: Device) -> ExportResult<Device> {
    if claimed == found {
        return Ok(found);
    }
    if claimed.is_host_addressable() && found.is_host_addressable() {
        let special = if found.kind == DeviceKind::CPU {
            claimed
        } else {
            found
        };
        return Ok(special);
    }
    if claimed.kind == found.kind {
        return Ok(found);
    }
    Err(ExportError::Buffer(format!(
        "`__dlpack_device__` says {claimed} but its capsule says {found}; its producer is broken"
    )))
}

/// Calls `__dlpack__` in the form that this type accepts.
fn request<'py>(
    obj: &Bound<'py, PyAny>,
    forms: &CallForms,
    intent: Intent,
    stream: Option<u64>,
) -> ExportResult<Bound<'py, PyAny>> {
    let py = obj.py();
    let raised = |e| ExportError::raised(py, "its `__dlpack__` failed", e);
    let cell = forms.cell(intent);
    let learned = cell.load(Ordering::Relaxed);
    let mut first: Option<PyErr> = None;
    for &form in ladder(intent) {
        if learned != 0 && form as u8 != learned {
            continue;
        }
        match call(obj, form, stream) {
            Ok(capsule) => {
                cell.store(form as u8, Ordering::Relaxed);
                return Ok(capsule);
            }
            // A type that answered this form before does not have an older signature now.
            Err(error) if learned == 0 && error.is_instance_of::<PyTypeError>(py) => {
                first.get_or_insert(error);
            }
            Err(error) => {
                if error.cause(py).is_none() {
                    error.set_cause(py, first);
                }
                return Err(raised(error));
            }
        }
    }
    Err(raised(first.unwrap_or_else(|| {
        PyTypeError::new_err("no call form was accepted")
    })))
}

fn call<'py>(
    obj: &Bound<'py, PyAny>,
    form: Form,
    stream: Option<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = obj.py();
    let method = obj.getattr(intern!(py, "__dlpack__"))?;
    if form == Form::Plain && stream.is_none() {
        return method.call0();
    }
    let keywords = PyDict::new(py);
    if let Some(stream) = stream {
        keywords.set_item(intern!(py, "stream"), stream)?;
    }
    if form != Form::Plain {
        // A tuple: lists are refused by several producers.
        keywords.set_item(
            intern!(py, "max_version"),
            PyTuple::new(py, [MAX_VERSION.0, MAX_VERSION.1])?,
        )?;
    }
    if form == Form::NoCopy {
        keywords.set_item(intern!(py, "copy"), false)?;
    }
    method.call((), Some(&keywords))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Device = Device::CPU;
    const PINNED: Device = Device::new(DeviceKind::CUDA_HOST, 0);

    #[test]
    fn host_kinds_are_one_class_and_the_special_one_stays() {
        assert_eq!(merge(PINNED, CPU).ok(), Some(PINNED));
        assert_eq!(merge(CPU, PINNED).ok(), Some(PINNED));
        assert_eq!(
            merge(CPU, Device::new(DeviceKind::CPU, 3))
                .ok()
                .map(|d| d.kind),
            Some(DeviceKind::CPU)
        );
    }

    #[test]
    fn host_and_device_memory_are_not_merged() {
        assert!(merge(CPU, Device::cuda(0)).is_err());
        assert!(merge(Device::cuda(0), CPU).is_err());
        assert_eq!(
            merge(Device::cuda(1), Device::cuda(0)).ok(),
            Some(Device::cuda(0))
        );
    }

    #[test]
    fn a_receive_asks_for_no_copy_first_and_both_end_plain() {
        assert_eq!(ladder(Intent::Receive).first(), Some(&Form::NoCopy));
        assert!(!ladder(Intent::Send).contains(&Form::NoCopy));
        for intent in [Intent::Send, Intent::Receive] {
            assert_eq!(ladder(intent).last(), Some(&Form::Plain));
        }
    }
}
