//! The seam behind which every array framework sits. Knows none of them.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use tensor_comm::Flow;

use crate::errors::ExportResult;
use crate::loan::{Loan, Wrote};
use crate::order::StreamOrder;
use tensor_comm::lane::Flat;

/// What will happen to the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// It is read.
    Send,
    /// It is written; its old content may matter too.
    Receive,
}

impl Intent {
    /// What a message of this flow does to its tensor.
    pub fn of(flow: Flow) -> Intent {
        match flow {
            Flow::Out => Intent::Send,
            Flow::In | Flow::Through => Intent::Receive,
        }
    }
}

/// Lends the memory of objects of one type; what it learns about that type stays in it.
pub trait Exporter: Send + Sync {
    /// The framework's name, for people.
    fn framework(&self) -> &'static str;

    /// Lends the memory of `obj`. Work that the framework has queued on it is ordered by `order`,
    /// which the caller waits for before the memory is touched.
    ///
    /// # Errors
    /// Why the object cannot be lent for this intent.
    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan>;

    /// The elements of `obj` where that is all there is to it: native numbers in C order in host memory, which are there
    /// while `obj` is, may be used for this intent, and of whose use nobody must hear. Runs no Python code.
    fn flat(&self, _obj: &Bound<'_, PyAny>, _intent: Intent) -> Option<Flat> {
        None
    }

    /// The elements of `obj`, for writing, where they are as simple as for [`Exporter::flat`], but that what keeps their
    /// memory besides `obj` is put into `kept`, and that [`Exporter::wrote`] may have to hear.
    fn lend_flat(
        &self,
        obj: &Bound<'_, PyAny>,
        _order: &mut StreamOrder,
        _kept: &mut Vec<Py<PyAny>>,
    ) -> Option<Flat> {
        self.flat(obj, Intent::Receive)
    }

    /// The same where no Python runs before the call has ended, so that nobody can give `obj` other memory, with the atomic
    /// counter that is to be counted up when they were written. Runs none, but for what is asked before the first object.
    fn lend_undisturbed(
        &self,
        obj: &Bound<'_, PyAny>,
        _order: &mut StreamOrder,
    ) -> Option<(Flat, Option<NonNull<u32>>)> {
        Some((self.flat(obj, Intent::Receive)?, None))
    }

    /// Tells that [`Exporter::lend_undisturbed`] is asked of these objects in turn, and now of the first: what the others are can
    /// be fetched meanwhile.
    #[inline]
    fn look_ahead(&self, _objects: &[Borrowed<'_, '_, PyAny>]) {}

    /// Tells the framework that memory of its tensors was written which was lent by [`Exporter::lend_flat`].
    fn wrote(&self) -> Option<Wrote> {
        None
    }
}

/// A framework that recognises its own types.
pub trait Framework: Send + Sync {
    /// The framework's name, for people.
    fn name(&self) -> &'static str;

    /// An exporter for this type, if it is one of the framework's. Asked once per type.
    ///
    /// # Errors
    /// What Python raised while the type was looked at.
    fn claim(&self, ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>>;
}

/// `module.Name` of a type, for messages.
pub fn type_name(ty: &Bound<'_, PyType>) -> String {
    match ty.fully_qualified_name() {
        Ok(name) => name.to_string(),
        Err(_) => "an object of unknown type".to_owned(),
    }
}

/// Is `ty` the class `name` of `module`, or derived from it? Imports nothing: a type whose module is
/// not loaded cannot exist.
///
/// # Errors
/// What Python raised on the way.
pub fn derives_from(ty: &Bound<'_, PyType>, module: &str, name: &str) -> PyResult<bool> {
    let modules = ty.py().import("sys")?.getattr("modules")?;
    let Ok(module) = modules.get_item(module) else {
        return Ok(false);
    };
    match module.getattr_opt(name)? {
        Some(class) => match class.cast::<PyType>() {
            Ok(class) => ty.is_subclass(class),
            Err(_) => Ok(false),
        },
        None => Ok(false),
    }
}
