//! Copies of many bytes, at the processor's speed however both ends lie.
//!
//! Knows addresses alone. The C library copies more than 2 KiB by one instruction (`rep movsb`) where that is fast
//! for most. On AMD's Zen 3 it is 15 times slower (3 GB/s of 45) where the destination lies 1 to 31 bytes behind the
//! source modulo the page: NumPy's large arrays begin 16 bytes behind a page, so every copy to one out of memory that
//! begins with a page. Those copies are made by vector loads and stores here.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
};

/// Bytes up to which the C library does not take that instruction.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 2048;
/// Bytes from which that instruction is worth its beginning, which costs as much as several hundred bytes.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 16 << 10;
/// Bytes by which a destination lies behind its source, modulo a page, where the C library's way is slower: up to 31 fifteen
/// times, from 33 on up to twice.
#[cfg(target_arch = "x86_64")]
const SLOW: std::ops::Range<usize> = 1..64;
/// Bytes of a step: four vectors.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 128;

/// Copies `n` bytes.
///
/// # Safety
/// - `from` is valid for reads and `to` for writes of `n` bytes, in any alignment.
/// - They do not overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if n > SHORT && (n < LONG || is_slow(from, to)) && is_x86_feature_detected!("avx2") {
        // SAFETY:
        // - by the caller's promise; the processor has the instructions.
        return unsafe { by_vectors::<false>(from, to, n) };
    }
    // SAFETY:
    // - by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

/// Copies `n` bytes past the caches, into memory that another core will read and that it has in its cache: if that is
/// far, each line that is written would be waited for.
///
/// # Safety
/// - As for [`copy`]; besides, [`passed`] is called before another core is told that they are there.
#[inline]
pub(crate) unsafe fn copy_past_caches(from: *const u8, to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY:
        // - by the caller's promise; the processor has the instructions.
        return unsafe { by_vectors::<true>(from, to, n) };
    }
    // SAFETY:
    // - by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

/// What is stored after this is seen after all bytes that were copied past the caches are.
#[inline]
pub(crate) fn passed() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - every x86-64 has the instruction, which orders stores and changes nothing.
    unsafe {
        _mm_sfence();
    }
}

/// Whether the C library's copy is slow between these.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_slow(from: *const u8, to: *mut u8) -> bool {
    SLOW.contains(&(to.addr().wrapping_sub(from.addr()) % 4096))
}

/// # Safety
/// - As for [`copy`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn by_vectors<const PAST: bool>(from: *const u8, to: *mut u8, n: usize) {
    let head = to.align_offset(32).min(n);
    let whole = (n - head) / STEP * STEP;
    // SAFETY:
    // - head, steps and the rest follow each other within `n` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + whole).step_by(STEP) {
            let (from, to) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
            let vectors = [0, 1, 2, 3].map(|i| _mm256_loadu_si256(from.add(i)));
            for (i, vector) in vectors.into_iter().enumerate() {
                match PAST {
                    // The head ends where a vector is aligned.
                    true => _mm256_stream_si256(to.add(i), vector),
                    false => _mm256_storeu_si256(to.add(i), vector),
                }
            }
        }
        let at = head + whole;
        std::ptr::copy_nonoverlapping(from.add(at), to.add(at), n - at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_and_no_other_is_copied(
            from in 0usize..80,
            behind in prop_oneof![0usize..80, 0usize..4096],
            n in prop_oneof![0usize..300, 2000usize..9000, 16_000usize..20_000],
            seed in any::<u32>(),
        ) {
            let byte = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed).to_le_bytes()[3];
            let source: Vec<u8> = (0..n + 4096).map(byte).collect();
            let mut target = vec![0xee_u8; n + 3 * 4096];
            // Both begin so many bytes behind a page.
            let first = source.as_ptr().align_offset(64) + from;
            let page = target.as_ptr().addr().wrapping_sub(source[first..].as_ptr().addr());
            let since = (behind.wrapping_sub(page)) % 4096;
            let before = target.clone();
            for past in [false, true] {
                target.copy_from_slice(&before);
                let (from, to) = (source.as_ptr().wrapping_add(first), target.as_mut_ptr().wrapping_add(since));
                // SAFETY:
                // - both vectors hold so many bytes from there on.
                unsafe {
                    match past {
                        true => super::copy_past_caches(from, to, n),
                        false => super::copy(from, to, n),
                    }
                }
                prop_assert_eq!(&target[since..since + n], &source[first..first + n]);
                prop_assert_eq!(&target[..since], &before[..since]);
                prop_assert_eq!(&target[since + n..], &before[since + n..]);
            }
        }
    }
}
