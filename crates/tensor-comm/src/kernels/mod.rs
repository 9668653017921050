//! The arithmetic of reductions: one kernel per operation and dtype, the same bits on every processor.
//! Refuses to know MPI, layouts and ranks: contiguous numbers in, contiguous numbers out.
//!
//! ```text
//! kernel(op, dtype) --> best Tier of this processor --> a loop compiled for it
//! ```
//!
//! - Integers wrap. Logical results are 0 or 1; any nonzero integer or `bool` byte is true.
//! - 16- and 8-bit floats compute in float32 and round once, to nearest even. NaN stays NaN. Beyond the
//!   largest number lies infinity, or NaN in a format that has none (as in `ml_dtypes`).
//! - MAX and MIN of floats: a NaN operand gives NaN, and -0 < +0, as NumPy's `maximum` and torch's.
//! - What has no meaning has no kernel; [`meaning`] says why.
//!
//! Pointers need no alignment: DLPack producers export unaligned data.

mod bf16;
mod e8m0;
mod f16c;
mod format;
mod int;
mod longdouble;
mod map;
mod meaning;
mod narrow;
mod order;
mod real;
mod scale;
mod tier;

use dlpack_core::{DType, TypeCode};

pub use meaning::meaning;
pub use scale::scale;
pub use tier::Tier;

/// An operation that kernels know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Are all true?
    Land,
    /// Is any true?
    Lor,
    /// Is the number of true ones odd?
    Lxor,
    /// Bitwise and.
    Band,
    /// Bitwise or.
    Bor,
    /// Bitwise exclusive or.
    Bxor,
}

/// `inout[i] = input[i] op inout[i]` for `i < n`; `input` is the operand of the lower rank.
///
/// # Safety
/// - `input` is valid for reads and `inout` for reads and writes of `n` elements of the dtype that the
///   kernel was made for; neither needs alignment;
/// - they are the same address, or do not overlap.
pub type Kernel = unsafe fn(input: *const u8, inout: *mut u8, n: usize);

/// `dst[i] = src[i]` as float32, for `i < n`: exact. Of complex numbers, both parts, so `2 * n` float32.
///
/// # Safety
/// - `src` is valid for reads of `n` elements of the dtype, `dst` for writes of as many float32 (twice as
///   many if complex); neither needs alignment;
/// - they do not overlap.
pub type Widen = unsafe fn(src: *const u8, dst: *mut f32, n: usize);

/// `dst[i] = src[i]` rounded to nearest even, for `i < n`: the reverse of [`Widen`].
///
/// # Safety
/// - `src` is valid for reads of `n` float32 (`2 * n` if the dtype is complex), `dst` for writes of `n`
///   elements of the dtype; neither needs alignment;
/// - they do not overlap.
pub type Narrow = unsafe fn(src: *const f32, dst: *mut u8, n: usize);

/// The kernel of an operation on a dtype, for the best tier of this processor; `None` where the operation
/// has no meaning, and for SUM and PROD of `longdouble`, whose arithmetic is the MPI library's.
pub fn kernel(op: ReduceOp, dtype: DType) -> Option<Kernel> {
    kernel_for(Tier::best(), op, dtype)
}

/// As [`kernel`], for one tier; `None` also where this processor does not have it.
pub fn kernel_for(tier: Tier, op: ReduceOp, dtype: DType) -> Option<Kernel> {
    if dtype.lanes != 1 {
        return None;
    }
    match (dtype.code, dtype.bits) {
        (TypeCode::INT, 8) => int::kernel::<i8, u8>(tier, op),
        (TypeCode::INT, 16) => int::kernel::<i16, u16>(tier, op),
        (TypeCode::INT, 32) => int::kernel::<i32, u32>(tier, op),
        (TypeCode::INT, 64) => int::kernel::<i64, u64>(tier, op),
        (TypeCode::UINT, 8) => int::kernel::<u8, u8>(tier, op),
        (TypeCode::UINT, 16) => int::kernel::<u16, u16>(tier, op),
        (TypeCode::UINT, 32) => int::kernel::<u32, u32>(tier, op),
        (TypeCode::UINT, 64) => int::kernel::<u64, u64>(tier, op),
        (TypeCode::BOOL, 8) => int::bool_kernel(tier, op),
        (TypeCode::FLOAT, 32) => real::f32_kernel(tier, op),
        (TypeCode::FLOAT, 64) => real::f64_kernel(tier, op),
        (TypeCode::COMPLEX, 64) => real::complex_kernel::<f32>(tier, op),
        (TypeCode::COMPLEX, 128) => real::complex_kernel::<f64>(tier, op),
        (TypeCode::FLOAT8_E8M0FNU, 8) => e8m0::kernel(tier, op),
        (TypeCode::LONG_DOUBLE, 128) => longdouble::kernel(tier, op),
        (code, bits) => narrow::row(code, bits)?.kernel(tier, op),
    }
}

/// The way from a 16- or 8-bit float (or a pair of them) to float32; `None` for every other dtype.
/// float8_e8m0fnu has none: its kernels are exact on its own bits.
pub fn widen(dtype: DType) -> Option<Widen> {
    widen_for(Tier::best(), dtype)
}

/// As [`widen`], for one tier.
pub fn widen_for(tier: Tier, dtype: DType) -> Option<Widen> {
    match dtype.lanes {
        1 => (narrow::row(dtype.code, dtype.bits)?.widen)(tier),
        _ => None,
    }
}

/// The way back from float32: rounded to nearest even, NaN stays NaN; beyond the largest number infinity,
/// or NaN in a format that has none. `None` where [`widen`] is.
pub fn narrow(dtype: DType) -> Option<Narrow> {
    narrow_for(Tier::best(), dtype)
}

/// As [`narrow`], for one tier.
pub fn narrow_for(tier: Tier, dtype: DType) -> Option<Narrow> {
    match dtype.lanes {
        1 => (narrow::row(dtype.code, dtype.bits)?.narrow)(tier),
        _ => None,
    }
}
