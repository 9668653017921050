//! What can go wrong outside host memory, in words. Knows no Python exception.

use dlpack_core::Device;

/// Why memory of a device could not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No driver on this machine, which is no fault of anybody's.
    #[error("no CUDA driver: {why}")]
    NoDriver {
        /// Where it was looked for.
        why: &'static str,
    },
    /// A driver too old for what is used here.
    #[error("the CUDA driver has no function {name}; dlmpi needs a driver for CUDA 11.4 or newer")]
    MissingSymbol {
        /// The function.
        name: &'static str,
    },
    /// A device that is not there, or not visible to this process.
    #[error(
        "there is no CUDA device {id}: this process sees {count} (CUDA_VISIBLE_DEVICES decides which)"
    )]
    NoSuchDevice {
        /// Asked for.
        id: i32,
        /// How many there are.
        count: i32,
    },
    /// Waiting is forbidden while a graph is captured, and would spoil the capture.
    #[error(
        "a CUDA graph is being captured, in which the host cannot wait ({call}); move the MPI call out of the capture"
    )]
    Capturing {
        /// The driver call that was refused or was not made.
        call: &'static str,
    },
    /// What the driver answered.
    #[error("{call} failed: {name} ({code}), {text}")]
    Driver {
        /// The driver call.
        call: &'static str,
        /// The driver's number.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The driver's description.
        text: String,
    },
    /// A kind of device that nothing here can reach.
    #[error(
        "memory on {device} is out of reach: dlmpi knows host memory and CUDA; copy the tensor to the CPU first"
    )]
    Unsupported {
        /// Where the tensor is.
        device: Device,
    },
}
