//! A managed tensor that a producer handed over: owned, released exactly once, trusted with nothing else.
//!
//! Knows neither capsules nor the interpreter that a producer's deleter may need: whoever drops a
//! [`Foreign`] made by Python code does so attached, or leaks it when the interpreter is gone.

use core::ffi::c_void;
use core::ptr;

use crate::abi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor, MAJOR};
use crate::door;
use crate::{DoorError, View};

/// Which of the two structures the pointer leads to. The capsule's name says so, nothing else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Versioned(*mut DLManagedTensorVersioned),
    Legacy(*mut DLManagedTensor),
}

/// Owner of a producer's managed tensor. Its deleter runs once, in `Drop`.
#[derive(Debug)]
pub struct Foreign {
    form: Form,
}

// SAFETY:
// - DLPack lets the deleter be called from any thread; the structure is otherwise only read.
unsafe impl Send for Foreign {}
// SAFETY:
// - Shared access only reads fields that a producer may not change after the hand-over.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Takes over the structure of a capsule named `dltensor_versioned`.
    ///
    /// # Safety
    /// - `ptr` is NULL or leads to a live `DLManagedTensorVersioned`, of any version, that nobody else
    ///   will release. When its major version is ours, its `shape` and `strides`, where not NULL, are
    ///   readable for `ndim` values while this object lives.
    /// - Its deleter, if any, may be called on the thread that drops this object.
    #[inline]
    pub unsafe fn from_versioned(ptr: *mut c_void) -> Foreign {
        Foreign {
            form: Form::Versioned(ptr.cast()),
        }
    }

    /// Takes over the structure of a capsule named `dltensor`.
    ///
    /// # Safety
    /// - As for [`Foreign::from_versioned`], with a `DLManagedTensor`.
    #[inline]
    pub unsafe fn from_legacy(ptr: *mut c_void) -> Foreign {
        Foreign {
            form: Form::Legacy(ptr.cast()),
        }
    }

    /// The tensor, checked. It stays valid as long as this object does.
    #[inline]
    pub fn view(&self) -> Result<View, DoorError> {
        let (tensor, flags) = self.tensor()?;
        // SAFETY:
        // - `tensor` points into the live structure, and its arrays are readable, by the contract of `from_*`.
        // - The data behind it belongs to the producer, who keeps it until the deleter runs.
        unsafe { door::check(tensor, flags) }
    }

    /// Where the `DLTensor` is, once it is certain that one is there.
    #[inline]
    fn tensor(&self) -> Result<(*const DLTensor, u64), DoorError> {
        match self.form {
            Form::Versioned(ptr) if !ptr.is_null() => {
                // SAFETY:
                // - `ptr` is live by the contract of `from_versioned`; `version` is where it is in every version.
                let version = unsafe { (*ptr).version };
                if version.major != MAJOR {
                    return Err(DoorError::Version {
                        major: version.major,
                        minor: version.minor,
                    });
                }
                // SAFETY:
                // - `ptr` is live, and of our major version, so the fields are where ours are.
                unsafe { Ok((ptr::addr_of!((*ptr).dl_tensor), (*ptr).flags)) }
            }
            Form::Legacy(ptr) if !ptr.is_null() => {
                // SAFETY:
                // - `ptr` is live by the contract of `from_legacy`; only an address is taken.
                unsafe { Ok((ptr::addr_of!((*ptr).dl_tensor), 0)) }
            }
            _ => Err(DoorError::NullTensor),
        }
    }

    /// Hands the structure to a consumer, who calls its deleter; a legacy one comes back, since its consumers are others.
    ///
    /// # Errors
    /// - The object itself, when it holds no `DLManagedTensorVersioned`.
    pub fn into_versioned(self) -> Result<*mut DLManagedTensorVersioned, Foreign> {
        match self.form {
            Form::Versioned(ptr) => {
                core::mem::forget(self);
                Ok(ptr)
            }
            Form::Legacy(_) => Err(self),
        }
    }

    /// Gives the memory up without releasing it: for an interpreter that is shutting down.
    #[inline]
    pub fn into_leaked(self) {
        core::mem::forget(self);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        match self.form {
            Form::Versioned(ptr) if !ptr.is_null() => {
                // SAFETY:
                // - `ptr` is live and ours; `deleter` is where it is in every major version.
                if let Some(deleter) = unsafe { (*ptr).deleter } {
                    // SAFETY:
                    // - We own the structure and never use it again: this is the one call.
                    unsafe { deleter(ptr) }
                }
            }
            Form::Legacy(ptr) if !ptr.is_null() => {
                // SAFETY:
                // - `ptr` is live and ours.
                if let Some(deleter) = unsafe { (*ptr).deleter } {
                    // SAFETY:
                    // - We own the structure and never use it again: this is the one call.
                    unsafe { deleter(ptr) }
                }
            }
            _ => {}
        }
    }
}
