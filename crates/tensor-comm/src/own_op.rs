//! Reduce operations of ours as `MPI_Op`s, for what libraries do differently or not at all.
//!
//! MPI's callback carries no state, so each operation on each dtype is a type of its own, made once per
//! process and never freed: MPI_Finalize frees what is left.

use std::sync::OnceLock;

use dlpack_core::DType;
use mpi_runtime::{BuiltinOp, Datatype, Mpi, UserOp};

use crate::error::{Result, value_error};
use crate::kernels::{ReduceOp, kernel};

/// The library's predefined operation.
#[must_use]
pub const fn library(op: ReduceOp) -> BuiltinOp {
    match op {
        ReduceOp::Sum => BuiltinOp::Sum,
        ReduceOp::Prod => BuiltinOp::Prod,
        ReduceOp::Max => BuiltinOp::Max,
        ReduceOp::Min => BuiltinOp::Min,
        ReduceOp::Land => BuiltinOp::Land,
        ReduceOp::Lor => BuiltinOp::Lor,
        ReduceOp::Lxor => BuiltinOp::Lxor,
        ReduceOp::Band => BuiltinOp::Band,
        ReduceOp::Bor => BuiltinOp::Bor,
        ReduceOp::Bxor => BuiltinOp::Bxor,
    }
}

/// Our operation where libraries differ or are wrong; `None` where theirs is as good.
///
/// # Errors
/// What MPI reports when it is made.
pub fn own(mpi: &Mpi, op: ReduceOp, dtype: DType) -> Result<Option<mpi_runtime::Op>> {
    match exists(op, dtype) {
        true => handle(mpi, op, dtype).map(Some),
        false => Ok(None),
    }
}

macro_rules! own_ops {
    ($($name:ident: $op:ident of $dtype:ident;)*) => {
        $(
            struct $name;
            impl UserOp for $name {
                unsafe fn reduce(input: *const u8, inout: *mut u8, len: i64, _: Datatype) {
                    if let (Some(kernel), Ok(len)) = (kernel(ReduceOp::$op, DType::$dtype), usize::try_from(len)) {
                        // SAFETY:
                        // - MPI hands over `len` elements at both addresses, which do not overlap; they are
                        //   of the one dtype that this operation is ever used with (`handle`).
                        unsafe { kernel(input, inout, len) }
                    }
                }
            }
        )*

        /// Whether there is such an operation.
        pub(crate) fn exists(op: ReduceOp, dtype: DType) -> bool {
            [$((ReduceOp::$op, DType::$dtype)),*].contains(&(op, dtype))
        }

        /// The handle of our operation on a dtype.
        pub(crate) fn handle(mpi: &Mpi, op: ReduceOp, dtype: DType) -> Result<mpi_runtime::Op> {
            $(
                if (op, dtype) == (ReduceOp::$op, DType::$dtype) {
                    static HANDLE: OnceLock<mpi_runtime::Op> = OnceLock::new();
                    return made::<$name>(mpi, &HANDLE);
                }
            )*
            Err(value_error!("{op:?} has no kernel for {dtype}"))
        }
    };
}

own_ops! {
    // Open MPI 5.0.11 saturates these sums where it uses vector instructions.
    SumI8: Sum of I8;
    SumU8: Sum of U8;
    SumI16: Sum of I16;
    SumU16: Sum of U16;
    // Libraries differ in what MAX and MIN make of NaN and of signed zeros.
    MaxLongDouble: Max of LONG_DOUBLE;
    MinLongDouble: Min of LONG_DOUBLE;
    MaxF32: Max of F32;
    MinF32: Min of F32;
    MaxF64: Max of F64;
    MinF64: Min of F64;
    // MPI has no such type.
    ProdE8M0: Prod of F8_E8M0FNU;
    MaxE8M0: Max of F8_E8M0FNU;
    MinE8M0: Min of F8_E8M0FNU;
}

fn made<T: UserOp>(mpi: &Mpi, handle: &OnceLock<mpi_runtime::Op>) -> Result<mpi_runtime::Op> {
    if let Some(&op) = handle.get() {
        return Ok(op);
    }
    let op = mpi.op_create::<T>(true)?;
    // A thread that loses the race leaves one small handle behind.
    Ok(*handle.get_or_init(|| op))
}
