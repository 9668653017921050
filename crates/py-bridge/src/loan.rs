//! A loan: the checked description of a tensor's memory together with whatever keeps that memory
//! alive. The memory is safe to touch exactly as long as the loan lives.

use dlpack_core::{Foreign, View};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use crate::buffer::Buffer;

/// Tells a framework that the memory of these tensors was written.
pub type Wrote = fn(&Bound<'_, PyTuple>) -> PyResult<()>;

/// What keeps the memory alive besides Python objects.
enum Owner {
    None,
    Buffer(Buffer),
    Foreign(Foreign),
}

/// Borrowed memory: what it is, and what keeps it.
pub struct Loan {
    view: View,
    path: &'static str,
    held: Held,
}

/// What keeps borrowed memory alive. Released attached to the interpreter, whichever thread drops it; when
/// the interpreter is going or gone it is leaked, since a producer's deleter may not run any more.
pub struct Held {
    owner: Owner,
    objects: SmallVec<[Py<PyAny>; 2]>,
    wrote: SmallVec<[(Wrote, Py<PyAny>); 1]>,
}

impl Loan {
    /// Memory of the buffer protocol.
    #[inline]
    pub fn of_buffer(buffer: Buffer, view: View) -> Loan {
        Loan::new(view, "buffer", Owner::Buffer(buffer))
    }

    /// Memory of a consumed DLPack capsule.
    pub fn of_foreign(foreign: Foreign, view: View) -> Loan {
        Loan::new(view, "dlpack", Owner::Foreign(foreign))
    }

    /// Memory that lives as long as `holder`; `path` names the protocol that described it.
    #[inline]
    pub fn of_object(view: View, path: &'static str, holder: Py<PyAny>) -> Loan {
        Loan::new(view, path, Owner::None).holding(holder)
    }

    #[inline]
    fn new(view: View, path: &'static str, owner: Owner) -> Loan {
        let held = Held {
            owner,
            objects: SmallVec::new(),
            wrote: SmallVec::new(),
        };
        Loan { view, path, held }
    }

    /// Also keeps `object` alive.
    #[must_use]
    #[inline]
    pub fn holding(mut self, object: Py<PyAny>) -> Loan {
        self.held.objects.push(object);
        self
    }

    /// Also calls `wrote` with `object` when the memory has been written.
    #[must_use]
    #[inline]
    pub fn on_write(mut self, wrote: Wrote, object: Py<PyAny>) -> Loan {
        self.held.wrote.push((wrote, object));
        self
    }

    /// The same loan with what the bridge knows better about its memory.
    #[must_use]
    pub fn map_view(self, change: impl FnOnce(View) -> View) -> Loan {
        let view = change(self.view);
        Loan { view, ..self }
    }

    /// The memory.
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Which protocol described it.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// The memory was written: tells the framework.
    ///
    /// # Errors
    /// What the framework raised.
    pub fn wrote(&self, py: Python<'_>) -> PyResult<()> {
        self.held.wrote(py)
    }

    /// The description, and what keeps its memory: the view must not be used after that is dropped.
    #[inline]
    pub fn split(self) -> (View, Held) {
        (self.view, self.held)
    }
}

impl Held {
    /// Memory that lives as long as `holder`, of whose use nobody must hear.
    pub fn of(holder: Py<PyAny>) -> Held {
        Held {
            owner: Owner::None,
            objects: SmallVec::from_iter([holder]),
            wrote: SmallVec::new(),
        }
    }

    /// Whether a framework wants to know that its memory was written.
    pub fn must_tell(&self) -> bool {
        !self.wrote.is_empty()
    }

    /// The memory was written: tells the framework.
    ///
    /// # Errors
    /// What the framework raised.
    #[inline]
    pub fn wrote(&self, py: Python<'_>) -> PyResult<()> {
        for (wrote, object) in &self.wrote {
            wrote(&PyTuple::new(py, [object])?)?;
        }
        Ok(())
    }

    /// The memory of all of them was written: tells each framework as few times as can be.
    ///
    /// # Errors
    /// What a framework raised; the others were told.
    pub fn all_wrote(all: &[Held], py: Python<'_>) -> PyResult<()> {
        let told: Vec<&(Wrote, Py<PyAny>)> = all.iter().flat_map(|held| &held.wrote).collect();
        told.chunk_by(|a, b| std::ptr::fn_addr_eq(a.0, b.0))
            .filter_map(|alike| Some((alike.first()?.0, alike)))
            .map(|(wrote, alike)| wrote(&PyTuple::new(py, alike.iter().map(|(_, object)| object))?))
            .fold(Ok(()), PyResult::and)
    }

    fn release(&mut self, py: Python<'_>) {
        match std::mem::replace(&mut self.owner, Owner::None) {
            Owner::None => {}
            Owner::Buffer(buffer) => buffer.release(py),
            Owner::Foreign(foreign) => {
                // A deleter may raise or clear the exception that is on its way to the caller.
                let pending = PyErr::take(py);
                drop(foreign);
                if let Some(left_over) = PyErr::take(py) {
                    left_over.write_unraisable(py, None);
                }
                if let Some(error) = pending {
                    error.restore(py);
                }
            }
        }
    }
}

/// Is the interpreter there, and not on its way out? A thread that is attached while it goes, in a
/// deallocation, cannot tell from `try_attach`.
fn is_up() -> bool {
    // SAFETY:
    // - May be called at any time, attached or not.
    unsafe { ffi::Py_IsInitialized() != 0 }
}

impl Drop for Held {
    fn drop(&mut self) {
        // First the owner, then, as fields, the objects that its memory may belong to.
        if is_up() && Python::try_attach(|py| self.release(py)).is_some() {
            return;
        }
        if let Owner::Foreign(foreign) = std::mem::replace(&mut self.owner, Owner::None) {
            foreign.into_leaked();
        }
        std::mem::take(&mut self.objects)
            .into_iter()
            .for_each(std::mem::forget);
        std::mem::take(&mut self.wrote)
            .into_iter()
            .for_each(std::mem::forget);
    }
}
