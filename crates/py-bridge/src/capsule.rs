//! Takes the tensor out of a DLPack capsule. Dispatches on the capsule's *name* alone: what was asked
//! for says nothing, since a legacy capsule is a lawful answer to `max_version`.

use std::ffi::CStr;

use dlpack_core::{Foreign, View, abi};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{ExportError, ExportResult};

/// Takes ownership of a capsule's structure.
type Own = unsafe fn(*mut std::ffi::c_void) -> Foreign;

/// The two names that carry a tensor, what they become when consumed, and how the structure is owned.
const KINDS: [(&CStr, &CStr, Own); 2] = [
    (
        abi::NAME_VERSIONED,
        abi::NAME_VERSIONED_USED,
        Foreign::from_versioned,
    ),
    (
        abi::NAME_LEGACY,
        abi::NAME_LEGACY_USED,
        Foreign::from_legacy,
    ),
];

/// Takes ownership of the capsule's tensor and checks it. From here on its deleter is ours to run,
/// also when the check fails.
///
/// # Errors
/// [`ExportError::Buffer`] when this is no unconsumed DLPack capsule, or the door refuses the tensor.
pub fn take(capsule: &Bound<'_, PyAny>) -> ExportResult<(Foreign, View)> {
    let object = capsule.as_ptr();
    for (fresh, used, own) in KINDS {
        // SAFETY:
        // - The thread is attached (a `Bound` exists); any object is allowed, and the name is a C string.
        let valid = unsafe { ffi::PyCapsule_IsValid(object, fresh.as_ptr()) } != 0;
        if !valid {
            continue;
        }
        // SAFETY:
        // - `object` is a capsule of this name, just checked.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(object, fresh.as_ptr()) };
        // SAFETY:
        // - `object` is a capsule; the new name is static.
        let renamed = unsafe { ffi::PyCapsule_SetName(object, used.as_ptr()) };
        if pointer.is_null() || renamed != 0 {
            return Err(PyErr::fetch(capsule.py()).into());
        }
        // SAFETY:
        // - By the protocol the name says which structure it is; renamed, its destructor leaves the
        //   structure to us; its deleter is run attached (`Loan` drops attached).
        let foreign = unsafe { own(pointer) };
        let view = foreign.view()?;
        return Ok((foreign, view));
    }
    let found = match capsule.cast::<pyo3::types::PyCapsule>() {
        Ok(_) => format!("a capsule named {:?}", name(capsule)),
        Err(_) => format!(
            "an object of type {}",
            crate::framework::type_name(&capsule.get_type())
        ),
    };
    Err(ExportError::Buffer(format!(
        "`__dlpack__` returned {found}, expected an unconsumed capsule named \"dltensor\" or \"dltensor_versioned\""
    )))
}

fn name(capsule: &Bound<'_, PyAny>) -> String {
    // SAFETY:
    // - The thread is attached and the object is a capsule, checked by the caller.
    let name = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY:
    // - A capsule's name is a C string that lives at least as long as the capsule.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}
