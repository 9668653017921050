//! SUM and PROD of float32, float64 and their complex numbers, in the processor's own arithmetic.
//! Refuses to know narrower formats, which compute in float32 (`narrow.rs`).

use super::map::{Each, Map, Pairs};
use super::order::{self, Max, Min};
use super::tier::{Tier, pick};
use super::{Kernel, ReduceOp};
use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};

/// A number with the processor's own arithmetic.
pub(super) trait Real:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
}
impl Real for f32 {}
impl Real for f64 {}

pub(super) struct Sum<T>(PhantomData<T>);
pub(super) struct Prod<T>(PhantomData<T>);
/// The product of two complex numbers, by the plain formula, as NumPy's and torch's: an infinity times a
/// number with a NaN in one part is NaN, without the recovery of C's Annex G.
pub(super) struct ComplexProd<T>(PhantomData<T>);

impl<T: Real> Map for Sum<T> {
    type T = T;
    #[inline(always)]
    fn map(low: T, high: T) -> T {
        low + high
    }
}

impl<T: Real> Map for Prod<T> {
    type T = T;
    #[inline(always)]
    fn map(low: T, high: T) -> T {
        low * high
    }
}

impl<T: Real> Map for ComplexProd<T> {
    type T = [T; 2];
    #[inline(always)]
    fn map([a, b]: [T; 2], [c, d]: [T; 2]) -> [T; 2] {
        [a * c - b * d, a * d + b * c]
    }
}

/// The kernel of float32.
pub(super) fn f32_kernel(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Sum => pick::<u8, u8, Each<Sum<f32>>>(tier),
        ReduceOp::Prod => pick::<u8, u8, Each<Prod<f32>>>(tier),
        ReduceOp::Max => pick::<u8, u8, Each<Max<order::F32>>>(tier),
        ReduceOp::Min => pick::<u8, u8, Each<Min<order::F32>>>(tier),
        _ => None,
    }
}

/// The kernel of float64.
pub(super) fn f64_kernel(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Sum => pick::<u8, u8, Each<Sum<f64>>>(tier),
        ReduceOp::Prod => pick::<u8, u8, Each<Prod<f64>>>(tier),
        ReduceOp::Max => pick::<u8, u8, Each<Max<order::F64>>>(tier),
        ReduceOp::Min => pick::<u8, u8, Each<Min<order::F64>>>(tier),
        _ => None,
    }
}

/// The kernel of complex64 or complex128, by the type of their parts.
pub(super) fn complex_kernel<T: Real>(tier: Tier, op: ReduceOp) -> Option<Kernel> {
    match op {
        ReduceOp::Sum => pick::<u8, u8, Pairs<Each<Sum<T>>>>(tier),
        ReduceOp::Prod => pick::<u8, u8, Each<ComplexProd<T>>>(tier),
        _ => None,
    }
}
