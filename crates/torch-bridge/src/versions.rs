//! Where torch counts how often a tensor was written, by which autograd notices that a value it saved is gone. Torch's
//! own function takes 50 to 100 ns for each of many tensors, as long as all else that a short one needs; so the counters
//! are found as in `fields.rs`, and counted up as torch does. Where that leaves a doubt, torch is told.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use py_bridge::fetch;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::check::Plain;
use crate::fields::{Fields, TENSOR_WORDS, compared, inner, missing, only, pointer, word};

/// Counters that are looked up before they are counted up: what is on its way from memory is waited for once.
const AT_ONCE: usize = 32;
/// Half words of a counter's object that are looked at, after its table of functions: it is longer in every torch
/// that has the exchange API.
const HALVES: std::ops::Range<usize> = 2..6;

/// Where the counter of a tensor is.
#[derive(Debug, Clone, Copy)]
pub struct Versions {
    /// The word of a tensor's inner object that holds the address of the counter's.
    word: usize,
    /// The half word in that.
    half: usize,
}

/// Tensors that were written differently often, each with one that shares its counter and one that does not; and one
/// that has no counter.
const SAMPLES: &CStr = c"
import torch
def written(n, times):
    t = torch.ones(n, device='cpu')
    for _ in range(times):
        t.zero_()
    return t
def sides(t):
    return [(x, x._cdata) for x in (t, t.detach(), t[:], t.data)]
with torch.inference_mode(False):
    rows = [(sides(t), t._version) for t in (written(5, 0), written(7, 3), written(2, 11), written(9, 30))]
with torch.inference_mode():
    none = torch.ones(3, device='cpu')
none = (none, none._cdata)
";

impl Versions {
    /// Where this torch has them, if it is sure.
    pub fn get(py: Python<'_>) -> Option<Versions> {
        static FOUND: PyOnceLock<Option<Versions>> = PyOnceLock::new();
        *FOUND.get_or_init(py, || {
            Fields::get(py).and_then(|_| find(py).unwrap_or(None))
        })
    }

    /// Counts one write more of each tensor; gives back those whose counters it does not know.
    pub fn count<'py>(&self, tensors: &Bound<'py, PyTuple>) -> Vec<Bound<'py, PyAny>> {
        let mut others = Vec::new();
        let Some(plain) = Plain::get(tensors.py()) else {
            return tensors.iter().collect();
        };
        let mut counters = [None; AT_ONCE];
        for first in (0..tensors.len()).step_by(AT_ONCE) {
            let mut found = 0;
            for at in first..tensors.len().min(first + AT_ONCE) {
                let Ok(tensor) = tensors.get_borrowed_item(at) else {
                    continue;
                };
                let is_plain = plain.contains(tensor.get_type_ptr());
                // SAFETY:
                // - it is one of torch's own tensors.
                match is_plain.then(|| unsafe { self.counter(&tensor) }).flatten() {
                    Some(counter) => {
                        fetch(counter.as_ptr());
                        counters[found] = Some(counter);
                        found += 1;
                    }
                    None => others.push(tensor.to_owned()),
                }
            }
            for counter in counters[..found].iter().flatten() {
                // SAFETY:
                // - the tensor is held and holds its counter while the thread is attached; torch's is atomic as well.
                unsafe { AtomicU32::from_ptr(counter.as_ptr()) }.fetch_add(1, Ordering::Relaxed);
            }
        }
        others
    }

    /// The counter of a tensor, which is atomic.
    ///
    /// # Safety
    /// - It is an instance of `torch.Tensor`.
    #[inline]
    pub unsafe fn counter(&self, tensor: &Bound<'_, PyAny>) -> Option<NonNull<u32>> {
        // SAFETY:
        // - by the caller's promise; the word was found in the inner object of tensors.
        let object = unsafe { word(inner(tensor)?, self.word) };
        let object = pointer::<u32>(object);
        NonNull::new(object).map(|object| object.map_addr(|at| at.saturating_add(4 * self.half)))
    }
}

fn find(py: Python<'_>) -> PyResult<Option<Versions>> {
    let made = PyDict::new(py);
    py.run(SAMPLES, Some(&made), None)?;
    let get = |name: &str| made.get_item(name)?.ok_or_else(|| missing(name));
    type Side<'py> = (Bound<'py, PyAny>, u64);
    let words = |(tensor, told): &Side<'_>| compared::<TENSOR_WORDS>(tensor, *told);
    let Some(none) = words(&get("none")?.extract()?) else {
        return Ok(None);
    };
    let mut rows = Vec::new();
    for row in get("rows")?.cast::<PyList>()? {
        let (sides, version): (Vec<Side<'_>>, u32) = row.extract()?;
        let read: Option<Vec<Vec<u64>>> = sides.iter().map(words).collect();
        let (Some(read), Some((tensor, _))) = (read, sides.first()) else {
            return Ok(None);
        };
        rows.push((read, version, tensor.clone()));
    }
    let at = only((0..TENSOR_WORDS).filter(|&at| {
        none[at] == 0
            && rows.iter().all(|(sides, _, _)| match &sides[..] {
                [own, detached, view, other] => {
                    let address = own[at];
                    address == detached[at]
                        && address == view[at]
                        && address != other[at]
                        && address.is_multiple_of(8)
                        && address > 1 << 16
                }
                _ => false,
            })
    }));
    let Some(word) = at else {
        return Ok(None);
    };
    let half = only(HALVES.filter(|&half| {
        let place = Versions { word, half };
        rows.iter().all(|(_, version, tensor)| {
            // SAFETY:
            // - it is a tensor. The word is an address that a tensor shares with its views and with what is detached from
            //   it, not with what counts for itself, and that a tensor without a counter lacks: its counter's.
            let Some(counter) = (unsafe { place.counter(tensor) }) else {
                return false;
            };
            // SAFETY:
            // - as above.
            unsafe { AtomicU32::from_ptr(counter.as_ptr()) }.load(Ordering::Relaxed) == *version
        })
    }));
    let Some(half) = half else {
        return Ok(None);
    };
    let found = Versions { word, half };
    // The word of torch itself: what is counted here is what it reads.
    for (_, version, tensor) in &rows {
        let told = found.count(&PyTuple::new(py, [tensor])?).is_empty();
        let counted: u32 = tensor.getattr("_version")?.extract()?;
        if !told || counted != version + 1 {
            return Ok(None);
        }
    }
    Ok(Some(found))
}
