//! float8_e8m0fnu: a power of two, `2^(bits - 127)`, or NaN (255). It has no zero, no sign and no
//! infinity: it is the scale factor of a block. Refuses to know other formats.
//!
//! PROD adds exponents; what leaves the range of exponents becomes NaN, at both ends, since the format has
//! neither infinity nor zero to round to. MAX and MIN follow the rule of `order.rs`. A sum of scale factors
//! is no power of two: SUM has no meaning.

use super::map::{Each, Map};
use super::order::{Max, Min, Ordered};
use super::tier::{Tier, pick};
use super::{Kernel, ReduceOp};

const NAN: u8 = 255;
const BIAS: i16 = 127;

struct E8m0;

impl Ordered for E8m0 {
    type Bits = u8;
    type Key = u8;
    #[inline(always)]
    fn nan_last(bits: u8) -> u8 {
        bits
    }
    #[inline(always)]
    fn nan_first(bits: u8) -> u8 {
        bits.wrapping_add(1)
    }
}

struct Prod;

impl Map for Prod {
    type T = u8;
    #[inline(always)]
    fn map(low: u8, high: u8) -> u8 {
        let exponent = i16::from(low) + i16::from(high) - BIAS;
        let is_nan = (low == NAN) | (high == NAN) | (exponent < 0) | (exponent >= i16::from(NAN));
        if is_nan { NAN } else { exponent as u8 }
    }
}

/// The kernel of float8_e8m0fnu.
pub(super) fn kernel(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Prod => pick::<u8, u8, Each<Prod>>(tier),
        ReduceOp::Max => pick::<u8, u8, Each<Max<E8m0>>>(tier),
        ReduceOp::Min => pick::<u8, u8, Each<Min<E8m0>>>(tier),
        _ => None,
    }
}
