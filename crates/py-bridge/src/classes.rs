//! Our classes of Python objects that native code makes, and where the instances of those of requests keep what is native.
//! Knows no operation.

use std::ffi::c_int;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::track::Track;

/// Our classes of Python objects that native code makes.
pub struct Classes {
    /// The request of an operation that MPI carries.
    pub transfer: Tracked,
    /// The same of a message that is received.
    pub receipt: Tracked,
    /// The request of an operation that can be started again and again.
    pub persistent: Tracked,
    /// The same where there is nothing to do each time.
    pub kept: Tracked,
    /// The request of one that begins an operation of ours each time.
    pub repeated: Py<PyAny>,
    /// The request of one whose tensors are brought into another form each time.
    pub staged: Py<PyAny>,
    /// A message that was taken out of the queue.
    pub message: Py<PyAny>,
}

/// A class of requests with a slot `_track`.
pub struct Tracked {
    class: Py<PyType>,
    /// Where the slot lies in every instance, in pointers.
    at: usize,
    new: ffi::newfunc,
    nothing: Py<PyTuple>,
}

impl Tracked {
    /// Looks for the slot in an instance.
    ///
    /// # Errors
    /// `TypeError` where it is not to be found; what Python raised.
    pub fn new(class: &Bound<'_, PyType>) -> PyResult<Tracked> {
        let py = class.py();
        let lost = || PyTypeError::new_err(format!("{class} has no slot for _track"));
        let bytes: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        let instance = class.call0()?;
        // SAFETY:
        // - the instance is alive, and as long as its class says.
        let word = |at: usize| unsafe {
            instance
                .as_ptr()
                .cast::<*mut ffi::PyObject>()
                .add(at)
                .read()
        };
        let name = intern!(py, "_track");
        let words = bytes / size_of::<*mut ffi::PyObject>();
        let empty: Vec<_> = (0..words).filter(|&at| word(at).is_null()).collect();
        let mark = PyTuple::new(py, [0])?;
        instance.setattr(name, &mark)?;
        let found = empty.iter().find(|&&at| word(at) == mark.as_ptr());
        let at = *found.ok_or_else(lost)?;
        instance.delattr(name)?;
        if !word(at).is_null() {
            return Err(lost());
        }
        // SAFETY:
        // - it is a type, and every type that can be called has this function.
        let new = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_new as c_int) };
        if new.is_null() {
            return Err(lost());
        }
        // SAFETY:
        // - what lies in this slot is a function of this type.
        let new = unsafe { std::mem::transmute::<*mut std::ffi::c_void, ffi::newfunc>(new) };
        Ok(Tracked {
            class: class.clone().unbind(),
            at,
            new,
            nothing: PyTuple::empty(py).unbind(),
        })
    }

    /// The class.
    pub fn class<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.class.bind(py)
    }

    /// An instance of which MPI knows nothing.
    ///
    /// # Errors
    /// What Python raised.
    #[inline]
    pub fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY:
        // - the function is that of the class, which has no initialisation of its own besides; the arguments are a tuple.
        let made = unsafe {
            (self.new)(
                self.class.as_ptr().cast(),
                self.nothing.as_ptr(),
                std::ptr::null_mut(),
            )
        };
        // SAFETY:
        // - a new reference, or NULL with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, made) }
    }

    /// Whether an object is of this class itself.
    #[inline]
    pub fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr().cast() == self.class.as_ptr()
    }

    /// What an instance keeps.
    ///
    /// # Safety
    /// - `object` is an instance of the class or of a subclass.
    #[inline]
    pub unsafe fn track<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, Track>> {
        // SAFETY:
        // - the slot lies there in every instance; what is in it is held there while this thread is attached.
        let found = unsafe {
            let slot = self.slot(object).read();
            Bound::from_borrowed_ptr_or_opt(object.py(), slot)
        }?;
        found.cast_into().ok()
    }

    /// Has an instance that keeps nothing keep this.
    ///
    /// # Safety
    /// - As for [`track`](Self::track).
    #[inline]
    pub unsafe fn keep(&self, object: &Bound<'_, PyAny>, track: Bound<'_, Track>) {
        // SAFETY:
        // - as above; the slot owns what is in it.
        unsafe {
            let slot = self.slot(object);
            debug_assert!(slot.read().is_null());
            slot.write(track.into_ptr());
        }
    }

    /// # Safety
    /// - As for [`track`](Self::track).
    #[inline]
    unsafe fn slot(&self, object: &Bound<'_, PyAny>) -> *mut *mut ffi::PyObject {
        // SAFETY:
        // - an instance is at least as long as its class says, and the slot was found within that.
        unsafe { object.as_ptr().cast::<*mut ffi::PyObject>().add(self.at) }
    }
}
