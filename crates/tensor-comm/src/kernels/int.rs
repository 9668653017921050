//! Kernels of integers and truth values: wrapping arithmetic, order, logical and bitwise operations.
//! Refuses to know floating point.

use super::map::{Each, Map};
use super::tier::{Tier, pick};
use super::{Kernel, ReduceOp};
use std::marker::PhantomData;

/// A machine integer.
pub(super) trait Int: Copy + Ord {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! ints {
    ($($t:ty)*) => {$(
        impl Int for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
ints!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Declares maps over any integer: `Name: |a, b| expression`.
macro_rules! maps {
    ($($name:ident: |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        impl<T: Int> Map for $name<T> {
            type T = T;
            #[inline(always)]
            fn map($a: T, $b: T) -> T { $body }
        }
    )*};
}

maps! {
    Sum: |a, b| a.add(b);
    Prod: |a, b| a.mul(b);
    Max: |a, b| if a > b { a } else { b };
    Min: |a, b| if a < b { a } else { b };
    Land: |a, b| truth::<T>((a != T::ZERO) & (b != T::ZERO));
    Lor: |a, b| truth::<T>(a.or(b) != T::ZERO);
    Lxor: |a, b| truth::<T>((a != T::ZERO) ^ (b != T::ZERO));
    Band: |a, b| a.and(b);
    Bor: |a, b| a.or(b);
    Bxor: |a, b| a.xor(b);
}

#[inline(always)]
fn truth<T: Int>(yes: bool) -> T {
    if yes { T::ONE } else { T::ZERO }
}

/// The kernel of an integer type. `S` carries the order; `U`, unsigned and of the same width, everything
/// else, so that both signs share the compiled code.
pub(super) fn kernel<S: Int, U: Int>(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Sum => pick::<u8, u8, Each<Sum<U>>>(tier),
        ReduceOp::Prod => pick::<u8, u8, Each<Prod<U>>>(tier),
        ReduceOp::Max => pick::<u8, u8, Each<Max<S>>>(tier),
        ReduceOp::Min => pick::<u8, u8, Each<Min<S>>>(tier),
        ReduceOp::Land => pick::<u8, u8, Each<Land<U>>>(tier),
        ReduceOp::Lor => pick::<u8, u8, Each<Lor<U>>>(tier),
        ReduceOp::Lxor => pick::<u8, u8, Each<Lxor<U>>>(tier),
        ReduceOp::Band => pick::<u8, u8, Each<Band<U>>>(tier),
        ReduceOp::Bor => pick::<u8, u8, Each<Bor<U>>>(tier),
        ReduceOp::Bxor => pick::<u8, u8, Each<Bxor<U>>>(tier),
    }
}

/// The kernel of `bool`, one byte: any nonzero input is true, results are 0 or 1. The bitwise operations
/// are the logical ones: on truth values they mean the same.
pub(super) fn bool_kernel(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Land | ReduceOp::Band => pick::<u8, u8, Each<Land<u8>>>(tier),
        ReduceOp::Lor | ReduceOp::Bor => pick::<u8, u8, Each<Lor<u8>>>(tier),
        ReduceOp::Lxor | ReduceOp::Bxor => pick::<u8, u8, Each<Lxor<u8>>>(tier),
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => None,
    }
}
