//! The short way of `Reduce_local`.

use mpi_runtime::Mpi;

use super::Flat;
use crate::call::Op;
use crate::error::{Error, Result};
use crate::kernels::ReduceOp;
use crate::own_op;
use crate::reduce_local::agreed;
use crate::wire::{Combine, Element, wire};
use crate::wiretype::wire_type;

/// As [`crate::reduce_local`]; `None`, and nothing is done, where it takes more than a call of MPI's, or long.
///
/// # Safety
/// - The elements of both are there until this returns, those of `inout` writable; nobody else touches them.
#[inline]
pub unsafe fn reduce_local(
    mpi: &'static Mpi,
    input: Flat,
    inout: Flat,
    op: ReduceOp,
) -> Option<Result<()>> {
    let (dtype, count) = (inout.dtype, inout.count);
    let alike = input.dtype == dtype && input.count == count && super::is_small(&inout);
    if !alike || input.meets(&inout) {
        return None;
    }
    let wire = wire(&agreed(mpi, dtype, count, Op::Builtin(op))).ok()?;
    let handle = match (wire.combine, wire.element) {
        (Combine::Library(op), Element::Memory(_)) => mpi.op(own_op::library(op)),
        (Combine::Own(op), Element::Memory(_)) => own_op::handle(mpi, op, dtype).ok()?,
        _ => return None,
    };
    let datatype = wire_type(mpi, dtype, inout.itemsize()).ok()?.datatype;
    // SAFETY:
    // - both have as many elements of the datatype and are apart; the caller's promise for the rest.
    let done = unsafe { mpi.reduce_local(input.data, inout.data, count as i64, datatype, handle) };
    Some(done.map_err(Error::from))
}
