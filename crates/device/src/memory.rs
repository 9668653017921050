//! Waiting for and copying memory of any kind, so that callers need no case per kind. Knows which runtime
//! serves which kind, and nothing of how.

use core::ptr;

use dlpack_core::{Device, DeviceKind};

use crate::{Cuda, DeviceError, cuda};

/// Who moves memory of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mover {
    /// The host itself.
    Host,
    /// The CUDA driver.
    Cuda,
}

/// Who orders work on memory of a kind, and who moves it. A kind without a row is out of reach.
struct Row {
    kind: DeviceKind,
    /// Work may be queued on a CUDA stream: wait for ours before the memory is touched.
    cuda_stream: bool,
    mover: Mover,
}

const fn row(kind: DeviceKind, cuda_stream: bool, mover: Mover) -> Row {
    Row {
        kind,
        cuda_stream,
        mover,
    }
}

const ROWS: [Row; 5] = [
    row(DeviceKind::CPU, false, Mover::Host),
    row(DeviceKind::CUDA, true, Mover::Cuda),
    row(DeviceKind::CUDA_HOST, true, Mover::Host),
    row(DeviceKind::CUDA_MANAGED, true, Mover::Host),
    row(DeviceKind::TPU_HOST, false, Mover::Host),
];

fn find(device: Device) -> Result<&'static Row, DeviceError> {
    ROWS.iter()
        .find(|row| row.kind == device.kind)
        .ok_or(DeviceError::Unsupported { device })
}

/// The driver behind a device whose work is ordered by CUDA streams; `None` for memory that no stream touches.
pub fn driver(device: Device) -> Result<Option<&'static Cuda>, DeviceError> {
    match find(device)? {
        row if row.cuda_stream => cuda().map(Some),
        _ => Ok(None),
    }
}

/// Waits until what our stream of this device and thread waits for has happened. Nothing to do for plain host memory.
pub fn wait(device: Device) -> Result<(), DeviceError> {
    match driver(device)? {
        Some(cuda) => cuda.synchronize(device.id),
        None => Ok(()),
    }
}

/// Copies from memory of `device` to host memory, after a wait. The bytes are there when this returns.
///
/// # Safety
/// - `n` bytes at `src` are memory of `device`; `n` bytes at `dst` are writable host memory that nobody else uses.
/// - The two do not overlap.
pub unsafe fn read(
    device: Device,
    dst: *mut u8,
    src: *const u8,
    n: usize,
) -> Result<(), DeviceError> {
    match find(device)?.mover {
        Mover::Host => {
            wait(device)?;
            // SAFETY:
            // - Both ranges are host memory and apart by the caller's promise.
            unsafe { ptr::copy_nonoverlapping(src, dst, n) };
            Ok(())
        }
        // SAFETY:
        // - The caller's promise is the same.
        Mover::Cuda => unsafe { cuda()?.copy_to_host(dst, src.addr() as u64, n, device.id) },
    }
}

/// Copies from host memory to memory of `device`, after a wait. Work that starts later sees the bytes.
///
/// # Safety
/// - `n` bytes at `dst` are memory of `device` that nobody else uses; `n` bytes at `src` are readable host memory.
/// - The two do not overlap.
pub unsafe fn write(
    device: Device,
    dst: *mut u8,
    src: *const u8,
    n: usize,
) -> Result<(), DeviceError> {
    match find(device)?.mover {
        Mover::Host => {
            wait(device)?;
            // SAFETY:
            // - Both ranges are host memory and apart by the caller's promise.
            unsafe { ptr::copy_nonoverlapping(src, dst, n) };
            Ok(())
        }
        // SAFETY:
        // - The caller's promise is the same.
        Mover::Cuda => unsafe { cuda()?.copy_to_device(dst.addr() as u64, src, n, device.id) },
    }
}
