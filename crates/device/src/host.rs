//! What is built without the feature `cuda`: host memory only. Twin of `library.rs`, so that no caller needs a `cfg`.

use crate::DeviceError;
use crate::symbols::Table;

/// Never finds a driver.
pub(crate) fn load() -> Result<Table, DeviceError> {
    Err(DeviceError::NoDriver {
        why: "this build of dlmpi has no CUDA support (feature `cuda`)",
    })
}
