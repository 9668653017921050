//! Which exporter lends the memory of a type: asked once per type, then remembered.

use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dlpack_core::View;
use pyo3::prelude::*;
use pyo3::types::PyType;
use tensor_comm::lane::Flat;

mod registered;

use crate::elsewhere;
use crate::errors::{ExportError, ExportResult};
use crate::framework::{Exporter, Framework, Intent};
use crate::generic::Generic;
use crate::loan::Loan;
use crate::order::StreamOrder;

static FRAMEWORKS: OnceLock<Vec<Box<dyn Framework>>> = OnceLock::new();

/// Remembered types. An entry holds its type, so that its address cannot come to mean another one.
struct Entry {
    ty: Py<PyType>,
    exporter: Arc<dyn Exporter>,
}

static KNOWN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// The type that most tensors are of, found without the lock: the first that was met whose elements are as simple as
/// [`Exporter::flat`] says. Only a bridge's exporter says so, and no rules replace that of the bridge's own type.
static PLAIN: OnceLock<Entry> = OnceLock::new();
/// Programs that make classes at run time must not fill memory: beyond this many the oldest go.
const CAPACITY: usize = 64;

/// Says which frameworks this process knows, first come first asked. The first call counts.
pub fn install(frameworks: Vec<Box<dyn Framework>>) {
    let _ = FRAMEWORKS.set(frameworks);
}

/// The exporter for the type of `obj`, if that type was seen before: it is a tensor then.
#[inline]
pub fn known(obj: &Bound<'_, PyAny>) -> Option<Arc<dyn Exporter>> {
    let ty = obj.get_type_ptr();
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = known.iter().find(|entry| entry.ty.as_ptr() == ty.cast());
    entry.map(|entry| Arc::clone(&entry.exporter))
}

/// The elements of `obj`, if it is of a type that was seen before and as simple as [`Exporter::flat`] says.
#[inline]
pub fn flat(obj: &Bound<'_, PyAny>, intent: Intent) -> Option<Flat> {
    let ty = obj.get_type_ptr();
    if let Some(plain) = PLAIN.get()
        && plain.ty.as_ptr() == ty.cast()
    {
        return plain.exporter.flat(obj, intent);
    }
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = known.iter().find(|entry| entry.ty.as_ptr() == ty.cast())?;
    let flat = entry.exporter.flat(obj, intent)?;
    PLAIN.get_or_init(|| Entry {
        ty: entry.ty.clone_ref(obj.py()),
        exporter: Arc::clone(&entry.exporter),
    });
    Some(flat)
}

/// The exporter for the type of `obj`.
///
/// # Errors
/// [`ExportError::NotATensor`] when no framework claims it and it speaks no protocol.
#[inline]
pub fn exporter(obj: &Bound<'_, PyAny>) -> ExportResult<Arc<dyn Exporter>> {
    match known(obj) {
        Some(exporter) => Ok(exporter),
        None => learn(obj),
    }
}

#[cold]
fn learn(obj: &Bound<'_, PyAny>) -> ExportResult<Arc<dyn Exporter>> {
    let ty = obj.get_type();
    let ruled = registered::claim(&ty)
        .map_err(|e| ExportError::raised(obj.py(), "its registered rules cannot be read", e))?;
    let exporter = match ruled {
        Some(exporter) => exporter,
        None => unruled(obj)?,
    };
    let entry = Entry {
        ty: ty.unbind(),
        exporter: Arc::clone(&exporter),
    };
    let forgotten = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (known.len() >= CAPACITY).then(|| known.remove(0));
        known.push(entry);
        oldest
    };
    // Outside the lock: dropping the last reference to a type runs Python code.
    drop(forgotten);
    Ok(exporter)
}

/// The exporter that a type has without any registered rules.
fn unruled(obj: &Bound<'_, PyAny>) -> ExportResult<Arc<dyn Exporter>> {
    let ty = obj.get_type();
    for framework in FRAMEWORKS.get().map_or(&[][..], Vec::as_slice) {
        let found = framework
            .claim(&ty)
            .map_err(|e| ExportError::raised(obj.py(), "its type cannot be looked at", e))?;
        if let Some(exporter) = found {
            return Ok(exporter);
        }
    }
    Generic::claim(obj)
}

/// Forgets what was learned about types: rules changed.
pub fn forget() {
    let known = std::mem::take(&mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner));
    // Outside the lock: dropping the last reference to a type runs Python code.
    drop(known);
}

/// [`exporter`], whose errors name the argument.
fn named(name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Arc<dyn Exporter>> {
    exporter(obj).map_err(|error| error.named(obj.py(), name))
}

/// Lends the memory of `obj` for `intent`; `name` is the argument's name for messages.
///
/// # Errors
/// `TypeError`: not a tensor. `BufferError`: not exportable, or not writable for a receive.
#[inline]
pub fn lend(
    name: &str,
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> PyResult<Loan> {
    lend_by(&*named(name, obj)?, name, obj, intent, order)
}

/// [`lend`] for an operation that reads its tensor when it begins and writes it when it ends: what only its
/// framework can copy is copied by it.
///
/// # Errors
/// As [`lend`].
#[inline]
pub fn lend_once(
    name: &str,
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> PyResult<Loan> {
    lend_once_by(&*named(name, obj)?, name, obj, intent, order)
}

/// [`lend_once`] by an exporter that is known to be the one of this type; the name is only made a string for a message.
///
/// # Errors
/// As [`lend_by`].
#[inline]
pub fn lend_once_by(
    exporter: &dyn Exporter,
    name: &(impl Display + ?Sized),
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> PyResult<Loan> {
    match exporter.export(obj, intent, order) {
        Ok(loan) if is_fit(loan.view(), intent) => Ok(loan),
        Ok(loan) => made_fit(loan, name, obj, intent, order),
        Err(error) => Err(error.named(obj.py(), &name.to_string())),
    }
}

/// Whether memory that was lent can be used as it is.
#[inline]
fn is_fit(view: &View, intent: Intent) -> bool {
    !elsewhere::is(view) && (intent == Intent::Send || view.check_writable().is_ok())
}

/// Memory that can be used in the place of what cannot; or why there is none.
#[cold]
fn made_fit(
    loan: Loan,
    name: &(impl Display + ?Sized),
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> PyResult<Loan> {
    let named = |error: ExportError| error.named(obj.py(), &name.to_string());
    if intent == Intent::Receive {
        let writable = loan.view().check_writable();
        writable.map_err(|error| named(error.into()))?;
    }
    elsewhere::bring(obj, intent, order).map_err(named)
}

/// [`lend`] by an exporter that is known to be the one of this type.
///
/// # Errors
/// `BufferError`: not exportable, or not writable for a receive.
#[inline]
pub fn lend_by(
    exporter: &dyn Exporter,
    name: &(impl Display + ?Sized),
    obj: &Bound<'_, PyAny>,
    intent: Intent,
    order: &mut StreamOrder,
) -> PyResult<Loan> {
    let py = obj.py();
    let loan = exporter
        .export(obj, intent, order)
        .map_err(|error| error.named(py, &name.to_string()))?;
    if intent == Intent::Receive {
        loan.view()
            .check_writable()
            .map_err(|error| ExportError::from(error).named(py, &name.to_string()))?;
    }
    Ok(loan)
}
