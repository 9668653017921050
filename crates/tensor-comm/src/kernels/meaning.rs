//! Which operation means something for which dtype, in words for the person who asked.
//! Refuses to know how anything is computed.

use super::ReduceOp;
use dlpack_core::{DType, TypeCode};
use std::fmt;

impl ReduceOp {
    /// Every operation.
    pub const ALL: [ReduceOp; 10] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Land,
        ReduceOp::Lor,
        ReduceOp::Lxor,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "SUM",
            ReduceOp::Prod => "PROD",
            ReduceOp::Max => "MAX",
            ReduceOp::Min => "MIN",
            ReduceOp::Land => "LAND",
            ReduceOp::Lor => "LOR",
            ReduceOp::Lxor => "LXOR",
            ReduceOp::Band => "BAND",
            ReduceOp::Bor => "BOR",
            ReduceOp::Bxor => "BXOR",
        })
    }
}

/// A family of dtypes in which the same operations mean something.
struct Family {
    /// The operations.
    ops: &'static [ReduceOp],
    /// Why there are no others.
    because: &'static str,
}

const INTEGERS: Family = Family {
    ops: &ReduceOp::ALL,
    because: "",
};
const TRUTH_VALUES: Family = Family {
    ops: &[
        ReduceOp::Land,
        ReduceOp::Lor,
        ReduceOp::Lxor,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ],
    because: "truth values have no arithmetic: LOR is \"any\" and LAND is \"all\"; to count, convert to an integer dtype",
};
const FLOATS: Family = Family {
    ops: &[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min],
    because: "logical and bitwise operations are for integers and bool",
};
const COMPLEX: Family = Family {
    ops: &[ReduceOp::Sum, ReduceOp::Prod],
    because: "complex numbers have no order, and logical and bitwise operations are for integers and bool",
};
const SCALE_FACTORS: Family = Family {
    ops: &[ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min],
    because: "it holds powers of two only, of which a sum is none",
};
const VECTORS: Family = Family {
    ops: &[],
    because: "vector elements are moved, never reduced: view the tensor with its scalar dtype",
};
const PACKED: Family = Family {
    ops: &[],
    because: "elements smaller than a byte are moved, never reduced: convert to a wider dtype",
};
const UNKNOWN: Family = Family {
    ops: &[],
    because: "its elements have no arithmetic that is known here: they are moved, never reduced",
};

fn family(dtype: DType) -> &'static Family {
    if dtype.code == TypeCode::RAW {
        return &UNKNOWN;
    }
    if dtype.lanes != 1 {
        return &VECTORS;
    }
    match (dtype.code, dtype.bits) {
        (TypeCode::INT | TypeCode::UINT, 8 | 16 | 32 | 64) => &INTEGERS,
        (TypeCode::BOOL, 8) => &TRUTH_VALUES,
        (TypeCode::FLOAT, 16 | 32 | 64) | (TypeCode::BFLOAT, 16) => &FLOATS,
        (TypeCode::LONG_DOUBLE, _) => &FLOATS,
        (TypeCode::COMPLEX, 32 | 64 | 128) => &COMPLEX,
        (TypeCode::COMPLEX_LONG_DOUBLE, _) => &COMPLEX,
        (TypeCode::FLOAT8_E8M0FNU, 8) => &SCALE_FACTORS,
        (
            TypeCode::FLOAT8_E3M4
            | TypeCode::FLOAT8_E4M3
            | TypeCode::FLOAT8_E4M3B11FNUZ
            | TypeCode::FLOAT8_E4M3FN
            | TypeCode::FLOAT8_E4M3FNUZ
            | TypeCode::FLOAT8_E5M2
            | TypeCode::FLOAT8_E5M2FNUZ,
            8,
        ) => &FLOATS,
        (_, 1..8) => &PACKED,
        _ => &UNKNOWN,
    }
}

/// Does `op` mean something for `dtype`? If not: what was asked, why it can't be, and what can.
///
/// `longdouble` has meaning beyond its kernels, MAX and MIN: its arithmetic is the MPI library's.
pub fn meaning(op: ReduceOp, dtype: DType) -> Result<(), String> {
    let family = family(dtype);
    if family.ops.contains(&op) {
        return Ok(());
    }
    let others = match family.ops {
        [] => "no operation has".to_owned(),
        ops => {
            let names: Vec<_> = ops.iter().map(ReduceOp::to_string).collect();
            format!("{} have", names.join(", "))
        }
    };
    Err(format!(
        "{op} has no meaning for {dtype} ({others}): {}",
        family.because
    ))
}
