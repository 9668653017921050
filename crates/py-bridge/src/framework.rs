//! The seam behind which every array framework sits. Knows none of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tensor_comm::Flow;

use crate::errors::ExportResult;
use crate::fetch;
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
    /// memory besides `obj` is put into `kept`, and that [`Exporter::wrote`] has to hear unless `kept` counts the write.
    fn lend_flat(
        &self,
        obj: &Bound<'_, PyAny>,
        _order: &mut StreamOrder,
        _kept: &mut Kept,
    ) -> Option<Flat> {
        self.flat(obj, Intent::Receive)
    }

    /// Tells that [`Exporter::lend_flat`] is asked of these objects in turn, and now of the first: what the others are can
    /// be fetched meanwhile.
    #[inline]
    fn look_ahead(&self, _objects: &[Borrowed<'_, '_, PyAny>]) {}

    /// Tells the framework that memory of its tensors was written which was lent by [`Exporter::lend_flat`].
    fn wrote(&self) -> Option<Wrote> {
        None
    }
}

/// What keeps the memory of objects that are held besides, and counts that it was written.
#[derive(Debug, Default)]
pub struct Kept {
    all: Vec<Py<PyAny>>,
    counters: Vec<*mut u32>,
    undisturbed: bool,
}

/// Counters between one that is counted up and one that is fetched.
const AHEAD: usize = 16;

impl Kept {
    /// For a call on at most so many objects that ends before it returns to its caller.
    pub fn while_blocking(py: Python<'_>, objects: usize) -> Kept {
        Kept {
            all: Vec::new(),
            counters: Vec::with_capacity(objects),
            undisturbed: is_only_thread(py),
        }
    }

    /// Whether nobody can give an object other memory until the end: the only thread of Python waits.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        self.undisturbed
    }

    /// Keeps an object until the end.
    #[inline]
    pub fn push(&mut self, object: Py<PyAny>) {
        self.all.push(object);
    }

    /// Counts the write of an object here, at the end.
    ///
    /// # Safety
    /// - Nothing disturbs the call, and the counter is there while the object is. All others count it atomically.
    #[inline]
    pub unsafe fn will_count(&mut self, counter: *mut u32) {
        self.counters.push(counter);
    }

    /// Writes that will be counted.
    #[inline]
    pub fn to_count(&self) -> usize {
        self.counters.len()
    }

    /// The objects, all of which are held, were written.
    pub(crate) fn count(&mut self) {
        for (i, &counter) in self.counters.iter().enumerate() {
            if let Some(&later) = self.counters.get(i + AHEAD) {
                fetch(later);
            }
            // SAFETY:
            // - by the promise of whom it came from.
            unsafe { AtomicU32::from_ptr(counter) }.fetch_add(1, Ordering::Relaxed);
        }
        self.counters.clear();
    }
}

/// Whether Python runs no thread but the main one. (`threading` starts a thread before it says so, so none is missed.)
fn is_only_thread(py: Python<'_>) -> bool {
    static COUNT: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let find = || {
        let module = py.import("_thread").ok()?;
        module.getattr("_count").ok().map(Bound::unbind)
    };
    let others = |count: &Py<PyAny>| count.bind(py).call0()?.extract::<usize>();
    let count = COUNT.get_or_init(py, find).as_ref();
    count.is_some_and(|count| others(count).is_ok_and(|others| others == 0))
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
