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
use py_bridge::Flat;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::fields::{Fields, STORAGE_WORDS, TENSOR_WORDS, compared, inner, only, word};
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

/// The words of tensors that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words {
    keys: u64,
    kind: u64,
    storage: [u64; STORAGE_WORDS],
}

#[derive(Debug)]
struct Kind {
    words: Words,
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

    /// The elements of a tensor that is like one of which torch said that it is flat.
    ///
    /// # Safety
    /// - It is an instance of `torch.Tensor`, and the other its storage.
    #[inline]
    pub unsafe fn flat(
        &self,
        tensor: &Bound<'_, PyAny>,
        storage: &Bound<'_, PyAny>,
    ) -> Option<Flat> {
        // SAFETY:
        // - by the caller's promise.
        let (words, data, count) = unsafe { self.read(tensor, storage) }?;
        let known = KNOWN.iter().map_while(OnceLock::get);
        let dtype = known.into_iter().find(|kind| kind.words == words)?.dtype;
        let data = data.checked_add(self.skipped(tensor, dtype)?)?;
        let data = std::ptr::with_exposed_provenance_mut(data);
        (count > 0).then_some(Flat { data, count, dtype })
    }

    /// Torch has said that this tensor is flat, and what it is.
    ///
    /// # Safety
    /// - As for [`Places::flat`].
    #[cold]
    pub unsafe fn learn(&self, tensor: &Bound<'_, PyAny>, storage: &Bound<'_, PyAny>, told: &Flat) {
        // SAFETY:
        // - by the caller's promise.
        let Some((words, data, count)) = (unsafe { self.read(tensor, storage) }) else {
            return;
        };
        let dtype = told.dtype;
        let skipped = self.skipped(tensor, dtype);
        let at = skipped.and_then(|skipped| data.checked_add(skipped));
        if (at, count) != (Some(told.data.addr()), told.count) {
            return;
        }
        for place in &KNOWN {
            if place.get_or_init(|| Kind { words, dtype }).words == words {
                return;
            }
        }
    }

    /// Bytes of the storage before the tensor's first element.
    #[inline]
    fn skipped(&self, tensor: &Bound<'_, PyAny>, dtype: DType) -> Option<usize> {
        // SAFETY:
        // - the callers promise a tensor; the word was found in the inner object of tensors.
        let offset = unsafe { word(inner(tensor)?, self.offset) }?;
        usize::try_from(offset).ok()?.checked_mul(dtype.itemsize()?)
    }

    /// What tells its kind, the address of its storage's first byte, and its elements.
    ///
    /// # Safety
    /// - As for [`Places::flat`].
    #[inline]
    unsafe fn read(
        &self,
        tensor: &Bound<'_, PyAny>,
        storage: &Bound<'_, PyAny>,
    ) -> Option<(Words, usize, usize)> {
        let (first, _) = self.fields.extent(storage)?;
        // SAFETY:
        // - by the caller's promise, and `extent` has seen that the other is a storage of torch's own; the words were
        //   found in the inner objects of such.
        unsafe {
            let (tensor, storage) = (inner(tensor)?, inner(storage)?);
            if word(tensor, self.storage)? != storage.addr() as u64 {
                return None;
            }
            let mut shared = self.shared;
            for (at, bits) in shared
                .iter_mut()
                .enumerate()
                .filter(|(_, bits)| **bits != 0)
            {
                *bits &= word(storage, at)?;
            }
            let words = Words {
                keys: word(tensor, self.fields.keys)?,
                kind: word(tensor, self.kind)? & self.kind_bits,
                storage: shared,
            };
            let count = usize::try_from(word(tensor, self.numel)?).ok()?;
            Some((words, first, count))
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
