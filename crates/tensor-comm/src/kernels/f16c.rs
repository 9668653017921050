//! float16 by the processor's own conversions (F16C, AVX-512), sixteen numbers at a time; where it has
//! none, by `format.rs`. Refuses to know any other format. Both ways give the same bits.

use super::format::F16;
use super::map::{Each, EachConvert};
use super::narrow;
use super::tier::Elementwise;

/// SUM.
pub(super) struct Sum;
/// PROD.
pub(super) struct Prod;
/// To float32.
pub(super) struct Widen;
/// To float16, rounded once.
pub(super) struct Narrow;

/// Implements a loop of `$n` steps of sixteen: by `$block` (over vectors) where the processor converts,
/// with the last, shorter step in padded copies; by `$plain` elsewhere.
macro_rules! by_blocks {
    ($name:ty, $input:ty as $from:ty, $output:ty as $to:ty, $plain:ty, $block:ident) => {
        impl Elementwise<$input, $output> for $name {
            #[inline(always)]
            unsafe fn run<const TIER: u8>(input: *const $input, output: *mut $output, n: usize) {
                #[cfg(target_arch = "x86_64")]
                if TIER >= super::tier::AVX2 {
                    let (input, output) = (input.cast::<$from>(), output.cast::<$to>());
                    let whole = n - n % LANES;
                    for at in (0..whole).step_by(LANES) {
                        // SAFETY:
                        // - `at + 16 <= n`, and the caller vouches for `n` elements behind both pointers;
                        // - the caller vouches for the instructions of the tier.
                        unsafe { x86::$block::<TIER>(input.add(at), output.add(at)) };
                    }
                    let rest = n - whole;
                    if rest > 0 {
                        let (mut from, mut to) =
                            ([<$from>::default(); LANES], [<$to>::default(); LANES]);
                        // SAFETY:
                        // - the caller vouches for the `rest` last elements behind both pointers;
                        // - the padded copies are ours and longer; bytes need no alignment;
                        // - the caller vouches for the instructions of the tier.
                        unsafe {
                            copy(input.add(whole), from.as_mut_ptr(), rest);
                            copy(output.add(whole), to.as_mut_ptr(), rest);
                            x86::$block::<TIER>(from.as_ptr(), to.as_mut_ptr());
                            copy(to.as_ptr(), output.add(whole), rest);
                        }
                    }
                    return;
                }
                // SAFETY: the caller's promises are those that this loop asks for.
                unsafe { <$plain as Elementwise<$input, $output>>::run::<TIER>(input, output, n) }
            }
        }
    };
}

by_blocks!(Sum, u8 as u16, u8 as u16, Each<narrow::Sum<F16>>, add);
by_blocks!(
    Prod,
    u8 as u16,
    u8 as u16,
    Each<narrow::Prod<F16>>,
    multiply
);
by_blocks!(
    Widen,
    u8 as u16,
    f32 as f32,
    EachConvert<narrow::Widen<F16>>,
    widen
);
by_blocks!(
    Narrow,
    f32 as f32,
    u8 as u16,
    EachConvert<narrow::Narrow<F16>>,
    narrow
);

/// Numbers of one step.
#[cfg(target_arch = "x86_64")]
const LANES: usize = 16;

/// # Safety
/// - `from` is valid for reads and `to` for writes of `n` numbers, in any alignment;
/// - they don't overlap.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy<T>(from: *const T, to: *mut T, n: usize) {
    // SAFETY: as bytes, no alignment is asked for; the caller vouches for the rest.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), n * size_of::<T>()) }
}

/// Steps of sixteen numbers. All are unsafe for one reason: pointers must be valid for sixteen numbers, in
/// any alignment, and the processor must have the instructions of the tier.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::tier::AVX512;
    use std::arch::x86_64::*;

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    macro_rules! steps {
        ($($name:ident: $from:ty => $to:ty, |$input:ident, $output:ident|
           { $($wide:tt)* } { $($half:tt)* })*) => {$(
            /// # Safety
            /// As the module says.
            #[inline(always)]
            pub(super) unsafe fn $name<const TIER: u8>($input: *const $from, $output: *mut $to) {
                // SAFETY:
                // - the caller vouches for sixteen numbers behind both pointers, and for the instructions;
                // - loads and stores are unaligned ones.
                unsafe {
                    if TIER >= AVX512 {
                        $($wide)*
                    } else {
                        for at in [0, 8] {
                            let ($input, $output) = ($input.add(at), $output.add(at));
                            $($half)*
                        }
                    }
                }
            }
        )*};
    }

    steps! {
        add: u16 => u16, |input, output| {
            let sum = _mm512_add_ps(load16(input), load16(output));
            _mm256_storeu_si256(output.cast(), _mm512_cvtps_ph::<NEAREST>(sum));
        } {
            let sum = _mm256_add_ps(load8(input), load8(output));
            _mm_storeu_si128(output.cast(), _mm256_cvtps_ph::<NEAREST>(sum));
        }
        multiply: u16 => u16, |input, output| {
            let product = _mm512_mul_ps(load16(input), load16(output));
            _mm256_storeu_si256(output.cast(), _mm512_cvtps_ph::<NEAREST>(product));
        } {
            let product = _mm256_mul_ps(load8(input), load8(output));
            _mm_storeu_si128(output.cast(), _mm256_cvtps_ph::<NEAREST>(product));
        }
        widen: u16 => f32, |input, output| {
            _mm512_storeu_ps(output, load16(input));
        } {
            _mm256_storeu_ps(output, load8(input));
        }
        narrow: f32 => u16, |input, output| {
            let rounded = _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(input));
            _mm256_storeu_si256(output.cast(), rounded);
        } {
            let rounded = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(input));
            _mm_storeu_si128(output.cast(), rounded);
        }
    }

    /// # Safety
    /// As the module says.
    #[inline(always)]
    unsafe fn load16(from: *const u16) -> __m512 {
        // SAFETY: the caller vouches for sixteen numbers and AVX-512.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    /// # Safety
    /// As the module says, for eight numbers.
    #[inline(always)]
    unsafe fn load8(from: *const u16) -> __m256 {
        // SAFETY: the caller vouches for eight numbers and F16C.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
}
