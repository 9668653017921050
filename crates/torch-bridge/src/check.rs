//! What torch tensors hide from every export: the negative and the conjugate bit, and the reasons of
//! refusals that torch words for its own developers. Knows no protocol.

use py_bridge::{ExportError, ExportResult, Intent};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A lazy view whose memory is not what its elements are.
struct Bit {
    asked: &'static str,
    resolved: &'static str,
    words: &'static str,
}

const NEGATIVE: Bit = Bit {
    asked: "is_neg",
    resolved: "resolve_neg",
    words: "the tensor is a lazy negative view (`is_neg()`), whose memory holds the opposite sign, and cannot receive; pass the tensor that it is a view of",
};
const CONJUGATE: Bit = Bit {
    asked: "is_conj",
    resolved: "resolve_conj",
    words: "the tensor is a lazy conjugate view (`is_conj()`), whose memory is not conjugated, and cannot receive; pass the tensor that it is a view of",
};

/// The tensor with its negative bit resolved, where it has one: a copy to send, never to receive.
///
/// # Errors
/// [`ExportError::Buffer`] for a receive into such a view.
#[inline]
pub fn resolve_negative<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    resolve(tensor, intent, &NEGATIVE, intern!(tensor.py(), "is_neg"))
}

/// The same for the conjugate bit, which only complex tensors have.
///
/// # Errors
/// As for [`resolve_negative`].
pub fn resolve_conjugate<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    resolve(tensor, intent, &CONJUGATE, intern!(tensor.py(), "is_conj"))
}

#[inline]
fn resolve<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
    bit: &Bit,
    asked: &Bound<'py, PyString>,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    let raised =
        |error| ExportError::raised(tensor.py(), format!("its `{}` failed", bit.asked), error);
    if !tensor
        .call_method0(asked)
        .and_then(|set| set.is_truthy())
        .map_err(raised)?
    {
        return Ok(None);
    }
    match intent {
        Intent::Receive => Err(ExportError::Buffer(bit.words.to_owned())),
        Intent::Send => tensor
            .call_method0(PyString::intern(tensor.py(), bit.resolved))
            .map(Some)
            .map_err(raised),
    }
}

/// Kinds of tensors that have no plain strided memory: the attribute that shows it, and in words.
const KINDS: [(&str, &str); 3] = [
    (
        "is_meta",
        "it is a meta tensor, which has no data; materialise it first, e.g. `torch.empty_like(t, device='cpu')`",
    ),
    (
        "is_quantized",
        "it is a quantised tensor; pass `t.int_repr()` and move scale and zero point apart",
    ),
    (
        "is_nested",
        "it is a nested tensor; pass its buffer, `t.values()`",
    ),
];

/// Why an export failed, in words for the person who passed the tensor; else the failure as it came.
#[cold]
pub fn explain(tensor: &Bound<'_, PyAny>, error: ExportError) -> ExportError {
    let (doing, cause) = match error {
        ExportError::Raised(doing, cause) => (doing, cause),
        other => return other,
    };
    let is_set = |name: &str| {
        tensor
            .getattr(PyString::intern(tensor.py(), name))
            .and_then(|value| value.is_truthy())
            .unwrap_or(false)
    };
    if let Some((_, words)) = KINDS.iter().find(|(name, _)| is_set(name)) {
        return ExportError::Raised((*words).to_owned(), cause);
    }
    let layout = tensor
        .getattr(intern!(tensor.py(), "layout"))
        .map(|layout| layout.to_string());
    match layout {
        Ok(layout) if layout != "torch.strided" => ExportError::Raised(
            format!(
                "its layout is {layout}, and only torch.strided has plain memory; pass its parts (indices, values), or `t.to_dense()`"
            ),
            cause,
        ),
        _ => ExportError::Raised(doing, cause),
    }
}
