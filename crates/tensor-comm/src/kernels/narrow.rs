//! Kernels of 16- and 8-bit floats: widened to float32, one float32 operation, rounded once.
//! Refuses to know the formats' bits (`format.rs`).

use super::bf16;
use super::f16c;
use super::format::{self, Format};
use super::map::{Convert, Each, EachConvert, Map, Pairs};
use super::order::{Max, Min, Ordered};
use super::tier::{Compiled, Elementwise, Tier, pick};
use super::{Kernel, ReduceOp};
use dlpack_core::TypeCode;
use std::marker::PhantomData;

pub(super) struct Sum<F>(PhantomData<F>);
pub(super) struct Prod<F>(PhantomData<F>);
/// The product of two complex numbers; each part is rounded once, from float32.
struct ComplexProd<F>(PhantomData<F>);
pub(super) struct Widen<F>(PhantomData<F>);
pub(super) struct Narrow<F>(PhantomData<F>);

impl<F: Format> Map for Sum<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        F::narrow(F::widen(low) + F::widen(high))
    }
}

impl<F: Format> Map for Prod<F> {
    type T = F::Bits;
    #[inline(always)]
    fn map(low: F::Bits, high: F::Bits) -> F::Bits {
        F::narrow(F::widen(low) * F::widen(high))
    }
}

impl<F: Format> Map for ComplexProd<F> {
    type T = [F::Bits; 2];
    #[inline(always)]
    fn map(low: [F::Bits; 2], high: [F::Bits; 2]) -> [F::Bits; 2] {
        let [a, b] = low.map(F::widen);
        let [c, d] = high.map(F::widen);
        [F::narrow(a * c - b * d), F::narrow(a * d + b * c)]
    }
}

impl<F: Format> Convert for Widen<F> {
    type From = F::Bits;
    type To = f32;
    #[inline(always)]
    fn convert(from: F::Bits) -> f32 {
        F::widen(from)
    }
}

impl<F: Format> Convert for Narrow<F> {
    type From = f32;
    type To = F::Bits;
    #[inline(always)]
    fn convert(from: f32) -> F::Bits {
        F::narrow(from)
    }
}

/// `input` is one float32, the divisor: `output[i] /= divisor` over `n` elements.
struct Scale<F>(PhantomData<F>);

impl<F: Format> Elementwise<f32, u8> for Scale<F> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const f32, output: *mut u8, n: usize) {
        // SAFETY: the caller vouches for one divisor.
        let divisor = unsafe { input.read_unaligned() };
        let output = output.cast::<F::Bits>();
        for i in 0..n {
            // SAFETY:
            // - `i < n`, and the caller vouches for `n` elements;
            // - both accesses are unaligned ones.
            unsafe {
                let out = output.add(i);
                out.write_unaligned(F::narrow(F::widen(out.read_unaligned()) / divisor));
            }
        }
    }
}

/// The loops of one format.
trait Loops {
    type Format: Format + Ordered;
    type Sum: Elementwise<u8, u8>;
    type Prod: Elementwise<u8, u8>;
    type Widen: Elementwise<u8, f32>;
    type Narrow: Elementwise<f32, u8>;
}

/// A format whose loops the compiler vectorises well enough.
struct Plain<F>(PhantomData<F>);

impl<F: Format + Ordered> Loops for Plain<F> {
    type Format = F;
    type Sum = Each<Sum<F>>;
    type Prod = Each<Prod<F>>;
    type Widen = EachConvert<Widen<F>>;
    type Narrow = EachConvert<Narrow<F>>;
}

/// float16: the processor's conversions where it has them.
struct Half;

impl Loops for Half {
    type Format = format::F16;
    type Sum = f16c::Sum;
    type Prod = f16c::Prod;
    type Widen = f16c::Widen;
    type Narrow = f16c::Narrow;
}

/// bfloat16: two numbers to a word.
struct Brain;

impl Loops for Brain {
    type Format = format::Bf16;
    type Sum = bf16::Sum;
    type Prod = bf16::Prod;
    type Widen = EachConvert<Widen<format::Bf16>>;
    type Narrow = EachConvert<Narrow<format::Bf16>>;
}

/// What one format offers, per tier: the kernels and conversions of its numbers.
pub(super) struct Row {
    sum: Picked<u8, u8>,
    prod: Picked<u8, u8>,
    max: Picked<u8, u8>,
    min: Picked<u8, u8>,
    pub(super) widen: Picked<u8, f32>,
    pub(super) narrow: Picked<f32, u8>,
    pub(super) scale: Picked<f32, u8>,
}

type Picked<I, O> = fn(Tier) -> Option<Compiled<I, O>>;

/// The row of a real format.
fn real<L: Loops>() -> Row {
    Row {
        sum: pick::<u8, u8, L::Sum>,
        prod: pick::<u8, u8, L::Prod>,
        max: pick::<u8, u8, Each<Max<L::Format>>>,
        min: pick::<u8, u8, Each<Min<L::Format>>>,
        widen: pick::<u8, f32, L::Widen>,
        narrow: pick::<f32, u8, L::Narrow>,
        scale: pick::<f32, u8, Scale<L::Format>>,
    }
}

/// The row of complex numbers whose parts have this format; they have no order.
fn complex<L: Loops>() -> Row {
    Row {
        sum: pick::<u8, u8, Pairs<L::Sum>>,
        prod: pick::<u8, u8, Each<ComplexProd<L::Format>>>,
        max: |_| None,
        min: |_| None,
        widen: pick::<u8, f32, Pairs<L::Widen>>,
        narrow: pick::<f32, u8, Pairs<L::Narrow>>,
        scale: pick::<f32, u8, Pairs<Scale<L::Format>>>,
    }
}

/// The row of a type code and width that is a 16- or 8-bit float, or a pair of them.
pub(super) fn row(code: TypeCode, bits: u8) -> Option<Row> {
    Some(match (code, bits) {
        (TypeCode::FLOAT, 16) => real::<Half>(),
        (TypeCode::BFLOAT, 16) => real::<Brain>(),
        (TypeCode::COMPLEX, 32) => complex::<Half>(),
        (TypeCode::FLOAT8_E3M4, 8) => real::<Plain<format::E3m4>>(),
        (TypeCode::FLOAT8_E4M3, 8) => real::<Plain<format::E4m3>>(),
        (TypeCode::FLOAT8_E4M3B11FNUZ, 8) => real::<Plain<format::E4m3b11fnuz>>(),
        (TypeCode::FLOAT8_E4M3FN, 8) => real::<Plain<format::E4m3fn>>(),
        (TypeCode::FLOAT8_E4M3FNUZ, 8) => real::<Plain<format::E4m3fnuz>>(),
        (TypeCode::FLOAT8_E5M2, 8) => real::<Plain<format::E5m2>>(),
        (TypeCode::FLOAT8_E5M2FNUZ, 8) => real::<Plain<format::E5m2fnuz>>(),
        _ => return None,
    })
}

impl Row {
    /// The kernel of `op`.
    pub(super) fn kernel(&self, tier: Tier, op: ReduceOp) -> Option<Kernel> {
        match op {
            ReduceOp::Sum => (self.sum)(tier),
            ReduceOp::Prod => (self.prod)(tier),
            ReduceOp::Max => (self.max)(tier),
            ReduceOp::Min => (self.min)(tier),
            _ => None,
        }
    }
}
