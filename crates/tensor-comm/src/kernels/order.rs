//! MAX and MIN of floating-point numbers, by one rule for every format and tier:
//! a NaN operand gives that NaN (the lower rank's, if both are), and -0 is less than +0.
//! Refuses to know arithmetic: formats are compared as integers, so that vector and scalar code, and the
//! processor's rounding and flushing modes, cannot differ by a bit.

use super::map::Map;
use std::marker::PhantomData;

/// A floating-point format as its bits.
pub(super) trait Ordered {
    /// Its bits, as they lie in memory.
    type Bits: Copy;
    /// A signed integer that orders as the numbers do.
    type Key: Copy + Ord;
    fn key(bits: Self::Bits) -> Self::Key;
    fn is_nan(bits: Self::Bits) -> bool;
}

macro_rules! ieee {
    ($($name:ident, $bits:ty, $key:ty, $width:literal, $infinity:literal;)*) => {$(
        /// An IEEE 754 format.
        pub(super) struct $name;
        impl Ordered for $name {
            type Bits = $bits;
            type Key = $key;
            #[inline(always)]
            fn key(bits: $bits) -> $key {
                let signed = bits as $key;
                // Below zero a larger magnitude is a smaller number: flip all bits but the sign.
                signed ^ (((signed >> ($width - 1)) as $bits) >> 1) as $key
            }
            #[inline(always)]
            fn is_nan(bits: $bits) -> bool {
                (bits & (<$bits>::MAX >> 1)) > $infinity
            }
        }
    )*};
}

ieee! {
    F64, u64, i64, 64, 0x7ff0_0000_0000_0000;
    F32, u32, i32, 32, 0x7f80_0000;
}

/// The larger operand, by the rule of this file.
pub(super) struct Max<F>(PhantomData<F>);
/// The smaller operand, by the rule of this file.
pub(super) struct Min<F>(PhantomData<F>);

impl<F: Ordered> Map for Max<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        let wins = F::is_nan(low) | ((F::key(low) > F::key(high)) & !F::is_nan(high));
        if wins { low } else { high }
    }
}

impl<F: Ordered> Map for Min<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        let wins = F::is_nan(low) | ((F::key(low) < F::key(high)) & !F::is_nan(high));
        if wins { low } else { high }
    }
}
