//! What the driver knows about an address. Knows nothing of who made it.

use core::ffi::c_void;

use dlpack_core::{Device, DeviceKind};

use crate::symbols::{
    ATTRIBUTE_DEVICE_ORDINAL, ATTRIBUTE_IS_MANAGED, ATTRIBUTE_MEMORY_TYPE, MEMORY_DEVICE,
    MEMORY_HOST,
};
use crate::{Cuda, DeviceError};

impl Cuda {
    /// Where `ptr` points to; `None` where the driver never heard of it, as of plain host memory.
    pub fn pointer_attributes(&self, ptr: u64) -> Result<Option<Device>, DeviceError> {
        let mut names = [
            ATTRIBUTE_MEMORY_TYPE,
            ATTRIBUTE_IS_MANAGED,
            ATTRIBUTE_DEVICE_ORDINAL,
        ];
        // Wider than any of the answers, and zero before.
        let mut values = [0u64; 3];
        let [memory, managed, ordinal] = &mut values;
        let mut slots: [*mut c_void; 3] = [
            (&raw mut *memory).cast(),
            (&raw mut *managed).cast(),
            (&raw mut *ordinal).cast(),
        ];
        // SAFETY:
        // - Three names and three slots, each wide enough for any answer; any address may be asked about.
        let code = unsafe {
            (self.table.pointer_get_attributes)(3, names.as_mut_ptr(), slots.as_mut_ptr(), ptr)
        };
        self.check("cuPointerGetAttributes", code)?;
        let [memory, managed, ordinal] = values;
        let id = ordinal as u32 as i32;
        Ok(match (memory, managed != 0) {
            (MEMORY_HOST | MEMORY_DEVICE, true) => Some(Device::new(DeviceKind::CUDA_MANAGED, id)),
            (MEMORY_DEVICE, false) => Some(Device::cuda(id)),
            (MEMORY_HOST, false) => Some(Device::new(DeviceKind::CUDA_HOST, id)),
            _ => None,
        })
    }
}
