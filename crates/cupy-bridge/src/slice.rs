//! Slices of cudarc as checked views of device memory.
//!
//! cudarc knows of each slice which streams wrote and read it. A slice is lent on its own stream, behind all of them, and
//! the host waits for that stream; what operations do is done when they return, so work that is queued later sees
//! it on any stream. **Never run on a GPU**: tested with a driver that only acts like one.

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DriverError};
use dlpack_core::{Device, DoorError, Element, View};

/// Why a slice is not lent.
#[derive(Debug)]
pub enum Refused {
    /// It does not pass the door.
    Door(DoorError),
    /// The driver reports an error.
    Driver(DriverError),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Door(error) => error.fmt(f),
            Refused::Driver(error) => write!(f, "the CUDA driver reports: {error:?}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<DoorError> for Refused {
    fn from(error: DoorError) -> Refused {
        Refused::Door(error)
    }
}

impl From<DriverError> for Refused {
    fn from(error: DriverError) -> Refused {
        Refused::Driver(error)
    }
}

/// A slice to read from.
///
/// # Errors
/// - [`Refused`]: the driver reports an error of this or of earlier work.
pub fn lend<T: Element, S: DevicePtr<T>>(slice: &S) -> Result<View, Refused> {
    let stream = slice.stream();
    // The mark says that what is queued by now reads the slice: nothing, since the host does it later, while the slice
    // is borrowed.
    let address = slice.device_ptr(stream).0;
    describe::<T>(address, slice.len(), stream, true)
}

/// A slice to write to.
///
/// # Errors
/// - As for [`lend`].
pub fn lend_mut<T: Element, S: DevicePtrMut<T>>(slice: &mut S) -> Result<View, Refused> {
    let (stream, n) = (slice.stream().clone(), slice.len());
    let address = slice.device_ptr_mut(&stream).0;
    describe::<T>(address, n, &stream, false)
}

fn describe<T: Element>(
    address: u64,
    n: usize,
    stream: &CudaStream,
    readonly: bool,
) -> Result<View, Refused> {
    stream.synchronize()?;
    let data = std::ptr::with_exposed_provenance_mut(address as usize);
    let device = Device::cuda(stream.context().ordinal() as i32);
    // SAFETY:
    // - cudarc keeps `n` elements at this address while the slice is borrowed; who acts on the view answers for that.
    let view = unsafe { View::from_parts(data, &[n as i64], None, T::DTYPE, device, readonly) };
    Ok(view?)
}
