//! DLPack's C exchange API, as torch publishes it on its tensor type. Checks nothing but the table: what
//! the table itself does not check (negative bit, owner of the storage) is the caller's business.

use core::ffi::c_void;

use dlpack_core::abi::{self, DLDataType, DLDevice, DLPackExchangeAPI, DLTensor};
use dlpack_core::{DType, DeviceKind, TypeCode, View};
use py_bridge::{ExportError, ExportResult, Flat};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

/// The attribute, since DLPack 1.3.
const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";
/// How many older tables are looked at.
const GENERATIONS: usize = 8;

type ViewOf = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> i32;
type StreamOf = unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> i32;

/// The two functions that we use. They live as long as the process.
#[derive(Clone, Copy)]
pub struct Exchange {
    view: ViewOf,
    stream: StreamOf,
}

impl Exchange {
    /// The table of a type, if it publishes one that we can read.
    ///
    /// # Errors
    /// What Python raised while the type was looked at.
    pub fn of(ty: &Bound<'_, PyType>) -> PyResult<Option<Exchange>> {
        let Some(attribute) = ty.getattr_opt(ATTRIBUTE)? else {
            return Ok(None);
        };
        let Ok(capsule) = attribute.cast::<PyCapsule>() else {
            return Ok(None);
        };
        let Ok(pointer) = capsule.pointer_checked(Some(abi::NAME_EXCHANGE_API)) else {
            return Ok(None);
        };
        let mut table: *const DLPackExchangeAPI = pointer.as_ptr().cast();
        for _ in 0..GENERATIONS {
            if table.is_null() {
                return Ok(None);
            }
            // SAFETY:
            // - A capsule of this name holds such a table, alive for the process; the header is where it is in
            //   every version.
            let header = unsafe { (*table).header };
            if header.version.major == abi::MAJOR {
                // SAFETY:
                // - As above, and of our major version, so that all fields are where ours are.
                let functions = unsafe {
                    (
                        (*table).dltensor_from_py_object_no_sync,
                        (*table).current_work_stream,
                    )
                };
                return Ok(match functions {
                    (Some(view), Some(stream)) => Some(Exchange { view, stream }),
                    _ => None,
                });
            }
            table = header.prev_api.cast_const().cast();
        }
        Ok(None)
    }

    /// What the tensor is. Borrows nothing: shape and strides are copied, the memory is kept by whoever
    /// holds the tensor's storage.
    ///
    /// # Errors
    /// What torch raised, or what the door says.
    #[inline]
    pub fn view(&self, tensor: &Bound<'_, PyAny>) -> ExportResult<View> {
        let raw = self.read(tensor)?;
        // SAFETY:
        // - torch filled it; shape and strides are the tensor's own, and the interpreter is not released
        //   before they are copied.
        // - The caller holds the storage for as long as the view is used.
        Ok(unsafe { View::from_dltensor(&raw, 0) }?)
    }

    /// The elements of a tensor of real numbers that lie one behind the other in plain host memory; `None` of any other.
    #[inline]
    pub fn flat(&self, tensor: &Bound<'_, PyAny>) -> Option<Flat> {
        let raw = self.read(tensor).ok()?;
        let DLDataType { code, bits, lanes } = raw.dtype;
        let dtype = DType::new(TypeCode(code), bits, lanes);
        let real = bits.is_multiple_of(8) && lanes == 1 && !dtype.is_complex();
        if raw.device.device_type != DeviceKind::CPU.0 || raw.byte_offset != 0 || !real {
            return None;
        }
        let ndim = usize::try_from(raw.ndim).ok()?;
        let mut count = 1usize;
        for axis in (0..ndim).rev() {
            // SAFETY:
            // - as above: each has as many numbers as there are dimensions.
            let (size, stride) = unsafe {
                let no_stride = raw.strides.is_null();
                let stride = (!no_stride).then(|| *raw.strides.wrapping_add(axis));
                (*raw.shape.wrapping_add(axis), stride)
            };
            let size = usize::try_from(size).ok()?;
            let is_next = |stride: i64| usize::try_from(stride) == Ok(count);
            if size != 1 && !stride.is_none_or(is_next) {
                return None;
            }
            count = count.checked_mul(size)?;
        }
        let data: *mut u8 = raw.data.cast();
        (count > 0 && !data.is_null()).then_some(Flat { data, count, dtype })
    }

    /// What torch says of a tensor: shape and strides are the tensor's own.
    #[inline]
    fn read(&self, tensor: &Bound<'_, PyAny>) -> ExportResult<DLTensor> {
        let mut raw = DLTensor {
            data: std::ptr::null_mut(),
            device: DLDevice {
                device_type: 0,
                device_id: 0,
            },
            ndim: 0,
            dtype: DLDataType {
                code: 0,
                bits: 0,
                lanes: 0,
            },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        // SAFETY:
        // - The thread is attached, and the table was found on the type of `tensor`.
        // - `raw` is a DLTensor to be filled.
        let code = unsafe { (self.view)(tensor.as_ptr().cast(), &mut raw) };
        if code != 0 {
            let py = tensor.py();
            return Err(ExportError::raised(
                py,
                "torch cannot export it",
                PyErr::fetch(py),
            ));
        }
        Ok(raw)
    }

    /// torch's current stream on CUDA device `dev`.
    ///
    /// # Errors
    /// What torch raised.
    pub fn current_stream(&self, py: Python<'_>, dev: i32) -> ExportResult<u64> {
        let mut stream = std::ptr::null_mut();
        // SAFETY:
        // - The thread is attached; `stream` is a pointer to be filled.
        let code = unsafe { (self.stream)(DeviceKind::CUDA.0, dev, &mut stream) };
        if code != 0 {
            return Err(ExportError::raised(
                py,
                "torch has no current stream",
                PyErr::fetch(py),
            ));
        }
        Ok(stream.addr() as u64)
    }
}
