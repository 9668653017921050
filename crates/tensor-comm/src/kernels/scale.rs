//! AVG's second half: division of a sum by the number of its terms.
//! Refuses to know how the sum came about.

use super::narrow;
use super::tier::{Elementwise, Tier, pick};
use dlpack_core::{DType, TypeCode};
use std::marker::PhantomData;
use std::ops::Div;

/// `input` is one `T`, the divisor: `output[i] /= divisor` over `n` elements.
struct Divide<T>(PhantomData<T>);

impl<T: Copy + Div<Output = T>> Elementwise<T, u8> for Divide<T> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const T, output: *mut u8, n: usize) {
        // SAFETY: the caller vouches for one divisor.
        let divisor = unsafe { input.read_unaligned() };
        let output = output.cast::<T>();
        for i in 0..n {
            // SAFETY:
            // - `i < n`, and the caller vouches for `n` elements;
            // - both accesses are unaligned ones.
            unsafe {
                let out = output.add(i);
                out.write_unaligned(out.read_unaligned() / divisor);
            }
        }
    }
}

/// Divides `n` numbers in place: for floating-point and complex dtypes. Returns false, having touched
/// nothing, where a mean has no meaning.
///
/// It is a division, rounded once, not a product with a rounded reciprocal. 16- and 8-bit floats are
/// divided in float32.
///
/// # Safety
/// `data` is valid for reads and writes of `n` elements of `dtype`; it needs no alignment.
pub unsafe fn scale(dtype: DType, data: *mut u8, n: usize, divisor: u64) -> bool {
    if dtype.lanes != 1 {
        return false;
    }
    let tier = Tier::best();
    let (single, double) = (divisor as f32, divisor as f64);
    // A pair of reals per complex number; they lie in memory, so that `2 * n` cannot overflow.
    match (dtype.code, dtype.bits) {
        (TypeCode::FLOAT, 32) => {
            // SAFETY: the caller vouches for `n` elements; the divisor is ours.
            unsafe { apply(pick::<f32, u8, Divide<f32>>(tier), &single, data, n) }
        }
        (TypeCode::COMPLEX, 64) => {
            // SAFETY: the caller vouches for `n` pairs; the divisor is ours.
            unsafe { apply(pick::<f32, u8, Divide<f32>>(tier), &single, data, 2 * n) }
        }
        (TypeCode::FLOAT, 64) => {
            // SAFETY: the caller vouches for `n` elements; the divisor is ours.
            unsafe { apply(pick::<f64, u8, Divide<f64>>(tier), &double, data, n) }
        }
        (TypeCode::COMPLEX, 128) => {
            // SAFETY: the caller vouches for `n` pairs; the divisor is ours.
            unsafe { apply(pick::<f64, u8, Divide<f64>>(tier), &double, data, 2 * n) }
        }
        (code, bits) => match narrow::row(code, bits) {
            // SAFETY: the caller vouches for `n` elements; the divisor is ours.
            Some(row) => unsafe { apply((row.scale)(tier), &single, data, n) },
            None => false,
        },
    }
}

/// # Safety
/// - `divisor` is what `loops` reads;
/// - `data` is valid for what `loops` touches with `n`.
unsafe fn apply<T>(
    loops: Option<unsafe fn(*const T, *mut u8, usize)>,
    divisor: &T,
    data: *mut u8,
    n: usize,
) -> bool {
    match loops {
        // SAFETY:
        // - the caller vouches for `data`; the divisor does not overlap it, being borrowed from us;
        // - loops are only handed out for a tier that this processor has.
        Some(loops) => unsafe { loops(divisor, data, n) },
        None => return false,
    }
    true
}
