//! CUDA memory by `__cuda_array_interface__`, for what has no DLPack (Numba).

use dlpack_core::Device;
use pyo3::prelude::*;

use crate::errors::{ExportError, ExportResult};
use crate::interface::Interface;
use crate::loan::Loan;
use crate::order::StreamOrder;

/// The attribute.
pub const ATTRIBUTE: &str = "__cuda_array_interface__";
/// From this version on the producer names the stream that is to be waited for, or says that there is none.
const NAMES_STREAMS: i64 = 3;
/// The legacy and the calling thread's own: which of them a producer's default stream is was decided when it was built.
const DEFAULT_STREAMS: [u64; 2] = [1, 2];

/// Lends `obj`. The interface names no device: the driver knows whose address it is. `unnamed` says that this producer
/// names no stream where it works on its default stream.
///
/// # Errors
/// What cannot be read or used.
pub fn export(
    obj: &Bound<'_, PyAny>,
    unnamed: bool,
    order: &mut StreamOrder,
) -> ExportResult<Loan> {
    let interface = Interface::read(obj, ATTRIBUTE, None)?;
    let device = owner(&interface)?;
    let streams: &[u64] = match &interface.stream {
        Some(0) => {
            return Err(ExportError::Buffer(format!(
                "its `{ATTRIBUTE}` names stream 0, which the protocol forbids; 1 is the default stream"
            )));
        }
        Some(stream) => std::slice::from_ref(stream),
        None if unnamed || interface.version < NAMES_STREAMS => &DEFAULT_STREAMS,
        None => &[],
    };
    for &stream in streams {
        order.refuse_capture(stream, device.id)?;
        order.wait_for(stream, device.id);
    }
    // SAFETY:
    // - The protocol: the address is memory of this shape on its device, which lives as long as `obj`,
    //   which the loan holds.
    let view = unsafe { interface.view(device) }?;
    Ok(Loan::of_object(
        view,
        "cuda array interface",
        obj.clone().unbind(),
    ))
}

/// Whose memory it is. Without elements there is no memory to ask about.
fn owner(interface: &Interface) -> ExportResult<Device> {
    if interface.address() == 0 {
        return Ok(Device::cuda(0));
    }
    let refused = |e: device::DeviceError| ExportError::Buffer(e.to_string());
    let cuda = device::cuda().map_err(refused)?;
    let owner = cuda
        .pointer_attributes(interface.address() as u64)
        .map_err(refused)?;
    owner.ok_or_else(|| {
        ExportError::Buffer(format!(
            "its `{ATTRIBUTE}` names {:#x}, which the CUDA driver does not know",
            interface.address()
        ))
    })
}
