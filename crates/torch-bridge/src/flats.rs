//! Tensors that are alike: one that torch described as flat stands for all others whose dispatch keys, dtype, device,
//! contiguity and kind of storage are the same words. Of these only numbers differ, and those are read. As in
//! `fields.rs`, the places are found by comparing objects with what they say of themselves, and a doubt means that
//! torch is asked.
//!
//! The dispatch keys say what a tensor is to torch: its backend and layout, lazy bits, wrappers of transforms. The words that all
//! ordinary storages share tell them from those that are copied when they are written. Bits that torch never writes hold
//! what was in that memory before, so they are left out (`written.rs`).

use std::ffi::CStr;
use std::sync::OnceLock;

use dlpack_core::DType;
use py_bridge::{Flat, fetch};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::fields::{
    Fields, LINE, STORAGE_WORDS, TENSOR_WORDS, compared, inner, only, pointer, word,
};
use crate::written::written;

/// Most programs have tensors of few kinds; what comes later is asked about.
const KINDS: usize = 16;
static KNOWN: [OnceLock<Kind>; KINDS] = [const { OnceLock::new() }; KINDS];

/// Where what is, in the words of a tensor's inner object and of a storage's.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    fields: Fields,
    storage: usize,
    numel: usize,
    offset: usize,
    /// Dtype, device and contiguity, among others.
    kind: usize,
    /// The bits of that word which torch writes.
    kind_bits: u64,
    /// What all ordinary storages share, as the bits of their words.
    shared: [u64; STORAGE_WORDS],
}

/// The words of tensors that are alike, and what these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    keys: u64,
    kind: u64,
    storage: [u64; STORAGE_WORDS],
    dtype: DType,
}

/// `alike` are flat and differ in numbers alone; each of `others` differs from them in what must be seen. The first
/// storage has one holder more than the rest.
const SAMPLES: &CStr = c"
import torch
def ones(*shape, dtype=torch.float32, device='cpu'):
    return torch.ones(*shape, dtype=dtype, device=device)
alike = [ones(5, 3), ones(7, 11), ones(2, 4, 9), ones(100)[13:], ones(6, 5)[2:], ones(2)]
held = alike[0][:]
others = [ones(5, 3, dtype=torch.float64), ones(5, 3, dtype=torch.int32), ones(5, 3).t(), ones(5, 3, device='meta')]
lazy = ones(9)._lazy_clone()
def row(t):
    return t, t._cdata, t.untyped_storage(), t.untyped_storage()._cdata
def sample():
    return row(ones(5, 3))
alike = [(*row(t), t.numel(), t.storage_offset()) for t in alike]
others = [(t, t._cdata) for t in others]
lazy = (lazy.untyped_storage(), lazy.untyped_storage()._cdata)
";

impl Places {
    /// Where this torch has them, if it is sure.
    pub fn get(py: Python<'_>, fields: Fields) -> Option<Places> {
        static FOUND: PyOnceLock<Option<Places>> = PyOnceLock::new();
        *FOUND.get_or_init(py, || find(py, fields).unwrap_or(None))
    }

    /// The elements of a tensor that is like one of which torch said that it is flat; `None` also where they reach
    /// beyond its storage.
    ///
    /// # Safety
    /// - It is an instance of `torch.Tensor`.
    #[inline(always)]
    pub unsafe fn flat(&self, tensor: &Bound<'_, PyAny>) -> Option<Flat> {
        // SAFETY:
        // - by the caller's promise; the words were found in the inner objects of tensors.
        let (inner, keys, kind) = unsafe { self.look(tensor) }?;
        let alike = |known: &&Kind| (known.keys, known.kind) == (keys, kind);
        // Lists are mostly of one kind, and programs of few; storages of one owner are alike.
        let mut known = KNOWN
            .iter()
            .map_while(OnceLock::get)
            .filter(alike)
            .peekable();
        known.peek()?;
        // SAFETY:
        // - as above; such a tensor has a storage, and what holds the tensor keeps that while this thread is attached.
        let (storage, first, held) = unsafe { self.storage(inner) }?;
        // SAFETY:
        // - as above.
        let known = known.find(|known| !unsafe { self.differs(storage, &known.storage) })?;
        // SAFETY:
        // - as above.
        let (count, offset) = unsafe { (word(inner, self.numel), word(inner, self.offset)) };
        let item = known.dtype.itemsize()?;
        let since = usize::try_from(offset).ok()?.checked_mul(item)?;
        let (count, data) = (usize::try_from(count).ok()?, first.checked_add(since)?);
        let flat = Flat {
            data: pointer(data as u64),
            count,
            dtype: known.dtype,
        };
        let inside = count > 0 && since.checked_add(count.checked_mul(item)?)? <= held;
        inside.then_some(flat)
    }

    /// Torch has said that this tensor is flat, and what it is.
    ///
    /// # Safety
    /// - As for [`Places::flat`], and `storage` is its storage.
    #[cold]
    pub unsafe fn learn(&self, tensor: &Bound<'_, PyAny>, storage: &Bound<'_, PyAny>, told: &Flat) {
        // SAFETY:
        // - by the caller's promise.
        let _ = unsafe { self.learned(tensor, storage, told) };
    }

    /// # Safety
    /// - As for [`Places::learn`].
    unsafe fn learned(
        &self,
        tensor: &Bound<'_, PyAny>,
        storage: &Bound<'_, PyAny>,
        told: &Flat,
    ) -> Option<()> {
        let dtype = told.dtype;
        // SAFETY:
        // - by the caller's promise, and `extent` has seen that the other is a storage of torch's own; its inner object
        //   is looked at through the tensor only where it is the same.
        let (keys, kind, shared, count) = unsafe {
            let (tensor, keys, kind) = self.look(tensor)?;
            let (first, _) = self.fields.extent(storage)?;
            if word(tensor, self.storage) != inner(storage)?.addr() as u64 {
                return None;
            }
            let offset = usize::try_from(word(tensor, self.offset)).ok()?;
            let data = first.checked_add(offset.checked_mul(dtype.itemsize()?)?)?;
            if data != told.data.addr() {
                return None;
            }
            let mut shared = self.shared;
            for (at, bits) in shared.iter_mut().enumerate() {
                *bits &= word(inner(storage)?, at);
            }
            (keys, kind, shared, word(tensor, self.numel))
        };
        if usize::try_from(count) != Ok(told.count) {
            return None;
        }
        let known = Kind {
            keys,
            kind,
            storage: shared,
            dtype,
        };
        KNOWN
            .iter()
            .any(|place| *place.get_or_init(|| known) == known)
            .then_some(())
    }

    /// A tensor's inner object and what tells its kind.
    ///
    /// # Safety
    /// - As for [`Places::flat`].
    #[inline]
    unsafe fn look(&self, tensor: &Bound<'_, PyAny>) -> Option<(*mut u64, u64, u64)> {
        // SAFETY:
        // - by the caller's promise; the words were found in the inner objects of tensors.
        unsafe {
            let inner = inner(tensor)?;
            let kind = word(inner, self.kind) & self.kind_bits;
            Some((inner, word(inner, self.fields.keys), kind))
        }
    }

    /// A tensor's storage's inner object, its first byte, and its bytes.
    ///
    /// # Safety
    /// - It is the inner object of a tensor that has a storage.
    #[inline]
    unsafe fn storage(&self, tensor: *mut u64) -> Option<(*mut u64, usize, usize)> {
        // SAFETY:
        // - by the caller's promise; the words were found in the inner objects of storages.
        unsafe {
            let storage = pointer::<u64>(word(tensor, self.storage));
            let (first, bytes) = (!storage.is_null()).then(|| self.fields.within(storage))??;
            Some((storage, first, bytes))
        }
    }

    /// Whether a storage differs in what those of its kind share.
    ///
    /// # Safety
    /// - It is the inner object of a storage.
    #[inline]
    unsafe fn differs(&self, storage: *mut u64, kind: &[u64; STORAGE_WORDS]) -> bool {
        let words = self.shared.iter().zip(kind).enumerate();
        words.fold(false, |differs, (at, (bits, known))| {
            // SAFETY:
            // - by the caller's promise.
            let word = unsafe { word(storage, at) };
            differs | (word & bits != *known)
        })
    }

    /// Fetches what [`Places::flat`] will read: of a tensor of which the object is on its way, and of one of which this
    /// was called before.
    ///
    /// # Safety
    /// - As for [`Places::flat`], for both.
    #[inline]
    pub unsafe fn fetch(
        &self,
        later: Option<&Bound<'_, PyAny>>,
        sooner: Option<&Bound<'_, PyAny>>,
    ) {
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            if let Some(tensor) = later.and_then(|tensor| inner(tensor)) {
                (0..TENSOR_WORDS)
                    .step_by(LINE)
                    .for_each(|at| fetch(tensor.wrapping_add(at)));
            }
            if let Some(tensor) = sooner.and_then(|tensor| inner(tensor)) {
                let storage = pointer::<u64>(word(tensor, self.storage));
                (0..STORAGE_WORDS)
                    .step_by(LINE)
                    .for_each(|at| fetch(storage.wrapping_add(at)));
            }
        }
    }
}

fn find(py: Python<'_>, fields: Fields) -> PyResult<Option<Places>> {
    let made = PyDict::new(py);
    py.run(SAMPLES, Some(&made), None)?;
    let get = |name: &str| {
        made.get_item(name)?
            .ok_or_else(|| crate::fields::missing(name))
    };
    type Row<'py> = (Bound<'py, PyAny>, u64, Bound<'py, PyAny>, u64, u64, u64);
    // Words, and what is told: storage, elements, offset.
    type Told = (Vec<u64>, u64, u64, u64);
    let (mut tensors, mut storages) = (Vec::<Told>::new(), Vec::new());
    for row in get("alike")?.cast::<PyList>()? {
        let (tensor, told, storage, storage_told, numel, offset): Row<'_> = row.extract()?;
        let words = compared::<TENSOR_WORDS>(&tensor, told);
        let below = compared::<STORAGE_WORDS>(&storage, storage_told);
        let (Some(words), Some(below)) = (words, below) else {
            return Ok(None);
        };
        tensors.push((words, storage_told, numel, offset));
        storages.push(below);
    }
    let mut others = Vec::new();
    for row in get("others")?.cast::<PyList>()? {
        let (tensor, told): (Bound<'_, PyAny>, u64) = row.extract()?;
        let Some(words) = compared::<TENSOR_WORDS>(&tensor, told) else {
            return Ok(None);
        };
        others.push(words);
    }
    let (lazy, told): (Bound<'_, PyAny>, u64) = get("lazy")?.extract()?;
    let (Some(lazy), Some(first), Some(below)) = (
        compared::<STORAGE_WORDS>(&lazy, told),
        tensors.first(),
        storages.first(),
    ) else {
        return Ok(None);
    };
    let place = |told: fn(&Told) -> u64| {
        only((0..TENSOR_WORDS).filter(|&at| tensors.iter().all(|row| row.0[at] == told(row))))
    };
    let Some((tensor_bits, storage_bits)) = written(&get("sample")?)? else {
        return Ok(None);
    };
    let kind = only((0..TENSOR_WORDS).filter(|&at| {
        let is_first = |words: &[u64]| (words[at] ^ first.0[at]) & tensor_bits[at] == 0;
        tensors.iter().all(|row| is_first(&row.0)) && !others.iter().any(|other| is_first(other))
    }));
    let mut shared = storage_bits;
    for (at, bits) in shared.iter_mut().enumerate() {
        if storages
            .iter()
            .any(|words| (words[at] ^ below[at]) & *bits != 0)
        {
            *bits = 0;
        }
    }
    let tells_lazy = (0..STORAGE_WORDS).any(|at| (lazy[at] ^ below[at]) & shared[at] != 0);
    let found = (
        place(|row| row.1),
        place(|row| row.2),
        place(|row| row.3),
        kind,
    );
    Ok(match found {
        (Some(storage), Some(numel), Some(offset), Some(kind)) if tells_lazy => Some(Places {
            fields,
            storage,
            numel,
            offset,
            kind,
            kind_bits: tensor_bits[kind],
            shared,
        }),
        _ => None,
    })
}
