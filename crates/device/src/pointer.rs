//! What the driver knows about an address. Knows nothing of who made it.

use core::ffi::c_void;

use dlpack_core::{Device, DeviceKind};

use crate::symbols::{
    ATTRIBUTE_DEVICE_ORDINAL, ATTRIBUTE_IS_LEGACY_IPC_CAPABLE, ATTRIBUTE_IS_MANAGED,
    ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE_MEMPOOL_HANDLE, ERROR_INVALID_VALUE, MEMORY_DEVICE,
    MEMORY_HOST, Status,
};
use crate::{Cuda, DeviceError};

/// The call, in messages.
const ASKED: &str = "cuPointerGetAttributes";

impl Cuda {
    /// Where `ptr` points to; `None` where the driver never heard of it, as of plain host memory.
    pub fn pointer_attributes(&self, ptr: u64) -> Result<Option<Device>, DeviceError> {
        let names = [
            ATTRIBUTE_MEMORY_TYPE,
            ATTRIBUTE_IS_MANAGED,
            ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let (code, values) = self.attributes(names, ptr);
        self.check(ASKED, code)?;
        let [memory, managed, ordinal] = values;
        let id = ordinal as u32 as i32;
        Ok(match (memory, managed != 0) {
            (MEMORY_HOST | MEMORY_DEVICE, true) => Some(Device::new(DeviceKind::CUDA_MANAGED, id)),
            (MEMORY_DEVICE, false) => Some(Device::cuda(id)),
            (MEMORY_HOST, false) => Some(Device::new(DeviceKind::CUDA_HOST, id)),
            _ => None,
        })
    }

    /// Whether other processes of this node can open the allocation that `ptr` lies in, as CUDA's IPC does it: memory
    /// of stream-ordered pools and virtual memory they cannot. `false` where this driver cannot tell.
    pub fn is_exportable(&self, ptr: u64) -> Result<bool, DeviceError> {
        let names = [ATTRIBUTE_IS_LEGACY_IPC_CAPABLE, ATTRIBUTE_MEMPOOL_HANDLE];
        match self.attributes(names, ptr) {
            (ERROR_INVALID_VALUE, _) => Ok(false),
            (code, [legacy, pool]) => {
                self.check(ASKED, code)?;
                Ok(legacy != 0 && pool == 0)
            }
        }
    }

    /// The attributes of an address, each in a place that is wider than any of them, and zero before.
    fn attributes<const N: usize>(&self, mut names: [u32; N], ptr: u64) -> (Status, [u64; N]) {
        let mut values = [0u64; N];
        let mut slots: [*mut c_void; N] = values.each_mut().map(|value| (&raw mut *value).cast());
        // SAFETY:
        // - As many names as slots, each wide enough for any answer; any address may be asked about.
        let code = unsafe {
            (self.table.pointer_get_attributes)(
                N as u32,
                names.as_mut_ptr(),
                slots.as_mut_ptr(),
                ptr,
            )
        };
        (code, values)
    }
}
