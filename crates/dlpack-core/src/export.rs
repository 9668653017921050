//! The other direction: memory of ours in the form that every DLPack consumer takes.

use core::ffi::c_void;
use core::ptr;

use crate::abi::{
    DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor, FLAG_READ_ONLY, MAJOR,
    MINOR,
};
use crate::{DoorError, Foreign, View};

/// What the managed tensor points into, and what keeps the memory behind it. Dropped by the deleter.
struct Held<O> {
    managed: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    #[expect(dead_code, reason = "it is held, never used")]
    owner: O,
}

/// A managed tensor for `view`, which keeps `owner` until a consumer releases it.
///
/// # Errors
/// - [`DoorError::DType`] for dlmpi's own types, which no consumer knows.
/// - [`DoorError::DType`] for packed types and strides that are no whole number of elements.
///
/// # Safety
/// - The memory that `view` describes is valid as long as `owner` lives, wherever it is moved to; if the view is
///   not read-only, consumers may write it.
pub unsafe fn export<O: Send + 'static>(view: &View, owner: O) -> Result<Foreign, DoorError> {
    let dtype = view.dtype();
    let refuse = |why| DoorError::DType { dtype, why };
    if dtype.is_own() {
        return Err(refuse("no consumer of DLPack knows it"));
    }
    if view.packed_numel().is_some() {
        return Err(refuse("elements of less than a byte are not exported"));
    }
    let layout = view.layout();
    let item = layout.itemsize() as i64;
    if layout.strides().iter().any(|stride| stride % item != 0) {
        return Err(refuse(
            "its strides are no whole numbers of elements, which DLPack cannot say",
        ));
    }
    let held = Box::into_raw(Box::new(Held {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion {
                major: MAJOR,
                minor: MINOR,
            },
            manager_ctx: ptr::null_mut(),
            deleter: Some(release::<O>),
            flags: if view.readonly() { FLAG_READ_ONLY } else { 0 },
            dl_tensor: DLTensor {
                data: view.data().cast(),
                device: DLDevice {
                    device_type: view.device().kind.0,
                    device_id: view.device().id,
                },
                ndim: layout.shape().len() as i32,
                dtype: DLDataType {
                    code: dtype.code.0,
                    bits: dtype.bits,
                    lanes: dtype.lanes,
                },
                shape: ptr::null_mut(),
                strides: ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape: layout.shape().into(),
        strides: layout.strides().iter().map(|s| s / item).collect(),
        owner,
    }));
    // SAFETY:
    // - `held` was just made and nobody else knows of it; its arrays stay where they are until it is dropped.
    let managed = unsafe {
        let Held {
            managed,
            shape,
            strides,
            ..
        } = &mut *held;
        managed.manager_ctx = held.cast();
        managed.dl_tensor.shape = shape.as_mut_ptr();
        managed.dl_tensor.strides = strides.as_mut_ptr();
        managed as *mut DLManagedTensorVersioned
    };
    // SAFETY:
    // - `managed` is live, of our version, and released by nobody else.
    // - The owner is `Send`, so the deleter may run on any thread.
    Ok(unsafe { Foreign::from_versioned(managed.cast::<c_void>()) })
}

unsafe extern "C" fn release<O>(managed: *mut DLManagedTensorVersioned) {
    // SAFETY:
    // - `manager_ctx` is the box of `export`, taken back once: a consumer calls the deleter once.
    drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Held<O>>()) });
}
