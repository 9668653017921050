//! MAX and MIN of C's `long double`, which is another format on each processor; by the rule of `order.rs`,
//! since libraries differ in theirs. Refuses to know its arithmetic: SUM and PROD are the MPI library's.

use super::tier::Tier;
use super::{Kernel, ReduceOp};

/// x86: 80 bits in the lower part of 16 bytes; the rest is padding.
#[cfg(target_arch = "x86_64")]
mod format {
    use super::super::order::{Ordered, signed};

    pub(super) struct LongDouble;

    /// Moves the sign to the top, and the padding out.
    const PADDING: u32 = 48;
    /// From infinity to the largest magnitude that 80 bits hold: what NaNs take.
    const NANS: i128 = i128::MAX - (0x7fff_8000_0000_0000_0000_i128 << PADDING);

    impl Ordered for LongDouble {
        type Bits = u128;
        type Key = i128;
        #[inline(always)]
        fn nan_last(bits: u128) -> i128 {
            signed!(bits << PADDING, u128, i128).wrapping_sub(NANS)
        }
        #[inline(always)]
        fn nan_first(bits: u128) -> i128 {
            signed!(bits << PADDING, u128, i128).wrapping_add(NANS)
        }
    }
}

/// Arm's Linux: IEEE quadruple precision.
#[cfg(all(target_arch = "aarch64", not(target_vendor = "apple")))]
mod format {
    use super::super::order::{Ordered, order_by_magnitude};

    pub(super) struct LongDouble;

    order_by_magnitude! {
        LongDouble: u128, i128, last number 0x7fff_u128 << 112;
    }
}

/// The kernel of `long double`.
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", not(target_vendor = "apple"))
))]
pub(super) fn kernel(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    use super::map::Each;
    use super::order::{Max, Min};
    use super::tier::pick;
    match op {
        ReduceOp::Max => pick::<u8, u8, Each<Max<format::LongDouble>>>(tier),
        ReduceOp::Min => pick::<u8, u8, Each<Min<format::LongDouble>>>(tier),
        _ => None,
    }
}

/// No kernel where `long double` is a format that is not known here.
#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", not(target_vendor = "apple"))
)))]
pub(super) fn kernel(_: Tier, _: ReduceOp) -> Option<Kernel> {
    None
}
