//! Which way each dtype, layout and device goes, as the plans have it: for reports, not for calls.

use dlpack_core::{DType, Device, View};

use crate::agreed::{Agreed, AgreedOp};
use crate::arg::{Arg, Part};
use crate::call::{Call, CallKind, Op};
use crate::collective;
use crate::comm::Comm;
use crate::error::Result;
use crate::ground::awareness::{self, Way as Road};
use crate::ground::gate::Gate;
use crate::kernels::ReduceOp;
use crate::p2p::Message;
use crate::trace::Taken;
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

/// Bytes of memory of a device that [`paths`] wants.
pub const PROBED: usize = 2 * LARGE;

/// Bytes of a tensor that counts as large there.
const LARGE: usize = 4 << 20;
/// Elements of one that counts as small.
const SMALL: usize = 64;

/// The layouts that are asked about, by the step between elements.
const LAYOUTS: [(&str, i64); 3] = [("dense", 1), ("strided", 2), ("expanded", 0)];

/// The paths of one dtype in one layout.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The dtype's name.
    pub dtype: String,
    /// The layout: every element after the other, every second one, or one element many times.
    pub layout: &'static str,
    /// Operations with their path as the trace has it, or why this rank refuses them.
    pub operations: Vec<(&'static str, String)>,
}

/// What would become of tensors in this memory of `device`: plans are made as for calls, and dropped. Local; it
/// answers for what the ranks have agreed on so far.
///
/// # Safety
/// - There are [`PROBED`] bytes at `data`, initialised, which nobody writes meanwhile.
///
/// # Errors
/// What MPI reports of the communicator.
pub unsafe fn paths(comm: &Comm, data: *mut u8, device: Device) -> Result<Vec<Paths>> {
    let mut found = Vec::new();
    for dtype in DTYPES {
        let bytes = dtype.itemsize().unwrap_or(1);
        for (layout, step) in LAYOUTS {
            let view = |elements: usize| {
                let strides = [step * bytes as i64];
                // SAFETY:
                // - `elements` with a step of at most two are at most PROBED bytes (`LARGE`, `SMALL`).
                unsafe {
                    View::from_parts(
                        data,
                        &[elements as i64],
                        Some(&strides),
                        dtype,
                        device,
                        false,
                    )
                }
            };
            let (small, large) = (view(SMALL)?, view(LARGE / bytes)?);
            let sum = Some(Op::Builtin(ReduceOp::Sum));
            let max = Some(Op::Builtin(ReduceOp::Max));
            let all = CallKind::Allreduce;
            let told = |taken: Result<Taken>| match taken {
                Ok(taken) => taken.path(),
                Err(why) => format!("refused: {why}"),
            };
            found.push(Paths {
                dtype: dtype.to_string(),
                layout,
                operations: vec![
                    ("Send", told(message(*comm, small.clone()))),
                    (
                        "Bcast by root",
                        told(collective(*comm, CallKind::Bcast, &small, None)),
                    ),
                    ("SUM", told(collective(*comm, all, &small, sum))),
                    ("SUM of 4 MiB", told(collective(*comm, all, &large, sum))),
                    ("MAX", told(collective(*comm, all, &small, max))),
                    ("AVG", told(collective(*comm, all, &small, Some(Op::Avg)))),
                ],
            });
        }
    }
    Ok(found)
}

fn message(comm: Comm, view: View) -> Result<Taken> {
    let next = (comm.rank()? + 1) % comm.size()? as i32;
    let message = Message::sending(comm, &Part::whole(view), next, false)?;
    Ok(Taken::message(message.side()))
}

/// A collective on one tensor that is read and written.
fn collective(comm: Comm, kind: CallKind, view: &View, op: Option<Op>) -> Result<Taken> {
    let (comm, state) = Gate::state_of(comm)?;
    let direct = awareness::allowed(comm.mpi(), state.as_deref(), Road::Blocking)?;
    let standing = state.as_ref().map(|state| state.standing(true));
    let call = Call {
        recv: Arg::Part(Part::whole(view.clone())),
        send: match kind {
            CallKind::Bcast => Arg::Absent,
            _ => Arg::InPlace,
        },
        op,
        ..Call::new(kind)
    };
    let comm = comm.giving_device_memory(direct);
    collective::plan(comm, &call, standing).map(|plan| Taken::of(&plan))
}
