//! `MPI_Reduce_local` on two tensors of one process, in the numbers of the collective reductions: widened
//! where they are, by an operation of ours where they use one. Knows no communicator.

use mpi_runtime::{BuiltinOp, Mpi};

use crate::agreed::{Agreed, CommFacts, Standing};
use crate::arg::Part;
use crate::call::{CallKind, Op};
use crate::error::{Error, Result, value_error};
use crate::ground::settings::Choice;
use crate::own_op;
use crate::side::{Ranges, Side, may_alias};
use crate::wire::{Combine, Element, wire};
use crate::wiretype::wire_type;

/// The name in messages.
const NAME: &str = "Reduce_local";

/// `inout = op(input, inout)`, element by element.
///
/// # Errors
/// Tensors that do not match, an operation without a meaning for them, and what MPI reports.
///
/// # Safety
/// - Until this returns, the view of both parts describes memory that is there. Nobody writes what is sent; nobody else reads or
///   writes what is received into.
pub unsafe fn reduce_local(mpi: &'static Mpi, input: &Part, inout: &Part, op: Op) -> Result<()> {
    let (dtype, elements) = (inout.view().dtype(), inout.count());
    if input.view().dtype() != dtype {
        return Err(value_error!(
            "{NAME}: inbuf holds {} but inoutbuf holds {dtype}; a reduction needs one dtype",
            input.view().dtype()
        ));
    }
    if input.count() != elements {
        return Err(value_error!(
            "{NAME}: inbuf has {} elements, expected {elements} as in inoutbuf",
            input.count()
        ));
    }
    if matches!(op, Op::Avg) {
        return Err(value_error!(
            "{NAME}: AVG has no meaning here; use SUM and divide"
        ));
    }
    let wire = wire(&agreed(mpi, dtype, elements, op)).map_err(renamed)?;
    let copy = may_alias(input.view(), inout.view());
    let from = Side::sending(Ranges::part(input), wire.element, copy)?;
    let into = Side::receiving(Ranges::part(inout), wire.element, true)?;
    let form = wire.element.dtype();
    let datatype = wire_type(mpi, form, into.wire_bytes())?;
    let handle = match (wire.combine, op) {
        (Combine::Own(op), _) => own_op::handle(mpi, op, form)?,
        (Combine::Library(op), _) => mpi.op(own_op::library(op)),
        (Combine::Caller, Op::Native(op)) => op,
        (Combine::Caller, _) => mpi.op(BuiltinOp::Sum),
    };
    let step = wire.slice.unwrap_or(elements).max(1);
    for first in (0..elements).step_by(step) {
        let count = step.min(elements - first);
        let at = |ptr: *mut u8| ptr.wrapping_add(first * into.wire_bytes());
        // SAFETY:
        // - both sides hold `elements` elements of the datatype (side.rs) and live past the call; the second is
        //   writable, and the first is a copy where they share memory.
        unsafe {
            mpi.reduce_local(
                at(from.ptr()),
                at(into.ptr()),
                count as i64,
                datatype.datatype,
                handle,
            )
        }?;
    }
    match into.is_direct() && matches!(wire.element, Element::Memory(_)) {
        true => Ok(()),
        false => into.settle(usize::MAX, None),
    }
}

/// The reduction that it would be.
pub(crate) fn agreed(mpi: &Mpi, dtype: dlpack_core::DType, elements: usize, op: Op) -> Agreed {
    use crate::agreed::AgreedOp;
    Agreed {
        kind: CallKind::Allreduce,
        dtype: Some(dtype),
        elements,
        op: Some(match op {
            Op::Builtin(op) => AgreedOp::Builtin(op),
            Op::Avg => AgreedOp::Avg,
            Op::Native(_) => AgreedOp::Native,
        }),
        facts: CommFacts {
            size: 1,
            large_counts: mpi.has_large_counts(),
            one_call: false,
            choice: Choice::Mpi,
            standing: Standing::NONE,
            family: mpi.family(),
        },
    }
}

/// What is said of the collective is said of this.
fn renamed(error: Error) -> Error {
    match error {
        Error::Value(words) => Error::Value(words.replacen(CallKind::Allreduce.name(), NAME, 1)),
        other => other,
    }
}
