//! Any producer without a bridge of its own: buffer protocol, then DLPack, then the array interfaces.

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::buffer;
use crate::dlpack_call::{self, CallForms};
use crate::errors::{ExportError, ExportResult};
use crate::framework::{Exporter, Intent, type_name};
use crate::loan::Loan;
use crate::order::StreamOrder;
use crate::policy::{self, Policy};
use crate::{array_interface, cai};

/// The protocols, in the order in which they are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Buffer,
    DLPack,
    CudaArrayInterface,
    ArrayInterface,
}

/// How an object shows that it speaks a protocol: an attribute of its type. The buffer protocol is a slot.
const ATTRIBUTES: [(Protocol, &str); 3] = [
    (Protocol::DLPack, "__dlpack__"),
    (Protocol::CudaArrayInterface, cai::ATTRIBUTE),
    (Protocol::ArrayInterface, array_interface::ATTRIBUTE),
];

/// Lends objects of one type by the protocols that it speaks.
pub struct Generic {
    protocols: Vec<Protocol>,
    forms: CallForms,
    policy: &'static Policy,
}

impl Generic {
    /// An exporter for the type of `obj`.
    ///
    /// # Errors
    /// [`ExportError::NotATensor`] when it speaks no protocol.
    pub fn claim(obj: &Bound<'_, PyAny>) -> ExportResult<Arc<dyn Exporter>> {
        let ty = obj.get_type();
        let mut protocols = Vec::new();
        if buffer::has_buffer(obj) {
            protocols.push(Protocol::Buffer);
        }
        // Special methods live on the type, but proxies answer for the object behind them. A class
        // has the attributes of its instances and is none of them.
        let is_class = obj.is_instance_of::<PyType>();
        for (protocol, attribute) in ATTRIBUTES {
            let attribute = PyString::intern(obj.py(), attribute);
            if ty.hasattr(&attribute)? || (!is_class && obj.hasattr(&attribute)?) {
                protocols.push(protocol);
            }
        }
        if protocols.is_empty() {
            return Err(not_a_tensor(&ty));
        }
        let policy = policy::of(&ty)?;
        Ok(Arc::new(Generic {
            protocols,
            forms: match policy.takes_no_stream {
                true => CallForms::without_stream(),
                false => CallForms::default(),
            },
            policy,
        }))
    }

    fn by(
        &self,
        protocol: Protocol,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        match protocol {
            Protocol::Buffer => {
                buffer::export(obj, intent).map(|(buffer, view)| Loan::of_buffer(buffer, view))
            }
            Protocol::DLPack => dlpack_call::export(obj, &self.forms, intent, order),
            Protocol::CudaArrayInterface => {
                cai::export(obj, self.policy.leaves_default_stream_out, order)
            }
            Protocol::ArrayInterface => array_interface::export(obj, None),
        }
    }

    fn refuse_by_policy(&self, obj: &Bound<'_, PyAny>, intent: Intent) -> ExportResult<()> {
        if let (Intent::Receive, Some(words)) = (intent, self.policy.immutable) {
            return Err(ExportError::Buffer(words.to_owned()));
        }
        if !self.policy.unsafe_dtypes.is_empty() {
            let py = obj.py();
            let dtype = obj.getattr(intern!(py, "dtype"))?;
            let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
            if self.policy.unsafe_dtypes.contains(&name.as_str()) {
                return Err(ExportError::Buffer(format!(
                    "a {} tensor of {name} is no plain memory of numbers; use the lower-case methods, which pickle",
                    self.policy.framework
                )));
            }
        }
        Ok(())
    }
}

impl Exporter for Generic {
    fn framework(&self) -> &'static str {
        self.policy.framework
    }

    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        self.refuse_by_policy(obj, intent)?;
        // The last refusal is the most telling one: a strided or extended dtype fails by the buffer
        // protocol and works, or fails for its real reason, by DLPack. Earlier ones are chained to it.
        let mut refusal: Option<ExportError> = None;
        for &protocol in &self.protocols {
            match self.by(protocol, obj, intent, order) {
                Ok(loan) => return Ok(loan),
                Err(error @ ExportError::Unrelated(_)) => return Err(error),
                // What must not be written by one protocol must not be reached by another.
                Err(error @ ExportError::Buffer(_)) if intent == Intent::Receive => {
                    return Err(error);
                }
                Err(error)
                    if protocol == Protocol::DLPack && is_final(obj.py(), &error, intent) =>
                {
                    refusal = Some(error);
                    break;
                }
                Err(error) => refusal = Some(chain(obj.py(), error, refusal)),
            }
        }
        let refusal = refusal.unwrap_or_else(|| not_a_tensor(&obj.get_type()));
        Err(match (self.policy.hint, refusal) {
            (Some(hint), ExportError::Raised(doing, error)) => {
                ExportError::Raised(format!("{doing}; {hint}"), error)
            }
            (_, refusal) => refusal,
        })
    }
}

/// `BufferError` is the specification's word for data that cannot be lent: other protocols, which know
/// less (no read-only flag, no lazy values), must not be asked for it. Nor for anything to be written.
fn is_final(py: Python<'_>, error: &ExportError, intent: Intent) -> bool {
    match error {
        ExportError::Raised(_, cause) => {
            intent == Intent::Receive || cause.is_instance_of::<PyBufferError>(py)
        }
        _ => false,
    }
}

/// Puts an earlier refusal behind a later one.
fn chain(py: Python<'_>, later: ExportError, earlier: Option<ExportError>) -> ExportError {
    match (later, earlier) {
        (ExportError::Raised(doing, error), Some(ExportError::Raised(_, cause))) => {
            if error.cause(py).is_none() {
                error.set_cause(py, Some(cause));
            }
            ExportError::Raised(doing, error)
        }
        // Words of ours say more than what the producer raised.
        (ExportError::Raised(..), Some(words @ ExportError::Buffer(_))) => words,
        (later, _) => later,
    }
}

fn not_a_tensor(ty: &Bound<'_, PyType>) -> ExportError {
    ExportError::NotATensor(format!(
        "expected a tensor (an object with the buffer protocol, `__dlpack__` or an array interface) or a list [tensor, count, ...], got {}",
        type_name(ty)
    ))
}
