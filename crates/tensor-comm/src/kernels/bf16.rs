//! SUM and PROD of bfloat16, two neighbours at a time in one 32-bit word: vectors need no shuffles, which
//! widening to float32 and packing again take. Refuses to know any other operation and format.

use super::format::Bf16;
use super::map::{Each, Map};
use super::narrow;
use super::tier::Elementwise;
use std::marker::PhantomData;

/// SUM.
pub(super) type Sum = InPairs<narrow::Sum<Bf16>, Add>;
/// PROD.
pub(super) type Prod = InPairs<narrow::Prod<Bf16>, Multiply>;

/// An operation on float32.
pub(super) trait Arithmetic {
    fn of(low: f32, high: f32) -> f32;
}

pub(super) struct Add;
pub(super) struct Multiply;

impl Arithmetic for Add {
    #[inline(always)]
    fn of(low: f32, high: f32) -> f32 {
        low + high
    }
}

impl Arithmetic for Multiply {
    #[inline(always)]
    fn of(low: f32, high: f32) -> f32 {
        low * high
    }
}

/// Pairs by `A`, and the last one of an odd number by `M`.
pub(super) struct InPairs<M, A>(PhantomData<(M, A)>);

impl<M: Map<T = u16>, A: Arithmetic> Elementwise<u8, u8> for InPairs<M, A> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const u8, output: *mut u8, n: usize) {
        let pairs = n / 2;
        let done = pairs * size_of::<u32>();
        // SAFETY:
        // - the caller vouches for `n` numbers behind both pointers: the pairs and what is left of them.
        unsafe {
            Each::<Pair<A>>::run::<TIER>(input, output, pairs);
            Each::<M>::run::<TIER>(input.add(done), output.add(done), n % 2);
        }
    }
}

/// Two numbers; which is the first is all the same.
struct Pair<A>(PhantomData<A>);

/// The bits of the number in the upper half of a word.
const UPPER: u32 = 0xffff_0000;

impl<A: Arithmetic> Map for Pair<A> {
    type T = u32;
    #[inline(always)]
    fn map(low: u32, high: u32) -> u32 {
        let upper = A::of(f32::from_bits(low & UPPER), f32::from_bits(high & UPPER));
        let lower = A::of(f32::from_bits(low << 16), f32::from_bits(high << 16));
        (rounded(upper) & UPPER) | (rounded(lower) >> 16)
    }
}

/// The bits of a float32 whose upper half is rounded to nearest, ties to even. A NaN stays what it is: as operands
/// have no bits in the lower half, neither has a NaN that comes of them, so nothing is carried into its upper half.
#[inline(always)]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    bits.wrapping_add(0x7fff + ((bits >> 16) & 1))
}
