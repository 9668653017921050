//! What torch's tensors and storages say of themselves, read where torch has it instead of asked for by
//! methods, each of which costs as much as everything else that a small message needs. Where it lies is found by
//! comparing objects with what their methods say; where that leaves a doubt, nothing is read.
//!
//! Reads two things only: the negative bit, and a storage's first byte and length; `flats.rs` reads more of tensors that
//! are alike, and `versions.rs` finds where writes are counted. Writes nothing.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::exchange::Exchange;

/// The word of a Python object that holds the address of torch's own, after the two of every object.
const INNER: usize = 2;
/// Words of torch's own objects that are looked at: each is longer in every torch that has the exchange API, in which
/// a tensor's inner object has at least 24 words and a storage's at least 9.
pub(crate) const TENSOR_WORDS: usize = 24;
pub(crate) const STORAGE_WORDS: usize = 9;

/// Where what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    pub(crate) keys: usize,
    negative: u64,
    /// Address of `torch.UntypedStorage`: what a subclass or a function mode gives instead is something else.
    storage: usize,
    first: usize,
    bytes: usize,
}

/// A torch object as Python has it.
#[repr(C)]
struct Outer {
    head: ffi::PyObject,
    inner: *mut u64,
}
const _: () = assert!(std::mem::offset_of!(Outer, inner) == 8 * INNER);

/// Objects to compare: tensors that differ from each other as little as can be, each pair in the negative bit; and
/// storages, with memory of torch's and of another owner's.
const SAMPLES: &CStr = c"
import torch
kinds = ((5, torch.float32), (1, torch.int64), (3, torch.complex64))
plain = [torch.ones(n, dtype=d, device='cpu') for n, d in kinds]
leaf = torch.ones(7, device='cpu', requires_grad=True)
pairs = [(t, t._neg_view()) for t in (*plain, leaf)]
pairs += [(t[:], t[:]._neg_view()) for t in (*plain, leaf)]
pairs += [(t.detach(), t._neg_view().detach()) for t in plain]
others = [torch.frombuffer(bytearray(n), dtype=torch.uint8) for n in (4099, 10007)]
storages = [t.untyped_storage() for t in (*plain, leaf, *others)]
tensors = [(pair[which], pair[which]._cdata, pair[which].is_neg()) for pair in pairs for which in (0, 1)]
storages = [(s, s._cdata, s.data_ptr(), s.nbytes()) for s in storages]
owner = torch.UntypedStorage
sizes = (torch.Tensor.__basicsize__, torch.UntypedStorage.__basicsize__)
";

impl Fields {
    /// Where this torch has them, if it is sure.
    pub fn get(py: Python<'_>) -> Option<Fields> {
        static FOUND: PyOnceLock<Option<Fields>> = PyOnceLock::new();
        // A torch that lacks what is asked for here is asked by its methods.
        *FOUND.get_or_init(py, || find(py).unwrap_or(None))
    }

    /// Whether the tensor is a lazy negative view.
    ///
    /// # Safety
    /// - It is an instance of `torch.Tensor`.
    #[inline]
    pub unsafe fn is_negative(&self, tensor: &Bound<'_, PyAny>) -> Option<bool> {
        // SAFETY:
        // - by the caller's promise; this word was found in the inner object of tensors.
        Some(unsafe { word(inner(tensor)?, self.keys) } & self.negative != 0)
    }

    /// Address of the first byte, and bytes, of a storage; `None` of anything else.
    #[inline]
    pub fn extent(&self, storage: &Bound<'_, PyAny>) -> Option<(usize, usize)> {
        if storage.get_type_ptr().addr() != self.storage {
            return None;
        }
        // SAFETY:
        // - it is an instance of torch's own class.
        unsafe { self.within(inner(storage)?) }
    }

    /// The same of a storage's inner object.
    ///
    /// # Safety
    /// - It is one.
    #[inline]
    pub(crate) unsafe fn within(&self, storage: *mut u64) -> Option<(usize, usize)> {
        // SAFETY:
        // - by the caller's promise; these words were found in the inner objects of storages.
        let (first, bytes) = unsafe { (word(storage, self.first), word(storage, self.bytes)) };
        // A size that is an expression is a pointer in disguise, marked by its highest bit.
        let bytes = i64::try_from(bytes).ok()?;
        Some((first as usize, bytes as usize))
    }
}

/// Torch's own object behind the one that Python has.
///
/// # Safety
/// - It is one of torch's objects for which this was compared.
#[inline]
pub(crate) unsafe fn inner(object: &Bound<'_, PyAny>) -> Option<*mut u64> {
    // SAFETY:
    // - by the caller's promise; the object is held.
    let inner = unsafe { (*object.as_ptr().cast::<Outer>()).inner };
    (!inner.is_null()).then_some(inner)
}

/// A word of it.
///
/// # Safety
/// - The object has so many words.
#[inline]
pub(crate) unsafe fn word(inner: *mut u64, at: usize) -> u64 {
    // SAFETY:
    // - by the caller's promise; torch's objects are aligned. Another thread may change the word while torch has let
    //   go of the interpreter, so it is read as an atomic.
    unsafe { AtomicU64::from_ptr(inner.wrapping_add(at)) }.load(Ordering::Relaxed)
}

/// Words of a line of the caches.
pub(crate) const LINE: usize = 8;

/// An address that a word holds.
#[inline]
pub(crate) fn pointer<T>(word: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(word as usize)
}

fn find(py: Python<'_>) -> PyResult<Option<Fields>> {
    if cfg!(not(target_pointer_width = "64")) {
        return Ok(None);
    }
    let class = py.import("torch")?.getattr("Tensor")?;
    if Exchange::of(class.cast()?)?.is_none() {
        return Ok(None);
    }
    let made = PyDict::new(py);
    py.run(SAMPLES, Some(&made), None)?;
    let get = |name: &str| made.get_item(name)?.ok_or_else(|| missing(name));
    let storage_class = get("owner")?.as_ptr().addr();
    let (tensor, storage): (usize, usize) = get("sizes")?.extract()?;
    if tensor.min(storage) < size_of::<Outer>() {
        return Ok(None);
    }
    let (mut tensors, mut storages) = (Vec::new(), Vec::new());
    for row in get("tensors")?.cast::<PyList>()? {
        let (tensor, told, negative): (Bound<'_, PyAny>, u64, bool) = row.extract()?;
        let Some(words) = compared::<TENSOR_WORDS>(&tensor, told) else {
            return Ok(None);
        };
        tensors.push((words, negative));
    }
    for row in get("storages")?.cast::<PyList>()? {
        let (storage, told, first, bytes): (Bound<'_, PyAny>, u64, u64, u64) = row.extract()?;
        let Some(words) = compared::<STORAGE_WORDS>(&storage, told) else {
            return Ok(None);
        };
        storages.push((words, first, bytes));
    }
    let keys = only((0..TENSOR_WORDS * 64).filter(|bit| {
        let is_set = |words: &[u64]| words[bit / 64] >> (bit % 64) & 1 == 1;
        tensors
            .iter()
            .all(|(words, negative)| is_set(words) == *negative)
    }));
    let place = |told: fn(&(Vec<u64>, u64, u64)) -> u64| {
        only((0..STORAGE_WORDS).filter(|&at| storages.iter().all(|row| row.0[at] == told(row))))
    };
    let (first, bytes) = (place(|row| row.1), place(|row| row.2));
    Ok(match (keys, first, bytes) {
        (Some(bit), Some(first), Some(bytes)) if !tensors.is_empty() => Some(Fields {
            keys: bit / 64,
            negative: 1 << (bit % 64),
            storage: storage_class,
            first,
            bytes,
        }),
        _ => None,
    })
}

pub(crate) fn missing(name: &str) -> PyErr {
    pyo3::exceptions::PyKeyError::new_err(name.to_owned())
}

/// The words of an object's inner one, if that is where the object says.
pub(crate) fn compared<const WORDS: usize>(
    object: &Bound<'_, PyAny>,
    told: u64,
) -> Option<Vec<u64>> {
    // SAFETY:
    // - `find` has seen that such objects are as large as `Outer`; the word leads nowhere before it was compared.
    let inner = unsafe { inner(object) }?;
    if inner.addr() as u64 != told {
        return None;
    }
    // SAFETY:
    // - it is the inner object, and has so many words.
    Some((0..WORDS).map(|at| unsafe { word(inner, at) }).collect())
}

/// The only one there is.
pub(crate) fn only(mut found: impl Iterator<Item = usize>) -> Option<usize> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
