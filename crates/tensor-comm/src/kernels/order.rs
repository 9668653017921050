//! MAX and MIN of floating-point numbers, by one rule for every format and tier:
//! a NaN operand gives NaN, and -0 is less than +0.
//! Refuses to know arithmetic: formats are compared as integers, so that vector and scalar code, and the
//! processor's rounding and flushing modes, cannot differ by a bit.
//!
//! Of two NaNs one is kept by its bits, not by its side: the operations are commutative and associative.

use super::map::Map;
use std::marker::PhantomData;

/// A floating-point format as its bits.
pub(super) trait Ordered {
    /// Its bits, as they lie in memory.
    type Bits: Copy;
    /// An integer.
    type Key: Ord;
    /// Orders as the numbers do, NaN above all.
    fn nan_last(bits: Self::Bits) -> Self::Key;
    /// Orders as the numbers do, NaN below all.
    fn nan_first(bits: Self::Bits) -> Self::Key;
    /// The larger, or a NaN.
    #[inline(always)]
    fn max(low: Self::Bits, high: Self::Bits) -> Self::Bits {
        let wins = Self::nan_last(low) > Self::nan_last(high);
        if wins { low } else { high }
    }
    /// The smaller, or a NaN.
    #[inline(always)]
    fn min(low: Self::Bits, high: Self::Bits) -> Self::Bits {
        let wins = Self::nan_first(low) < Self::nan_first(high);
        if wins { low } else { high }
    }
}

/// Implements [`Ordered`] for formats of sign and magnitude whose NaNs are all magnitudes above `$last`.
macro_rules! order_by_magnitude {
    ($($name:ty: $bits:ty, $key:ty, last number $last:expr;)*) => {$(
        impl Ordered for $name {
            type Bits = $bits;
            type Key = $key;
            // As signed integers, the negative NaNs come first and the positive ones last. Moving all keys
            // round the circle of integers brings both to the same end.
            #[inline(always)]
            fn nan_last(bits: $bits) -> $key {
                $crate::kernels::order::signed!(bits, $bits, $key).wrapping_sub(<$key>::MAX - $last as $key)
            }
            #[inline(always)]
            fn nan_first(bits: $bits) -> $key {
                $crate::kernels::order::signed!(bits, $bits, $key).wrapping_add(<$key>::MAX - $last as $key)
            }
            // A key tells its bits. Choosing between operands would be compiled to masked stores, since one lies where the
            // result goes, and with those such a kernel takes AMD's processors with AVX2 4 to 6 times as long.
            #[inline(always)]
            fn max(low: $bits, high: $bits) -> $bits {
                let key = Self::nan_last(low).max(Self::nan_last(high));
                $crate::kernels::order::signed!(key.wrapping_add(<$key>::MAX - $last as $key), $bits, $key) as $bits
            }
            #[inline(always)]
            fn min(low: $bits, high: $bits) -> $bits {
                let key = Self::nan_first(low).min(Self::nan_first(high));
                $crate::kernels::order::signed!(key.wrapping_sub(<$key>::MAX - $last as $key), $bits, $key) as $bits
            }
        }
    )*};
}

/// The signed integer that orders as sign and magnitude do: below zero a larger magnitude is a smaller
/// number, so all bits but the sign are flipped.
macro_rules! signed {
    ($value:expr, $bits:ty, $key:ty) => {{
        let key = $value as $key;
        key ^ ((key >> (<$key>::BITS - 1)) as $bits >> 1) as $key
    }};
}

pub(super) use {order_by_magnitude, signed};

/// float64.
pub(super) struct F64;
/// float32.
pub(super) struct F32;

order_by_magnitude! {
    F64: u64, i64, last number 0x7ff0_0000_0000_0000u64;
    F32: u32, i32, last number 0x7f80_0000u32;
}

/// The larger operand, by the rule of this file.
pub(super) struct Max<F>(PhantomData<F>);
/// The smaller operand, by the rule of this file.
pub(super) struct Min<F>(PhantomData<F>);

impl<F: Ordered> Map for Max<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        F::max(low, high)
    }
}

impl<F: Ordered> Map for Min<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        F::min(low, high)
    }
}
