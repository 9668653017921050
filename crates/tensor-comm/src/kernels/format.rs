//! The 16- and 8-bit floating-point formats: to float32 and back, by branch-free integer arithmetic.
//! Refuses to know operations and loops.
//!
//! To float32 is exact. Back rounds once, to nearest, ties to even; a NaN stays a NaN; what rounds beyond
//! the largest number becomes infinity, or NaN in a format without infinity (`fn`, `fnuz`), as in
//! `ml_dtypes` (no saturation: a sum that does not fit must not look like one that does).

use super::order::{Ordered, order_by_magnitude, signed};

/// A format narrower than float32.
pub(super) trait Format {
    /// Its bits, as they lie in memory.
    type Bits: Copy;
    fn widen(bits: Self::Bits) -> f32;
    fn narrow(value: f32) -> Self::Bits;
}

/// float32 infinity; the bits above it are NaNs.
const INFINITY: u32 = 0x7f80_0000;
/// The quiet bit of a float32 NaN.
const QUIET: u32 = 0x0040_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

/// bfloat16: the upper half of a float32.
pub(super) struct Bf16;

impl Format for Bf16 {
    type Bits = u16;
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let is_nan = (bits & MAGNITUDE) > INFINITY;
        // Rounding could carry a NaN over into infinity: cut it and set its quiet bit instead.
        let chosen = if is_nan { bits | QUIET } else { rounded };
        (chosen >> 16) as u16
    }
}

/// What the largest exponents of a format mean.
const IEEE: u8 = 0;
/// No infinity, NaN is all ones: the `fn` formats.
const FINITE: u8 = 1;
/// No infinity, no negative zero, whose bits are the only NaN: the `fnuz` formats.
const FINITE_UNSIGNED_ZERO: u8 = 2;

/// A format of `1 + EXPONENT + MANTISSA` bits with this `BIAS`.
struct Small<const EXPONENT: u32, const MANTISSA: u32, const BIAS: u32, const KIND: u8>;

impl<const EXPONENT: u32, const MANTISSA: u32, const BIAS: u32, const KIND: u8>
    Small<EXPONENT, MANTISSA, BIAS, KIND>
{
    const SHIFT: u32 = 23 - MANTISSA;
    const SIGN: u32 = 1 << (EXPONENT + MANTISSA);
    /// The magnitude after the largest number: infinity, or NaN where there is none.
    const BEYOND: u32 = match KIND {
        IEEE => ((1 << EXPONENT) - 1) << MANTISSA,
        FINITE => Self::SIGN - 1,
        _ => Self::SIGN,
    };
    /// From this format's exponents to float32's.
    const REBIAS: u32 = (127 - BIAS) << 23;
    /// The smallest normal number, as a float32.
    const NORMAL: u32 = (128 - BIAS) << 23;
    /// A float32 whose last bit is worth this format's smallest number: adding it rounds a subnormal.
    const MAGIC: u32 = (128 - BIAS + Self::SHIFT) << 23;

    #[inline(always)]
    fn is_nan(bits: u32) -> bool {
        let magnitude = bits & (Self::SIGN - 1);
        match KIND {
            IEEE => magnitude > Self::BEYOND,
            FINITE => magnitude == Self::BEYOND,
            _ => bits == Self::SIGN,
        }
    }

    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        let magnitude = bits & (Self::SIGN - 1);
        let shifted = magnitude << Self::SHIFT;
        // One normal subtraction instead of a count of leading zeros; no float32 subnormal comes up, so
        // that a flush-to-zero mode can't harm.
        let subnormal = f32::from_bits(shifted + Self::NORMAL) - f32::from_bits(Self::NORMAL);
        let finite = if magnitude < (1 << MANTISSA) {
            subnormal.to_bits()
        } else {
            shifted + Self::REBIAS
        };
        let is_infinite = KIND == IEEE && magnitude == Self::BEYOND;
        let special = shifted | INFINITY | if is_infinite { 0 } else { QUIET };
        let is_special = Self::is_nan(bits) | is_infinite;
        let value = if is_special { special } else { finite };
        f32::from_bits(value | ((bits & Self::SIGN) << (31 - EXPONENT - MANTISSA)))
    }

    #[inline(always)]
    fn narrow(value: f32) -> u32 {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        let sign = (bits >> (31 - EXPONENT - MANTISSA)) & Self::SIGN;
        let odd = (magnitude >> Self::SHIFT) & 1;
        let normal = magnitude
            .wrapping_sub(Self::REBIAS)
            .wrapping_add((1 << (Self::SHIFT - 1)) - 1 + odd)
            >> Self::SHIFT;
        let subnormal = (f32::from_bits(magnitude) + f32::from_bits(Self::MAGIC))
            .to_bits()
            .wrapping_sub(Self::MAGIC);
        let rounded = if magnitude < Self::NORMAL {
            subnormal
        } else {
            normal
        };
        let is_nan = magnitude > INFINITY;
        let is_beyond = rounded >= Self::BEYOND;
        match KIND {
            IEEE => {
                let payload = (magnitude >> Self::SHIFT) & ((1 << MANTISSA) - 1);
                let nan = Self::BEYOND | (1 << (MANTISSA - 1)) | payload;
                let capped = if is_beyond { Self::BEYOND } else { rounded };
                sign | if is_nan { nan } else { capped }
            }
            FINITE => {
                sign | if is_nan | is_beyond {
                    Self::BEYOND
                } else {
                    rounded
                }
            }
            _ => {
                let signed = if rounded == 0 { 0 } else { sign | rounded };
                if is_nan | is_beyond {
                    Self::SIGN
                } else {
                    signed
                }
            }
        }
    }
}

macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident, $bits:ty,
       $exponent:literal, $mantissa:literal, $bias:literal, $kind:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl Format for $name {
            type Bits = $bits;
            #[inline(always)]
            fn widen(bits: $bits) -> f32 {
                Small::<$exponent, $mantissa, $bias, $kind>::widen(u32::from(bits))
            }
            #[inline(always)]
            fn narrow(value: f32) -> $bits {
                Small::<$exponent, $mantissa, $bias, $kind>::narrow(value) as $bits
            }
        }
    )*};
}

formats! {
    /// IEEE half precision.
    F16, u16, 5, 10, 15, IEEE;
    E3m4, u8, 3, 4, 3, IEEE;
    E4m3, u8, 4, 3, 7, IEEE;
    E4m3b11fnuz, u8, 4, 3, 11, FINITE_UNSIGNED_ZERO;
    E4m3fn, u8, 4, 3, 7, FINITE;
    E4m3fnuz, u8, 4, 3, 8, FINITE_UNSIGNED_ZERO;
    E5m2, u8, 5, 2, 15, IEEE;
    E5m2fnuz, u8, 5, 2, 16, FINITE_UNSIGNED_ZERO;
}

order_by_magnitude! {
    Bf16: u16, i16, last number 0x7f80u16;
    F16: u16, i16, last number 0x7c00u16;
    E3m4: u8, i8, last number 0x70u8;
    E4m3: u8, i8, last number 0x78u8;
    E4m3fn: u8, i8, last number 0x7eu8;
    E5m2: u8, i8, last number 0x7cu8;
}

/// Implements [`Ordered`] for the `fnuz` formats, in which the bits of -0 are the only NaN.
macro_rules! order_without_negative_zero {
    ($($name:ty)*) => {$(
        impl Ordered for $name {
            type Bits = u8;
            type Key = i16;
            #[inline(always)]
            fn nan_last(bits: u8) -> i16 {
                if bits == 0x80 { i16::MAX } else { i16::from(signed!(bits, u8, i8)) }
            }
            #[inline(always)]
            fn nan_first(bits: u8) -> i16 {
                if bits == 0x80 { i16::MIN } else { i16::from(signed!(bits, u8, i8)) }
            }
        }
    )*};
}
order_without_negative_zero!(E4m3b11fnuz E4m3fnuz E5m2fnuz);
