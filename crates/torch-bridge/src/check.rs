//! What torch tensors hide from every export: the negative and the conjugate bit, and the reasons of
//! refusals that torch words for its own developers. Knows no protocol.

use dlpack_core::View;
use py_bridge::{ExportError, ExportResult, Intent, call};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::fields::Fields;

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

/// The tensor with its negative bit resolved, where it has one: a copy to send, never to receive. With `fields` the
/// bit is read.
///
/// # Errors
/// [`ExportError::Buffer`] for a receive into such a view.
#[inline]
pub fn resolve_negative<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
    fields: Option<Fields>,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    // SAFETY:
    // - the registry gives the exporter of this crate instances of torch.Tensor alone.
    if fields.and_then(|fields| unsafe { fields.is_negative(tensor) }) == Some(false) {
        return Ok(None);
    }
    let methods = Methods::get(tensor.py())?;
    resolve(tensor, intent, &NEGATIVE, &methods.is_neg)
}

/// The same for the conjugate bit, which only complex tensors have.
///
/// # Errors
/// As for [`resolve_negative`].
pub fn resolve_conjugate<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    let methods = Methods::get(tensor.py())?;
    resolve(tensor, intent, &CONJUGATE, &methods.is_conj)
}

/// torch's own methods, which no subclass can override.
pub struct Methods {
    is_neg: Py<PyAny>,
    is_conj: Py<PyAny>,
    untyped_storage: Py<PyAny>,
}

impl Methods {
    /// Those of `torch.Tensor`, looked up once.
    ///
    /// # Errors
    /// What Python raised on the way.
    pub fn get(py: Python<'_>) -> PyResult<&Methods> {
        static FOUND: PyOnceLock<Methods> = PyOnceLock::new();
        FOUND.get_or_try_init(py, || {
            let class = py
                .import("torch")?
                .getattr("Tensor")?
                .cast_into::<PyType>()?;
            let method = |name: &str| class.getattr(name).map(Bound::unbind);
            Ok(Methods {
                is_neg: method("is_neg")?,
                is_conj: method("is_conj")?,
                untyped_storage: method("untyped_storage")?,
            })
        })
    }
}

/// The addresses of torch's own two classes, the one of parameters too: no Python code of a subclass hears of what is
/// asked of their instances.
pub struct Plain([usize; 2]);

impl Plain {
    /// Looked up once; `None` where torch lacks one.
    pub fn get(py: Python<'_>) -> Option<&Plain> {
        static FOUND: PyOnceLock<Option<Plain>> = PyOnceLock::new();
        let find = || -> PyResult<Plain> {
            let torch = py.import("torch")?;
            let parameter = torch.getattr("nn")?.getattr("Parameter")?;
            Ok(Plain(
                [torch.getattr("Tensor")?, parameter].map(|class| class.as_ptr().addr()),
            ))
        };
        FOUND.get_or_init(py, || find().ok()).as_ref()
    }

    /// Whether the type at this address is one of them.
    #[inline]
    pub fn contains<T>(&self, ty: *const T) -> bool {
        self.0.contains(&ty.addr())
    }
}

/// What keeps the memory: neither a capsule nor the tensor does when somebody assigns `.data`.
///
/// # Errors
/// Tensors without memory of their own have none.
#[inline]
pub fn storage<'py>(tensor: &Bound<'py, PyAny>) -> ExportResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    call::one(Methods::get(py)?.untyped_storage.bind(py), tensor)
        .map_err(|error| ExportError::raised(py, "it has no storage", error))
}

/// Refuses a tensor that reaches beyond its storage, which somebody made smaller.
///
/// # Errors
/// [`ExportError::Buffer`] in that case.
#[inline]
pub fn fits(view: &View, storage: &Bound<'_, PyAny>, fields: Option<Fields>) -> ExportResult<()> {
    if view.numel() == 0 {
        return Ok(());
    }
    let (start, held) = match fields.and_then(|fields| fields.extent(storage)) {
        Some(extent) => extent,
        None => {
            let first = storage.call_method0(intern!(storage.py(), "data_ptr"))?;
            (first.extract::<usize>()?, storage.len()?)
        }
    };
    let (low, high) = view.layout().span();
    let data = view.data().addr();
    let inside = data
        .checked_add_signed(low)
        .is_some_and(|first| first >= start)
        && data
            .checked_add_signed(high)
            .is_some_and(|end| end - start.min(end) <= held);
    if inside {
        return Ok(());
    }
    Err(ExportError::Buffer(format!(
        "the tensor reaches beyond its storage of {held} bytes, which was made smaller (`resize_`, a freed FSDP parameter); restore the storage first"
    )))
}

#[inline]
fn resolve<'py>(
    tensor: &Bound<'py, PyAny>,
    intent: Intent,
    bit: &Bit,
    asked: &Py<PyAny>,
) -> ExportResult<Option<Bound<'py, PyAny>>> {
    let raised =
        |error| ExportError::raised(tensor.py(), format!("its `{}` failed", bit.asked), error);
    if !call::one(asked.bind(tensor.py()), tensor)
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

/// Is it a wrapper that torch.func made?
fn is_transformed(tensor: &Bound<'_, PyAny>) -> bool {
    let ask = || -> PyResult<bool> {
        tensor
            .py()
            .import("torch._C._functorch")?
            .call_method1("is_functorch_wrapped_tensor", (tensor,))?
            .is_truthy()
    };
    // A private function: a torch that has it no more gets the plainer words.
    ask().unwrap_or(false)
}

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
    if is_transformed(tensor) {
        let words = "it is the tensor inside a function transform (torch.func: vmap, grad, jvp), which has no memory of its own; communicate outside the transform";
        return ExportError::Raised(words.to_owned(), cause);
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
