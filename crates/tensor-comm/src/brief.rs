//! A call in few words: what is shown of it where ranks disagree, wait or are traced. Knows no tensor's
//! memory, so it may be kept.

use std::fmt;

use dlpack_core::{DType, View};

use crate::arg::{Arg, Part};
use crate::call::{Call, CallKind, Op};
use crate::movement::elements;

/// What was called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brief {
    pub name: &'static str,
    /// Of the elements, where this rank knows it.
    pub dtype: Option<DType>,
    pub elements: usize,
    pub op: Option<Op>,
    pub root: Option<i32>,
    /// Of a message, the other side.
    pub peer: Option<i32>,
    /// Of a fused call, the tensors.
    pub tensors: Option<usize>,
}

impl Brief {
    /// A call of which no more is known.
    pub const fn named(name: &'static str) -> Brief {
        Brief {
            name,
            dtype: None,
            elements: 0,
            op: None,
            root: None,
            peer: None,
            tensors: None,
        }
    }

    /// A collective.
    pub fn of(call: &Call) -> Brief {
        let arg = match call.send {
            Arg::Absent | Arg::InPlace => &call.recv,
            _ => &call.send,
        };
        let dtype = arg.view().map(View::dtype);
        Brief {
            dtype,
            elements: dtype.map_or(0, |_| elements(arg)),
            op: call.op,
            root: has_root(call.kind).then_some(call.root),
            ..Brief::named(call.kind.name())
        }
    }

    /// A reduction of many tensors at once.
    pub fn of_many(tensors: usize, elements: usize, op: Op) -> Brief {
        Brief {
            elements,
            op: Some(op),
            tensors: Some(tensors),
            ..Brief::named("allreduce_many")
        }
    }

    /// A message.
    pub fn message(name: &'static str, part: &Part, peer: i32) -> Brief {
        Brief {
            dtype: Some(part.view().dtype()),
            elements: part.count(),
            peer: Some(peer),
            ..Brief::named(name)
        }
    }

    /// Bytes of the elements, where this rank knows their dtype.
    pub fn bytes(&self) -> u64 {
        let item = self.dtype.and_then(DType::itemsize).unwrap_or(0);
        self.elements as u64 * item as u64
    }
}

pub(crate) fn has_root(kind: CallKind) -> bool {
    use CallKind::*;
    matches!(kind, Bcast | Gather | Gatherv | Scatter | Scatterv | Reduce)
}

/// The name of a reduce operation.
pub(crate) fn op_name(op: Op) -> String {
    match op {
        Op::Builtin(op) => format!("{op:?}").to_uppercase(),
        Op::Avg => "AVG".to_owned(),
        Op::Native(_) => "of the caller's".to_owned(),
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match (self.tensors, self.dtype) {
            (Some(tensors), _) => {
                write!(f, " of {tensors} tensors with {} elements", self.elements)?;
            }
            (None, Some(dtype)) => write!(f, " of {} {dtype}", self.elements)?,
            (None, None) => {}
        }
        if let Some(op) = self.op {
            write!(f, ", op {}", op_name(op))?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        Ok(())
    }
}
