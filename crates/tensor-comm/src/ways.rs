//! Which way each dtype goes, as the plans have it: for reports, not for calls.

use dlpack_core::DType;

use crate::agreed::{Agreed, AgreedOp};
use crate::call::CallKind;
use crate::comm::Comm;
use crate::error::Result;
use crate::kernels::ReduceOp;
use crate::wire::{Combine, Element, wire};
use crate::wiretype::basic;

const DTYPES: [DType; 17] = [
    DType::BOOL,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::LONG_DOUBLE,
    DType::C32,
    DType::C64,
    DType::C128,
];

/// The ways of one dtype, in words.
#[derive(Debug, Clone)]
pub struct Way {
    /// Its name.
    pub dtype: String,
    /// As what it is moved.
    pub moved: String,
    /// Who adds it up, or why nobody does.
    pub sum: String,
    /// Who finds the largest, or why nobody does.
    pub max: String,
}

/// The ways of the usual dtypes on this communicator.
///
/// # Errors
/// What MPI reports of the communicator.
pub fn ways(comm: &Comm) -> Result<Vec<Way>> {
    let facts = comm.facts(None)?;
    let reduced = |dtype, op| {
        let agreed = Agreed {
            kind: CallKind::Allreduce,
            dtype: Some(dtype),
            elements: 1,
            op: Some(AgreedOp::Builtin(op)),
            facts,
        };
        match wire(&agreed).map(|wire| (wire.element, wire.combine)) {
            Ok((Element::Widened { to, .. }, _)) => format!("in {to}, rounded once"),
            Ok((_, Combine::Own(_))) => "dlmpi's operation".to_owned(),
            Ok(_) => "the library's operation".to_owned(),
            Err(_) => "refused".to_owned(),
        }
    };
    Ok(DTYPES
        .iter()
        .map(|&dtype| Way {
            dtype: dtype.to_string(),
            moved: match basic(dtype) {
                Some(basic) => format!("MPI's {basic:?}"),
                None => format!("bits, {} bytes", dtype.itemsize().unwrap_or(0)),
            },
            sum: reduced(dtype, ReduceOp::Sum),
            max: reduced(dtype, ReduceOp::Max),
        })
        .collect())
}
