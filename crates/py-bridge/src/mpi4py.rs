//! mpi4py's objects as handles: its C API, found through `MPI.__pyx_capi__` at run time and called at C
//! speed, no header and no link. Knows no tensor and calls no MPI.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use mpi_runtime::{Comm, Datatype, Mpi, Op, StatusPtr};
use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyModule, PyType};

use crate::classes::Classes;
use crate::errors;
use crate::request::Pending;

/// `MPI_X *PyMPIX_Get(PyObject *)`: the address of the C handle inside the object.
type Get = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut c_void;

/// The mpi4py of this process, bound once.
pub struct Mpi4py {
    mpi: &'static Mpi,
    wide: bool,
    get_comm: Get,
    get_op: Get,
    get_datatype: Get,
    get_status: Get,
    get_request: Get,
    get_message: Get,
    get_win: Get,
    /// Where the handle lies in every `MPI.Comm`.
    comm_at: isize,
    /// The same of every `MPI.Datatype`.
    datatype_at: isize,
    /// And of every `MPI.Request`.
    request_at: isize,
    datatype_type: Py<PyType>,
    /// The first class derived from it that was met: all of ours are of one.
    datatype_derived: OnceLock<Py<PyType>>,
    in_place: Py<PyAny>,
    bottom: Py<PyAny>,
    exception: Py<PyAny>,
    typedict: Py<PyDict>,
    module: Py<PyModule>,
    /// Makes our Python request of a native handle and its end; set once by `dlmpi.comm`.
    request: OnceLock<Py<PyAny>>,
    /// Our classes by name; set once by `dlmpi.comm`.
    classes: OnceLock<Classes>,
    /// `MPI.Datatype` objects of predefined handles.
    datatypes: Mutex<Vec<(Datatype, Py<PyAny>)>>,
}

/// Where the handle of a living object lies.
#[derive(Clone, Copy)]
pub struct Handle {
    address: *mut c_void,
    wide: bool,
}

impl Handle {
    /// The handle that is there now.
    #[inline]
    pub fn get(self) -> u64 {
        // SAFETY:
        // - mpi4py returned the address of a handle inside an object that is alive (whoever made this says so).
        // - Handles are as wide as cross-checked at binding, and aligned, being fields of a C struct.
        unsafe {
            match self.wide {
                true => self.address.cast::<u64>().read(),
                false => u64::from(self.address.cast::<u32>().read()),
            }
        }
    }

    /// Puts another one there; the thread is attached.
    pub fn set(self, handle: u64) {
        // SAFETY:
        // - As for `get`.
        unsafe {
            match self.wide {
                true => self.address.cast::<u64>().write(handle),
                false => self.address.cast::<u32>().write(handle as u32),
            }
        }
    }
}

static BOUND: OnceLock<Mpi4py> = OnceLock::new();

impl Mpi4py {
    /// The bound mpi4py, if `dlmpi.MPI` was imported.
    #[inline]
    pub fn get() -> Option<&'static Mpi4py> {
        BOUND.get()
    }

    /// Binds the module `mpi4py.MPI`: finds the libmpi that it runs, and refuses when the two disagree.
    ///
    /// # Errors
    /// `ImportError` in words: no library found, unknown ABI, or numbers that differ.
    pub fn bind(module: &Bound<'_, PyModule>) -> PyResult<&'static Mpi4py> {
        if let Some(bound) = BOUND.get() {
            return match bound.module.is(module) {
                true => Ok(bound),
                false => Err(PyImportError::new_err(
                    "dlmpi is bound to another mpi4py.MPI of this process already",
                )),
            };
        }
        let bound = Mpi4py::read(module).map_err(|error| {
            let py = module.py();
            match error.is_instance_of::<PyImportError>(py) {
                true => error,
                false => {
                    let import = PyImportError::new_err(format!(
                        "dlmpi cannot use this mpi4py: {}",
                        error.value(py)
                    ));
                    import.set_cause(py, Some(error));
                    import
                }
            }
        })?;
        Ok(BOUND.get_or_init(|| bound))
    }

    fn read(module: &Bound<'_, PyModule>) -> PyResult<Mpi4py> {
        let import = |error: mpi_runtime::LoadError| PyImportError::new_err(error.to_string());
        let origin: PathBuf = module.getattr("__spec__")?.getattr("origin")?.extract()?;
        let mpi = Mpi::load_from_module(&origin).map_err(import)?;
        let size_of = |name: &str| -> PyResult<usize> {
            module
                .getattr("_sizeof")?
                .call1((module.getattr(name)?,))?
                .extract()
        };
        let in_place = module.getattr("IN_PLACE")?;
        let (comm_bytes, status_bytes) = (size_of("Comm")?, size_of("Status")?);
        let in_place_address: isize = in_place.call_method0("__int__")?.extract()?;
        mpi.cross_check(comm_bytes, status_bytes, in_place_address)
            .map_err(import)?;
        let table = module.getattr("__pyx_capi__")?;
        let table = table.cast::<PyDict>().map_err(PyErr::from)?;
        let get_comm = function(table, "PyMPIComm_Get", c"MPI_Comm *(PyObject *)")?;
        let get_request = function(table, "PyMPIRequest_Get", c"MPI_Request *(PyObject *)")?;
        let get_datatype = function(table, "PyMPIDatatype_Get", c"MPI_Datatype *(PyObject *)")?;
        let at = |get: Get, name: &str| -> PyResult<isize> {
            let object = module.getattr(name)?;
            // SAFETY:
            // - The thread is attached; the function takes any object and checks its type.
            let address = unsafe { get(object.as_ptr()) };
            Ok(address.addr().wrapping_sub(object.as_ptr().addr()) as isize)
        };
        Ok(Mpi4py {
            mpi,
            comm_at: at(get_comm, "COMM_WORLD")?,
            datatype_at: at(get_datatype, "BYTE")?,
            request_at: at(get_request, "REQUEST_NULL")?,
            datatype_derived: OnceLock::new(),
            wide: comm_bytes == 8,
            get_comm,
            get_op: function(table, "PyMPIOp_Get", c"MPI_Op *(PyObject *)")?,
            get_datatype,
            get_status: function(table, "PyMPIStatus_Get", c"MPI_Status *(PyObject *)")?,
            get_request,
            get_message: function(table, "PyMPIMessage_Get", c"MPI_Message *(PyObject *)")?,
            get_win: function(table, "PyMPIWin_Get", c"MPI_Win *(PyObject *)")?,
            datatype_type: module.getattr("Datatype")?.cast_into::<PyType>()?.unbind(),
            bottom: module.getattr("BOTTOM")?.unbind(),
            exception: module.getattr("Exception")?.unbind(),
            typedict: module.getattr("_typedict")?.cast_into::<PyDict>()?.unbind(),
            in_place: in_place.unbind(),
            module: module.clone().unbind(),
            request: OnceLock::new(),
            classes: OnceLock::new(),
            datatypes: Mutex::default(),
        })
    }

    /// The library that both use.
    #[inline]
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// The module `mpi4py.MPI`.
    pub fn module<'py>(&self, py: Python<'py>) -> &Bound<'py, PyModule> {
        self.module.bind(py)
    }

    /// The handle of an `MPI.Comm`.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    #[inline]
    pub fn comm(&self, obj: &Bound<'_, PyAny>) -> PyResult<Comm> {
        let raw = self.handle(self.get_comm, obj)?;
        // SAFETY:
        // - mpi4py checked the type, so this is a communicator handle of the library that both use; the
        //   object is alive for the call that uses it.
        Ok(unsafe { Comm::from_raw(raw) })
    }

    /// The same of what is known to be one.
    ///
    /// # Safety
    /// - `obj` is an instance of `MPI.Comm`.
    #[inline]
    pub unsafe fn comm_of(&self, obj: &Bound<'_, PyAny>) -> Comm {
        // SAFETY:
        // - As for `comm`; a field of a C struct lies at the same place in every instance, subclasses included.
        unsafe { Comm::from_raw(self.field(obj, self.comm_at).get()) }
    }

    /// A handle that lies so many bytes into an object.
    #[inline]
    fn field(&self, obj: &Bound<'_, PyAny>, at: isize) -> Handle {
        Handle {
            address: obj.as_ptr().wrapping_byte_offset(at).cast(),
            wide: self.wide,
        }
    }

    /// Makes an `MPI.Comm` object null without freeing its communicator.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    pub fn forget(&self, comm: &Bound<'_, PyAny>) -> PyResult<()> {
        self.slot(self.get_comm, comm)?
            .set(self.mpi.comm_null().raw());
        Ok(())
    }

    /// The handle of an `MPI.Op`.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    #[inline]
    pub fn op(&self, obj: &Bound<'_, PyAny>) -> PyResult<Op> {
        let raw = self.handle(self.get_op, obj)?;
        // SAFETY:
        // - As for `comm`.
        Ok(unsafe { Op::from_raw(raw) })
    }

    /// The handle of an `MPI.Datatype`.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    pub fn datatype(&self, obj: &Bound<'_, PyAny>) -> PyResult<Datatype> {
        let raw = self.handle(self.get_datatype, obj)?;
        // SAFETY:
        // - As for `comm`.
        Ok(unsafe { Datatype::from_raw(raw) })
    }

    /// Where the handle of an `MPI.Request` lies; for as long as the object lives.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    pub fn request_handle(&self, obj: &Bound<'_, PyAny>) -> PyResult<Handle> {
        self.slot(self.get_request, obj)
    }

    /// The same of what is known to be one.
    ///
    /// # Safety
    /// - `obj` is an instance of `MPI.Request`.
    #[inline]
    pub unsafe fn request_handle_of(&self, obj: &Bound<'_, PyAny>) -> Handle {
        self.field(obj, self.request_at)
    }

    /// Where the handle of an `MPI.Message` lies; for as long as the object lives.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    pub fn message_handle(&self, obj: &Bound<'_, PyAny>) -> PyResult<Handle> {
        self.slot(self.get_message, obj)
    }

    /// Where the handle of an `MPI.Win` lies; for as long as the object lives.
    ///
    /// # Errors
    /// `TypeError` when it is none.
    pub fn win_handle(&self, obj: &Bound<'_, PyAny>) -> PyResult<Handle> {
        self.slot(self.get_win, obj)
    }

    /// The `MPI.Datatype` object of a predefined handle, or of one that lives through the call.
    ///
    /// # Errors
    /// What Python raised.
    pub fn datatype_object<'py>(
        &self,
        py: Python<'py>,
        datatype: Datatype,
    ) -> PyResult<Bound<'py, PyAny>> {
        let known = {
            let known = self
                .datatypes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let row = known.iter().find(|row| row.0 == datatype);
            row.map(|row| row.1.clone_ref(py))
        };
        if let Some(object) = known {
            return Ok(object.into_bound(py));
        }
        let object = self
            .datatype_type
            .bind(py)
            .call_method1("fromhandle", (datatype.raw(),))?;
        if self.mpi.basic(datatype).is_some() {
            let row = (datatype, object.clone().unbind());
            let mut known = self
                .datatypes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            known.push(row);
        }
        Ok(object)
    }

    /// The `MPI.Op` object of a handle that lives.
    ///
    /// # Errors
    /// What Python raised.
    pub fn op_object<'py>(&self, py: Python<'py>, op: Op) -> PyResult<Bound<'py, PyAny>> {
        let class = self.module(py).getattr("Op")?;
        class.call_method1("fromhandle", (op.raw(),))
    }

    /// The `MPI_Status` inside an `MPI.Status`; the object must outlive the use.
    ///
    /// # Errors
    /// `TypeError` when it is neither that nor `None`.
    pub fn status(&self, obj: Option<&Bound<'_, PyAny>>) -> PyResult<StatusPtr> {
        match obj {
            Some(obj) if !obj.is_none() => Ok(StatusPtr(self.address(self.get_status, obj)?)),
            _ => Ok(StatusPtr::ignore()),
        }
    }

    /// Is this `MPI.IN_PLACE`, or `None` which means it where it may?
    #[inline]
    pub fn is_in_place(&self, obj: &Bound<'_, PyAny>) -> bool {
        obj.is_none() || obj.is(&self.in_place)
    }

    /// Is this `MPI.BOTTOM`?
    pub fn is_bottom(&self, obj: &Bound<'_, PyAny>) -> bool {
        obj.is(&self.bottom)
    }

    /// Is this an `MPI.Datatype`?
    pub fn is_datatype(&self, obj: &Bound<'_, PyAny>) -> bool {
        obj.is_instance(self.datatype_type.bind(obj.py()))
            .unwrap_or(false)
    }

    /// The handle of an object, if it is an `MPI.Datatype`.
    #[inline]
    pub fn known_datatype(&self, obj: &Bound<'_, PyAny>) -> Option<Datatype> {
        let (ty, own) = (obj.get_type_ptr(), self.datatype_type.bind(obj.py()));
        let derived = self.datatype_derived.get().map(|ty| ty.as_ptr().cast());
        if ty != own.as_type_ptr() && Some(ty) != derived {
            // SAFETY:
            // - any object may be asked for its type; the other one is a type.
            if unsafe { ffi::PyObject_TypeCheck(obj.as_ptr(), own.as_type_ptr()) } == 0 {
                return None;
            }
            if derived.is_none() {
                let _ = self.datatype_derived.set(obj.get_type().unbind());
            }
        }
        // SAFETY:
        // - As for `comm_of`: it is an instance of `MPI.Datatype`.
        Some(unsafe { Datatype::from_raw(self.field(obj, self.datatype_at).get()) })
    }

    /// The `MPI.Datatype` of a type string such as `"d"`.
    pub fn typedict<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.typedict.bind(py)
    }

    /// The `MPI.Datatype` of half-precision numbers, where the library has one.
    ///
    /// # Errors
    /// What Python raised.
    pub fn half<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let half = self.typedict(py).get_item("e")?;
        match half {
            Some(half) if half.is_truthy()? => Ok(Some(half)),
            _ => Ok(None),
        }
    }

    /// Says what makes a Python request of `(handle, pending)`.
    pub fn set_request(&self, make: Py<PyAny>) {
        let _ = self.request.set(make);
    }

    /// A Python request of a native handle and its end.
    ///
    /// # Errors
    /// What Python raised.
    pub fn request(&self, py: Python<'_>, handle: u64, pending: Pending) -> PyResult<Py<PyAny>> {
        let make = self.request.get().ok_or_else(errors::unbound)?;
        make.call1(py, (handle, pending))
    }

    /// Says which classes are ours.
    pub fn set_classes(&self, classes: Classes) {
        let _ = self.classes.set(classes);
    }

    /// Our classes.
    ///
    /// # Errors
    /// `RuntimeError` before `dlmpi.MPI` was imported.
    pub fn classes(&self) -> PyResult<&Classes> {
        self.classes.get().ok_or_else(errors::unbound)
    }

    /// `MPI.Exception(code)`.
    pub fn exception(&self, py: Python<'_>, code: i32) -> PyErr {
        match self.exception.bind(py).call1((code,)) {
            Ok(value) => PyErr::from_value(value),
            Err(error) => error,
        }
    }

    /// What MPI says of a communicator that is null, asked by a function that looks: Open MPI 5.0.11 crashes in some, and
    /// says nothing in others.
    pub fn null(&self, comm: &Bound<'_, PyAny>) -> PyErr {
        match comm.call_method0(pyo3::intern!(comm.py(), "Get_size")) {
            Err(said) => said,
            Ok(_) => self.exception(comm.py(), self.mpi.constants().err_comm),
        }
    }

    #[inline]
    fn handle(&self, get: Get, obj: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.slot(get, obj)?.get())
    }

    #[inline]
    fn slot(&self, get: Get, obj: &Bound<'_, PyAny>) -> PyResult<Handle> {
        Ok(Handle {
            address: self.address(get, obj)?,
            wide: self.wide,
        })
    }

    #[inline]
    fn address(&self, get: Get, obj: &Bound<'_, PyAny>) -> PyResult<*mut c_void> {
        // SAFETY:
        // - The thread is attached; the function takes any object and checks its type.
        let address = unsafe { get(obj.as_ptr()) };
        match address.is_null() {
            true => Err(PyErr::fetch(obj.py())),
            false => Ok(address),
        }
    }
}

/// A function of mpi4py's C API. The capsule's name is the signature, which is checked.
fn function(table: &Bound<'_, PyDict>, name: &str, signature: &'static CStr) -> PyResult<Get> {
    let capsule = table.get_item(name)?.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "its C API has no {name}; mpi4py 4.0 or newer is needed"
        ))
    })?;
    let pointer = capsule
        .cast::<PyCapsule>()
        .map_err(PyErr::from)?
        .pointer_checked(Some(signature))?;
    // SAFETY:
    // - A capsule of Cython's `__pyx_capi__` with this name holds a C function of this signature.
    // - The pointee differs per MPI; the pointer does not.
    Ok(unsafe { std::mem::transmute::<*mut c_void, Get>(pointer.as_ptr()) })
}

/// The bound mpi4py, or why a method that needs it cannot run.
///
/// # Errors
/// `RuntimeError` when `dlmpi.MPI` was never imported.
#[inline]
pub fn bound() -> PyResult<&'static Mpi4py> {
    Mpi4py::get().ok_or_else(errors::unbound)
}
