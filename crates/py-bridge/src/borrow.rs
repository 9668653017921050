//! `dlmpi.borrow`: a tensor's memory as a PEP 3118 buffer, in place, for any stock mpi4py call; and the
//! buffers that methods of ours lend to mpi4py's. Knows no operation.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cargo::Cargo;
use crate::errors;
use crate::framework::Intent;
use crate::order::StreamOrder;
use crate::orphans;
use crate::raw::Bytes;
use crate::registry;

/// What a borrowed buffer knows while it may be exported.
struct State {
    cargo: Option<Cargo>,
    exports: usize,
    ended: bool,
    /// Somebody will ask what went wrong at the end.
    asked: bool,
    failure: Option<PyErr>,
}

/// Raw memory of a tensor, as a buffer. The loan ends when the context does and the last export is
/// released: a pending request keeps it.
#[pyclass(frozen, module = "dlmpi", name = "BorrowedBuffer")]
pub struct Borrowed {
    state: Mutex<State>,
    bytes: Bytes,
    writable: bool,
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

// SAFETY:
// - The pointer is only handed out through exports, whose users answer for what they do with it; the rest
//   is behind a lock.
unsafe impl Send for Borrowed {}
// SAFETY:
// - As above.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    /// Lends `tensor`, and waits until work queued on it is done; `name` is for messages.
    ///
    /// # Errors
    /// `BufferError` or `TypeError`: not exportable, not writable, not one block of memory.
    pub fn new(name: &str, tensor: &Bound<'_, PyAny>, intent: Intent) -> PyResult<Borrowed> {
        let py = tensor.py();
        let mut order = StreamOrder::default();
        let loan = registry::lend(name, tensor, intent, &mut order)?;
        let bytes = Bytes::of(loan.view()).map_err(|error| error.named(py, name))?;
        order.wait(py)?;
        Ok(Borrowed {
            writable: intent == Intent::Receive,
            ..Borrowed::lending(bytes, Cargo::raw(loan.split().1, intent))
        })
    }

    /// A buffer for a method of mpi4py's. It shows itself writable whatever the intent: mpi4py asks for that
    /// where MPI only reads (`Get_accumulate`), and nobody else sees it.
    pub fn lending(bytes: Bytes, cargo: Cargo) -> Borrowed {
        Borrowed {
            bytes,
            writable: true,
            shape: [(bytes.len / bytes.itemsize) as ffi::Py_ssize_t],
            strides: [bytes.itemsize as ffi::Py_ssize_t],
            state: Mutex::new(State {
                cargo: Some(cargo),
                exports: 0,
                ended: false,
                asked: false,
                failure: None,
            }),
        }
    }

    /// Whether both are of the same memory, in part at least.
    pub fn overlaps(&self, other: &Borrowed) -> bool {
        let ends = |bytes: &Bytes| {
            let start = bytes.start as usize;
            (start, start.saturating_add(bytes.len))
        };
        let ((a, a_end), (b, b_end)) = (ends(&self.bytes), ends(&other.bytes));
        a < b_end && b < a_end && self.bytes.len > 0 && other.bytes.len > 0
    }

    /// How many bytes it is of.
    pub fn size(&self) -> usize {
        self.bytes.len
    }

    /// Whether anybody holds an export.
    pub fn is_exported(&self) -> bool {
        self.state().exports > 0
    }

    /// The last release ends the loan, without a word from whoever lent it; `asked`: who completes the operation asks
    /// for its failure.
    pub fn end_on_release(&self, asked: bool) {
        let mut state = self.state();
        (state.ended, state.asked) = (true, asked);
    }

    /// What went wrong when the last release ended the loan.
    pub fn failure(&self) -> Option<PyErr> {
        self.state().failure.take()
    }

    /// What was received is in place although the buffer is held on to.
    ///
    /// # Errors
    /// What a device or the framework has to say.
    pub fn arrived(&self, py: Python<'_>) -> PyResult<()> {
        let cargo = self.state().cargo.take();
        match cargo {
            Some(cargo) => {
                let (held, told) = cargo.settle(py);
                self.state().cargo = Some(held);
                told
            }
            None => Ok(()),
        }
    }

    /// As [`Cargo::refresh`].
    ///
    /// # Errors
    /// As for it.
    ///
    /// # Safety
    /// - As for it.
    pub unsafe fn refresh(&self, py: Python<'_>, part: Option<(usize, usize)>) -> PyResult<()> {
        // SAFETY:
        // - The caller's promise.
        self.with_cargo(py, |cargo| unsafe { cargo.refresh(part) })
    }

    /// As [`Cargo::bring_home`].
    ///
    /// # Errors
    /// As for it.
    ///
    /// # Safety
    /// - As for it.
    pub unsafe fn bring_home(&self, py: Python<'_>, part: Option<(usize, usize)>) -> PyResult<()> {
        // SAFETY:
        // - The caller's promise.
        self.with_cargo(py, |cargo| unsafe { cargo.bring_home(part) })
    }

    /// Works on the cargo without the interpreter. Whoever has the lock does not wait for the interpreter.
    fn with_cargo(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Cargo) -> tensor_comm::Result<()> + Send,
    ) -> PyResult<()> {
        py.detach(|| self.state().cargo.as_ref().map_or(Ok(()), work))
            .map_err(|error| errors::operation(py, error))
    }

    /// Whether a framework is to hear when the memory was written.
    pub fn tells(&self) -> bool {
        self.state().cargo.as_ref().is_some_and(Cargo::tells)
    }

    /// The memory was written, and stays lent.
    ///
    /// # Errors
    /// What the framework has to say.
    pub fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let cargo = self.state().cargo.take();
        let Some(cargo) = cargo else { return Ok(()) };
        let told = cargo.tell(py);
        self.state().cargo = Some(cargo);
        told
    }

    /// Takes over what keeps the memory: MPI goes on using it although nobody holds the buffer.
    pub fn take_cargo(&self) -> Option<Cargo> {
        let mut state = self.state();
        state.ended = true;
        state.cargo.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more exports. The memory stays borrowed until the last one is released.
    ///
    /// # Errors
    /// What the framework raised when told that its memory was written.
    pub fn end(&self, py: Python<'_>) -> PyResult<()> {
        let cargo = {
            let mut state = self.state();
            state.ended = true;
            if state.exports == 0 {
                state.cargo.take()
            } else {
                None
            }
        };
        // Outside the lock: frameworks run Python code.
        cargo.map_or(Ok(()), |cargo| cargo.settle(py).1)
    }
}

#[pymethods]
impl Borrowed {
    /// Length of the memory in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len
    }

    /// May it be written?
    #[getter]
    fn writable(&self) -> bool {
        self.writable
    }

    fn __repr__(&self) -> String {
        let access = if self.writable {
            "writable"
        } else {
            "read-only"
        };
        format!(
            "<dlmpi.BorrowedBuffer of {} bytes, {access}>",
            self.bytes.len
        )
    }

    /// # Safety
    /// - `view` is NULL or a Py_buffer to be filled: CPython's contract of the slot.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no Py_buffer to fill"));
        }
        let this = slf.get();
        let wants = |flag: c_int| flags & flag == flag;
        let refusal = {
            let mut state = this.state();
            let refusal = if state.ended {
                Some("the loan has ended: use the buffer inside its `with` block")
            } else if wants(ffi::PyBUF_WRITABLE) && !this.writable {
                Some("the tensor was borrowed for reading; use borrow(tensor, writable=True)")
            } else {
                None
            };
            if refusal.is_none() {
                state.exports += 1;
            }
            refusal
        };
        if let Some(words) = refusal {
            // SAFETY:
            // - `view` is writable; NULL says that nothing was exported.
            unsafe { (*view).obj = std::ptr::null_mut() };
            return Err(PyBufferError::new_err(words));
        }
        let owner = slf.clone().into_any().into_ptr();
        let format = match wants(ffi::PyBUF_FORMAT) {
            true => this.bytes.format.as_ptr().cast_mut(),
            false => std::ptr::null_mut(),
        };
        let shape = match wants(ffi::PyBUF_ND) {
            true => this.shape.as_ptr().cast_mut(),
            false => std::ptr::null_mut(),
        };
        let strides = match wants(ffi::PyBUF_STRIDES) {
            true => this.strides.as_ptr().cast_mut(),
            false => std::ptr::null_mut(),
        };
        // SAFETY:
        // - `view` is writable by the slot's contract.
        // - Every pointer stays valid while `owner` lives, which the consumer holds through `obj`: the object
        //   is frozen and does not move, and the loan is kept while exports are counted.
        unsafe {
            (*view).buf = this.bytes.start.cast::<c_void>();
            (*view).obj = owner;
            (*view).len = this.bytes.len as ffi::Py_ssize_t;
            (*view).itemsize = this.bytes.itemsize as ffi::Py_ssize_t;
            (*view).readonly = c_int::from(!this.writable);
            (*view).ndim = 1;
            (*view).format = format;
            (*view).shape = shape;
            (*view).strides = strides;
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
        }
        Ok(())
    }

    /// # Safety
    /// - CPython's contract of the slot: called once per export.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        let (cargo, last) = {
            let mut state = self.state();
            state.exports = state.exports.saturating_sub(1);
            let last = state.ended && state.exports == 0;
            (if last { state.cargo.take() } else { None }, last)
        };
        match cargo {
            Some(cargo) => {
                let Err(error) = cargo.settle(py).1 else {
                    return;
                };
                let mut state = self.state();
                if state.asked {
                    state.failure = Some(error);
                } else {
                    drop(state);
                    error.write_unraisable(py, None);
                }
            }
            // A copy of a dropped request has completed.
            None if last => orphans::sweep(py, usize::MAX),
            None => {}
        }
    }
}

/// The context manager `dlmpi.borrow(tensor, writable=False)`.
///
/// Yields a buffer of the tensor's own memory, in memory order, that any stock mpi4py call accepts.
/// Element types that MPI has no number for (bfloat16, float8, ...) appear as bytes that no stock call
/// reduces: counts are bytes then. Strided tensors and device memory are refused.
#[pyclass(frozen, module = "dlmpi", name = "borrow")]
pub struct Borrow {
    tensor: Py<PyAny>,
    writable: bool,
    entered: Mutex<Option<Py<Borrowed>>>,
}

#[pymethods]
impl Borrow {
    #[new]
    #[pyo3(signature = (tensor, writable = false))]
    fn new(tensor: Py<PyAny>, writable: bool) -> Borrow {
        Borrow {
            tensor,
            writable,
            entered: Mutex::new(None),
        }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Borrowed>> {
        let intent = if self.writable {
            Intent::Receive
        } else {
            Intent::Send
        };
        let buffer = Py::new(py, Borrowed::new("tensor", self.tensor.bind(py), intent)?)?;
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.is_some() {
            return Err(PyRuntimeError::new_err(
                "this borrow is entered already; make another one",
            ));
        }
        *entered = Some(buffer.clone_ref(py));
        Ok(buffer)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        let entered = self
            .entered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match entered {
            Some(buffer) => buffer.get().end(py),
            None => Err(PyRuntimeError::new_err("this borrow was not entered")),
        }
    }
}
