//! The [`Framework`] of NumPy.

use std::sync::Arc;

use dlpack_core::DType;
use py_bridge::Flat;
use py_bridge::framework::derives_from;
use py_bridge::{
    ExportError, ExportResult, Exporter, Framework, Intent, Loan, StreamOrder, array_interface,
    buffer, typestr,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::plain;

/// NumPy.
pub struct NumPy;

impl Framework for NumPy {
    fn name(&self) -> &'static str {
        "numpy"
    }

    fn claim(&self, ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>> {
        Ok(if derives_from(ty, "numpy.ma", "MaskedArray")? {
            Some(Arc::new(Masked))
        } else if derives_from(ty, "numpy", "ndarray")? {
            let plain = plain::is_known(ty)?;
            Some(Arc::new(Array { plain }))
        } else if derives_from(ty, "numpy", "generic")? {
            Some(Arc::new(Scalar))
        } else {
            None
        })
    }
}

/// Lends arrays.
struct Array {
    /// They are of the very type whose fields are known.
    plain: bool,
}

impl Array {
    /// Lends arrays of any type.
    const ANY: Array = Array { plain: false };
}

impl Exporter for Array {
    fn framework(&self) -> &'static str {
        "numpy"
    }

    #[inline]
    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        _order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        if self.plain
            // SAFETY:
            // - the registry gives this exporter instances of the type that was claimed.
            && let Some(view) = unsafe { plain::view(obj, intent) }
        {
            return Ok(Loan::of_object(view, "array", obj.clone().unbind()));
        }
        match buffer::export(obj, intent) {
            Ok((buffer, view)) => Ok(Loan::of_buffer(buffer, view)),
            Err(ExportError::Raised(_, refusal)) => by_interface(obj, refusal),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn flat(&self, obj: &Bound<'_, PyAny>, intent: Intent) -> Option<Flat> {
        // SAFETY:
        // - the registry gives this exporter instances of the type that was claimed.
        self.plain
            .then(|| unsafe { plain::flat(obj, intent) })
            .flatten()
    }
}

/// Lends arrays with a mask that masks nothing. Every protocol of theirs forgets the mask.
struct Masked;

impl Exporter for Masked {
    fn framework(&self) -> &'static str {
        "numpy"
    }

    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        let py = obj.py();
        let mask = obj.getattr(intern!(py, "mask"))?;
        // The scalar False is numpy.ma.nomask; masks of records have no `any`.
        let masks = match mask.call_method0(intern!(py, "any")) {
            Ok(any) => any.is_truthy()?,
            Err(_) => true,
        };
        if masks {
            return Err(ExportError::Buffer(
                "it is a masked array, and MPI carries no mask; fill it (`a.filled(0)`) or pass `a.data` and `a.mask` apart"
                    .to_owned(),
            ));
        }
        Array::ANY.export(obj, intent, order)
    }
}

/// Lends scalars, which are values: some of their protocols name memory that is gone at once, and
/// datetimes call themselves bytes. An array of the scalar tells the truth.
struct Scalar;

impl Exporter for Scalar {
    fn framework(&self) -> &'static str {
        "numpy"
    }

    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        if intent == Intent::Receive {
            return Err(ExportError::Buffer(
                "a NumPy scalar is read-only and cannot receive; pass a 0-d array, `np.array(x)`"
                    .to_owned(),
            ));
        }
        let py = obj.py();
        let array = py
            .import(intern!(py, "numpy"))?
            .call_method1(intern!(py, "asarray"), (obj,))?;
        let loan = Array::ANY.export(&array, intent, order)?;
        Ok(loan.map_view(|view| view.with_readonly(true)))
    }
}

/// Dtypes that have no buffer format, by their name or typestr; else what the buffer protocol said.
#[cold]
fn by_interface(obj: &Bound<'_, PyAny>, refusal: PyErr) -> ExportResult<Loan> {
    let py = obj.py();
    match array_interface::export(obj, named(obj)?) {
        Ok(loan) => Ok(loan),
        Err(ExportError::Raised(..)) => Err(ExportError::raised(
            py,
            "its buffer cannot be exported",
            refusal,
        )),
        Err(error) => Err(error),
    }
}

/// The dtype that only its name tells (`bfloat16`, whose typestr is `<V2`).
fn named(obj: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let py = obj.py();
    let dtype = obj.getattr(intern!(py, "dtype"))?;
    let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
    let itemsize: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    Ok(typestr::named(&name, itemsize))
}
