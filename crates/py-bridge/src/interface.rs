//! The dictionary of NumPy's array interface, which `__array_interface__` and
//! `__cuda_array_interface__` share. Knows neither device nor owner.

use dlpack_core::{DType, Device, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use smallvec::SmallVec;

use crate::errors::{ExportError, ExportResult};
use crate::typestr;

/// What the dictionary says, read but not yet checked as a whole.
pub struct Interface {
    data: usize,
    readonly: bool,
    shape: SmallVec<[i64; 6]>,
    strides: Option<SmallVec<[i64; 6]>>,
    dtype: DType,
    /// The stream that the producer names, `None` where it names none.
    pub stream: Option<u64>,
    /// Of the interface.
    pub version: i64,
}

impl Interface {
    /// Reads the attribute `name` of `obj`. `dtype` is what the bridge knows better than the typestr.
    ///
    /// # Errors
    /// [`ExportError::Raised`] when the attribute cannot be read, [`ExportError::Buffer`] when it says
    /// something that cannot be used.
    pub fn read(
        obj: &Bound<'_, PyAny>,
        name: &str,
        dtype: Option<DType>,
    ) -> ExportResult<Interface> {
        let py = obj.py();
        let raised = |e| ExportError::raised(py, format!("its `{name}` cannot be used"), e);
        let dict = obj.getattr(PyString::intern(py, name)).map_err(raised)?;
        let field = |key: &str| optional(&dict, key).map_err(raised);
        if field("mask")?.is_some() {
            return Err(ExportError::Buffer(format!(
                "its `{name}` has a mask, which MPI cannot carry; fill the masked elements first"
            )));
        }
        let dtype = match dtype {
            Some(dtype) => dtype,
            None => {
                let text: String = required(&dict, "typestr").map_err(raised)?;
                if let Some(fields) = field("descr")? {
                    check_fields(&fields, 0)?;
                }
                typestr::parse(&text).map_err(ExportError::Buffer)?
            }
        };
        let (data, readonly): (usize, bool) = match field("data")? {
            Some(data) => data.extract().map_err(raised)?,
            None => {
                return Err(ExportError::Buffer(format!(
                    "its `{name}` names no address"
                )));
            }
        };
        let strides = match field("strides")? {
            Some(strides) => Some(integers(&strides).map_err(raised)?),
            None => None,
        };
        let shape: Bound<'_, PyAny> = required(&dict, "shape").map_err(raised)?;
        let shape = integers(&shape).map_err(raised)?;
        if strides.as_ref().is_some_and(|s| s.len() != shape.len()) {
            let error = PyValueError::new_err("shape and strides differ in length");
            return Err(raised(error));
        }
        let stream = match field("stream")? {
            Some(stream) => Some(stream.extract().map_err(raised)?),
            None => None,
        };
        let version = match field("version")? {
            Some(version) => version.extract().map_err(raised)?,
            None => 0,
        };
        Ok(Interface {
            data,
            readonly,
            shape,
            strides,
            dtype,
            stream,
            version,
        })
    }

    /// Where the first element is.
    pub fn address(&self) -> usize {
        self.data
    }

    /// The checked description, for memory of `device`.
    ///
    /// # Errors
    /// What the door says.
    ///
    /// # Safety
    /// - The producer's dictionary tells the truth about its memory, which lives as long as the view is used.
    pub unsafe fn view(&self, device: Device) -> ExportResult<View> {
        let data = std::ptr::with_exposed_provenance_mut(self.data);
        // SAFETY:
        // - The caller's promise.
        let view = unsafe {
            View::from_parts(
                data,
                &self.shape,
                self.strides.as_deref(),
                self.dtype,
                device,
                self.readonly,
            )
        };
        Ok(view?)
    }
}

/// Records nest this deep at most; deeper ones are not looked through, and refused.
const NESTING: usize = 16;

/// Refuses records whose fields mean nothing elsewhere: Python objects, foreign byte order. The typestr
/// of a record says only how large it is.
fn check_fields(fields: &Bound<'_, PyAny>, depth: usize) -> ExportResult<()> {
    if depth > NESTING {
        return Err(ExportError::Buffer(
            "its records nest too deep; pass a view of bytes".to_owned(),
        ));
    }
    for field in fields.try_iter()? {
        // (name, typestr or nested fields, shape)
        let kind = field?.get_item(1)?;
        match kind.cast::<PyString>() {
            Ok(text) => {
                let refusal = typestr::parse(text.to_str()?).err();
                if let Some(words) = refusal.filter(|_| !is_padding(text)) {
                    return Err(ExportError::Buffer(words));
                }
            }
            Err(_) => check_fields(&kind, depth + 1)?,
        }
    }
    Ok(())
}

/// Void fields may have no size; they are gaps between others.
fn is_padding(typestr: &Bound<'_, PyString>) -> bool {
    typestr.to_str().is_ok_and(|text| text.contains('V'))
}

/// A key that may be missing or `None`.
fn optional<'py>(dict: &Bound<'py, PyAny>, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    match dict.contains(key)? {
        true => Ok(Some(dict.get_item(key)?).filter(|value| !value.is_none())),
        false => Ok(None),
    }
}

fn required<'py, T>(dict: &Bound<'py, PyAny>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let value = optional(dict, key)?
        .ok_or_else(|| PyTypeError::new_err(format!("the key '{key}' is missing")))?;
    value.extract().map_err(Into::into)
}

/// A tuple or list of integers: producers differ in which they give.
fn integers(sequence: &Bound<'_, PyAny>) -> PyResult<SmallVec<[i64; 6]>> {
    sequence.try_iter()?.map(|item| item?.extract()).collect()
}
