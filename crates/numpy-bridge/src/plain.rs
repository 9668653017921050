//! Plain arrays, read where they say what they are: C order, native numbers. What NumPy's C headers
//! publish of its arrays is the same in NumPy 1 and 2, and is compared with what arrays say of themselves
//! before it is believed.

use std::ffi::{c_char, c_int, c_void};

use dlpack_core::{DType, Device, View};
use py_bridge::Flat;
use py_bridge::Intent;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// NumPy's `PyArrayObject_fields`, as far as it is looked at.
#[repr(C)]
struct Array {
    head: ffi::PyObject,
    data: *mut u8,
    ndim: c_int,
    shape: *const isize,
    strides: *const isize,
    base: *mut c_void,
    descr: *const Descr,
    flags: c_int,
}

/// NumPy's `PyArray_Descr`, as far as it is looked at.
#[repr(C)]
struct Descr {
    head: ffi::PyObject,
    scalar: *mut c_void,
    kind: c_char,
    letter: c_char,
    order: c_char,
    flags: c_char,
    number: c_int,
}

const C_CONTIGUOUS: c_int = 0x1;
const WRITEABLE: c_int = 0x400;
/// Writing is to be warned of.
const WARN: c_int = 1 << 31;
/// More dimensions are for the general way.
const NDIM: usize = 6;

/// NumPy's numbers of its own types, `bool` to `clongdouble`, by their sizes on this platform; then `half`.
const LONG: DType = DType::new(DType::I64.code, 8 * size_of::<std::ffi::c_long>() as u8, 1);
const ULONG: DType = DType::new(DType::U64.code, 8 * size_of::<std::ffi::c_long>() as u8, 1);
const NUMBERS: [Option<DType>; 24] = {
    let mut numbers = [None; 24];
    let known = [
        DType::BOOL,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        LONG,
        ULONG,
        DType::I64,
        DType::U64,
        DType::F32,
        DType::F64,
    ];
    let mut i = 0;
    while i < known.len() {
        numbers[i] = Some(known[i]);
        i += 1;
    }
    // 13 and 16 are long double, whose size the general way asks for.
    numbers[14] = Some(DType::C64);
    numbers[15] = Some(DType::C128);
    numbers[23] = Some(DType::F16);
    numbers
};

/// What a plain array is; `None` where the general way must look at it, or refuse it.
///
/// # Safety
/// - `array` is an instance of `numpy.ndarray` itself, and [`is_known`] says yes.
#[inline]
pub unsafe fn view(array: &Bound<'_, PyAny>, intent: Intent) -> Option<View> {
    // SAFETY:
    // - by the caller's promise.
    let Plain {
        data,
        shape,
        dtype,
        writable,
    } = unsafe { read(array, intent) }?;
    // SAFETY:
    // - an array in C order is its shape's elements from `data` on, in memory that it keeps.
    unsafe { View::from_parts(data, shape, None, dtype, Device::CPU, !writable) }.ok()
}

/// The elements of a plain array, as [`view`] finds them.
///
/// # Safety
/// - As for [`view`].
#[inline]
pub unsafe fn flat(array: &Bound<'_, PyAny>, intent: Intent) -> Option<Flat> {
    // SAFETY:
    // - by the caller's promise.
    let Plain {
        data, shape, dtype, ..
    } = unsafe { read(array, intent) }?;
    let mut count = 1usize;
    for &size in shape {
        count = count.checked_mul(usize::try_from(size).ok()?)?;
    }
    (!data.is_null()).then_some(Flat { data, count, dtype })
}

/// The fields of a plain array.
struct Plain<'a> {
    data: *mut u8,
    shape: &'a [i64],
    dtype: DType,
    writable: bool,
}

/// # Safety
/// - As for [`view`].
#[inline]
unsafe fn read<'a>(array: &'a Bound<'_, PyAny>, intent: Intent) -> Option<Plain<'a>> {
    // SAFETY:
    // - by the caller's promise; the array is held, and attached threads alone change it.
    let (array, number, order) = unsafe {
        let array = &*array.as_ptr().cast::<Array>();
        let descr = &*array.descr;
        (array, descr.number, descr.order as u8)
    };
    let writable = array.flags & WRITEABLE != 0;
    let plain = array.flags & C_CONTIGUOUS != 0
        && array.flags & WARN == 0
        && (writable || intent == Intent::Send)
        && matches!(order, b'=' | b'|');
    let ndim = usize::try_from(array.ndim)
        .ok()
        .filter(|&ndim| ndim <= NDIM)?;
    let dtype = (*NUMBERS.get(usize::try_from(number).ok()?)?).filter(|_| plain)?;
    const { assert!(size_of::<isize>() == size_of::<i64>()) };
    let shape: &[i64] = match ndim {
        0 => &[],
        // SAFETY:
        // - an array has as many sizes as dimensions; `isize` is as wide as `i64`, asserted above.
        _ => unsafe { std::slice::from_raw_parts(array.shape.cast(), ndim) },
    };
    Some(Plain {
        data: array.data,
        shape,
        dtype,
        writable,
    })
}

/// Whether `ty` is `numpy.ndarray` itself, and its instances look as they do here.
///
/// # Errors
/// What Python raised on the way.
pub fn is_known(ty: &Bound<'_, PyType>) -> PyResult<bool> {
    static KNOWN: PyOnceLock<bool> = PyOnceLock::new();
    let numpy = ty.py().import("numpy")?;
    if !ty.is(&numpy.getattr("ndarray")?) {
        return Ok(false);
    }
    let known = KNOWN.get_or_try_init(ty.py(), || looks_right(&numpy))?;
    Ok(*known)
}

/// Compares arrays of different kinds with what they say of themselves.
fn looks_right(numpy: &Bound<'_, PyModule>) -> PyResult<bool> {
    let basic: usize = numpy
        .getattr("ndarray")?
        .getattr("__basicsize__")?
        .extract()?;
    if basic < size_of::<Array>() {
        return Ok(false);
    }
    for (number, dtype) in NUMBERS.iter().enumerate() {
        let Some(dtype) = dtype else { continue };
        let scalar = numpy.getattr("dtype")?.call1((letter(number),))?;
        let size: usize = scalar.getattr("itemsize")?.extract()?;
        let told: usize = scalar.getattr("num")?.extract()?;
        let array = numpy.call_method1("zeros", ((3, 5), &scalar))?;
        if told != number || Some(size) != dtype.itemsize() || !is_as_told(&array, *dtype)? {
            return Ok(false);
        }
    }
    let other = if cfg!(target_endian = "big") {
        "<f4"
    } else {
        ">f4"
    };
    let fixed = numpy.call_method1("zeros", (7,))?;
    fixed.call_method1("setflags", (false,))?;
    let odd = [
        (numpy.call_method1("zeros", (7, other))?, Intent::Send),
        (
            numpy.call_method1("zeros", ((3, 5),))?.getattr("T")?,
            Intent::Send,
        ),
        (fixed, Intent::Receive),
    ];
    // SAFETY:
    // - they are arrays, whose fields are where they were compared above.
    Ok(odd
        .iter()
        .all(|(array, intent)| unsafe { view(array, *intent) }.is_none()))
}

fn is_as_told(array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let told = array.getattr("__array_interface__")?;
    let (address, _): (usize, bool) = told.get_item("data")?.extract()?;
    let raw = array.as_ptr().cast::<Array>();
    // SAFETY:
    // - an array is at least as large as these fields (`looks_right`); nothing is followed before all are right.
    let (data, ndim, shape, descr) =
        unsafe { ((*raw).data, (*raw).ndim, (*raw).shape, (*raw).descr) };
    let described = array.getattr("dtype")?;
    if data.addr() != address
        || ndim != 2
        || shape.is_null()
        || descr.addr() != described.as_ptr().addr()
    {
        return Ok(false);
    }
    // SAFETY:
    // - the fields that lead elsewhere were compared just now, or are read within what they lead to.
    let found = unsafe { view(array, Intent::Receive) };
    Ok(found.is_some_and(|view| {
        view.data().addr() == address && view.layout().shape() == [3, 5] && view.dtype() == dtype
    }))
}

/// NumPy's letter of its type of this number.
fn letter(number: usize) -> &'static str {
    const LETTERS: [&str; 24] = [
        "?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "f", "d", "g", "F", "D", "G", "O",
        "S", "U", "V", "M", "m", "e",
    ];
    LETTERS.get(number).copied().unwrap_or("V")
}
