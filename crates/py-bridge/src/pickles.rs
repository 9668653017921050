//! Which objects Python's own pickle serves as well as ours: those made of builtins alone, which hold no tensor. Knows
//! pickles by their ends, not how tensors are pickled.

use pyo3::ffi;
use pyo3::prelude::*;

/// Objects that are looked at before an object counts as none of these.
const MOST: u32 = 64;
/// How deep containers may lie in each other.
const DEEPEST: u32 = 4;

/// Whether an object is made of numbers, strings, bytes and the builtin containers, and of few of them.
pub fn is_builtin(obj: &Bound<'_, PyAny>) -> bool {
    let mut left = MOST;
    // SAFETY:
    // - the object is held, and what it holds too, unchanged while this thread is attached: no Python code runs.
    unsafe { made_of_builtins(obj.as_ptr(), DEEPEST, &mut left) }
}

/// Whether an object is one of a builtin type that nobody can change, and holds no other: a copy of it is nothing else.
pub fn is_atom(obj: &Bound<'_, PyAny>) -> bool {
    // SAFETY:
    // - the object is held; the thread is attached.
    unsafe { is_single(obj.as_ptr()) }
}

/// # Safety
/// - `obj` is an object; the thread is attached.
unsafe fn is_single(obj: *mut ffi::PyObject) -> bool {
    // SAFETY:
    // - the caller's promise.
    let (ty, none) = unsafe { (ffi::Py_TYPE(obj), ffi::Py_None()) };
    let is = |builtin: *mut ffi::PyTypeObject| std::ptr::eq(ty, builtin);
    is(&raw mut ffi::PyLong_Type)
        || is(&raw mut ffi::PyFloat_Type)
        || is(&raw mut ffi::PyUnicode_Type)
        || is(&raw mut ffi::PyBytes_Type)
        || is(&raw mut ffi::PyBool_Type)
        || is(&raw mut ffi::PyComplex_Type)
        || std::ptr::eq(obj, none)
}

/// # Safety
/// - `obj` is an object, which nobody changes meanwhile; the thread is attached.
unsafe fn made_of_builtins(obj: *mut ffi::PyObject, depth: u32, left: &mut u32) -> bool {
    if *left == 0 {
        return false;
    }
    *left -= 1;
    // SAFETY:
    // - `obj` is an object, and items of containers are asked for below their sizes.
    unsafe {
        let ty = ffi::Py_TYPE(obj);
        let is = |builtin: *mut ffi::PyTypeObject| std::ptr::eq(ty, builtin);
        if is_single(obj) {
            return true;
        }
        if depth == 0 {
            return false;
        }
        if is(&raw mut ffi::PyTuple_Type) {
            return (0..ffi::PyTuple_Size(obj))
                .all(|at| made_of_builtins(ffi::PyTuple_GetItem(obj, at), depth - 1, left));
        }
        if is(&raw mut ffi::PyList_Type) {
            return (0..ffi::PyList_Size(obj))
                .all(|at| made_of_builtins(ffi::PyList_GetItem(obj, at), depth - 1, left));
        }
        if is(&raw mut ffi::PyDict_Type) {
            let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
            while ffi::PyDict_Next(obj, &raw mut at, &raw mut key, &raw mut value) != 0 {
                if !made_of_builtins(key, depth - 1, left)
                    || !made_of_builtins(value, depth - 1, left)
                {
                    return false;
                }
            }
            return true;
        }
    }
    false
}

/// `dumps` and `loads` that mpi4py's own methods use.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Pickles {
    stock_dumps: Py<PyAny>,
    stock_loads: Py<PyAny>,
    our_dumps: Py<PyAny>,
    our_loads: Py<PyAny>,
    /// What a pickle of ours with tensors in it ends with.
    end: Vec<u8>,
}

#[pymethods]
impl Pickles {
    #[new]
    fn new(
        stock_dumps: Py<PyAny>,
        stock_loads: Py<PyAny>,
        our_dumps: Py<PyAny>,
        our_loads: Py<PyAny>,
        end: Vec<u8>,
    ) -> Pickles {
        Pickles {
            stock_dumps,
            stock_loads,
            our_dumps,
            our_loads,
            end,
        }
    }

    /// `pickle.dumps` by the rules for tensors.
    #[pyo3(signature = (obj, protocol=None, *, buffer_callback=None))]
    fn dumps<'py>(
        &self,
        py: Python<'py>,
        obj: &Bound<'py, PyAny>,
        protocol: Option<&Bound<'py, PyAny>>,
        buffer_callback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if buffer_callback.is_none() && is_builtin(obj) {
            return self.stock_dumps.bind(py).call1((obj, protocol));
        }
        self.our_dumps
            .bind(py)
            .call1((obj, protocol, buffer_callback))
    }

    /// `pickle.loads`; what it returns may be written, and lies in no memory of mpi4py's.
    #[pyo3(signature = (data, *, buffers=None))]
    fn loads<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        buffers: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ours = match pyo3::buffer::PyBuffer::<u8>::get(data) {
            Ok(bytes) => self.ends(&bytes),
            Err(_) => true,
        };
        match buffers.is_none() && !ours {
            true => self.stock_loads.bind(py).call1((data,)),
            false => self.our_loads.bind(py).call1((data, buffers)),
        }
    }
}

impl Pickles {
    /// Whether these bytes may end as a pickle of ours does.
    fn ends(&self, bytes: &pyo3::buffer::PyBuffer<u8>) -> bool {
        let (length, n) = (bytes.len_bytes(), self.end.len());
        if length < n || !bytes.is_c_contiguous() {
            return length >= n;
        }
        // SAFETY:
        // - the buffer holds `length` bytes in one piece while it is lent; this thread is attached, so no Python code
        //   writes them meanwhile, and a pickle that is being read is nobody's to write.
        let last = unsafe {
            let start = bytes.buf_ptr().cast::<u8>().add(length - n);
            std::slice::from_raw_parts(start, n)
        };
        last == self.end
    }
}
