//! Types for which a third party registered rules (entry points of the group `dlmpi.frameworks`, or
//! `dlmpi.frameworks.register`). Knows what the rules may say, and nobody who says them.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::errors::{ExportError, ExportResult};
use crate::framework::{Exporter, Intent};
use crate::generic::Generic;
use crate::loan::Loan;
use crate::order::StreamOrder;

/// Packages whose types nobody else has rules for: the common ones need not be looked up.
const SETTLED: [&str; 4] = ["builtins", "numpy", "torch", "cupy"];

/// The rules of one type.
struct Registered {
    /// `export(tensor, writable)`: another object to lend instead.
    export: Option<Py<PyAny>>,
    /// Why such a tensor may not be written.
    immutable: Option<String>,
    /// `wrote(tensor)`: its memory has changed.
    wrote: Option<Py<PyAny>>,
}

/// An exporter by somebody's rules, if there are any for this type.
///
/// # Errors
/// What looking for rules raised.
pub fn claim(ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>> {
    let py = ty.py();
    if is_settled(ty)? {
        return Ok(None);
    }
    let rules = py
        .import(intern!(py, "dlmpi.frameworks"))?
        .call_method1(intern!(py, "rules_of"), (ty,))?;
    if rules.is_none() {
        return Ok(None);
    }
    let rule = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        let found = rules.getattr_opt(PyString::intern(py, name))?;
        Ok(found.filter(|rule| !rule.is_none()))
    };
    Ok(Some(Arc::new(Registered {
        export: rule("export")?.map(Bound::unbind),
        immutable: rule("immutable")?
            .map(|words| words.extract())
            .transpose()?,
        wrote: rule("wrote")?.map(Bound::unbind),
    })))
}

/// Does the type itself come from a package that has a bridge of its own?
fn is_settled(ty: &Bound<'_, PyType>) -> PyResult<bool> {
    let Ok(module) = ty.module() else {
        return Ok(true);
    };
    let module = module.to_str()?;
    let package = module.split('.').next().unwrap_or(module);
    Ok(SETTLED.contains(&package))
}

impl Exporter for Registered {
    fn framework(&self) -> &'static str {
        "registered"
    }

    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        if let (Intent::Receive, Some(words)) = (intent, &self.immutable) {
            return Err(ExportError::Buffer(words.clone()));
        }
        let py = obj.py();
        let loan = match &self.export {
            None => super::unruled(obj)?.export(obj, intent, order)?,
            Some(export) => {
                let other = export
                    .bind(py)
                    .call1((obj, intent == Intent::Receive))
                    .map_err(|e| ExportError::raised(py, "its rules refuse it", e))?;
                // An object of the same type would ask these rules for ever.
                let exporter = match other.get_type().is(obj.get_type()) {
                    true => Generic::claim(&other)?,
                    false => super::exporter(&other)?,
                };
                exporter
                    .export(&other, intent, order)?
                    .holding(obj.clone().unbind())
            }
        };
        Ok(match (&self.wrote, intent) {
            (Some(rule), Intent::Receive) => {
                let call = PyTuple::new(py, [rule.bind(py), obj])?;
                loan.on_write(tell, call.into_any().unbind())
            }
            _ => loan,
        })
    }
}

/// Calls the rule of each pair `(rule, tensor)`.
fn tell(pairs: &Bound<'_, PyTuple>) -> PyResult<()> {
    let call = |pair: Bound<'_, PyAny>| pair.get_item(0)?.call1((pair.get_item(1)?,)).map(drop);
    pairs.iter().map(call).fold(Ok(()), PyResult::and)
}
