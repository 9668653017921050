//! Which vector instructions a kernel was compiled for, and which this processor has.
//! Refuses to know what a kernel computes: an [`Elementwise`] body is compiled once per tier, and the
//! best compiled copy that this processor can run is picked at run time.

/// A level of vector instructions for which every kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tier {
    /// What the compiler's target guarantees: SSE2 on x86-64, NEON on aarch64.
    Portable,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, and what [`Tier::Avx2`] has.
    Avx512,
}

impl Tier {
    /// Every tier, the plainest first.
    pub const ALL: [Tier; 3] = [Tier::Portable, Tier::Avx2, Tier::Avx512];

    /// May kernels of this tier run on this processor?
    pub fn available(self) -> bool {
        match self {
            Tier::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => {
                Tier::Avx2.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::Avx512 => false,
        }
    }

    /// The best tier of this processor. (The standard library asks the processor once and remembers.)
    pub fn best() -> Tier {
        if Tier::Avx512.available() {
            Tier::Avx512
        } else if Tier::Avx2.available() {
            Tier::Avx2
        } else {
            Tier::Portable
        }
    }
}

/// The tiers as numbers that a body can take as a constant.
pub(super) const PORTABLE: u8 = Tier::Portable as u8;
#[cfg(target_arch = "x86_64")]
pub(super) const AVX2: u8 = Tier::Avx2 as u8;
#[cfg(target_arch = "x86_64")]
pub(super) const AVX512: u8 = Tier::Avx512 as u8;

/// A loop over `n` elements that reads `input`, and reads or writes `output`.
pub(super) trait Elementwise<I, O> {
    /// Implementations are `#[inline(always)]`, so that they take on the features of the tier.
    ///
    /// # Safety
    /// - `input` and `output` are valid for the elements that the implementation says it touches; they need
    ///   no alignment;
    /// - they are the same address, or do not overlap;
    /// - the processor has the instructions of the tier numbered `TIER`.
    unsafe fn run<const TIER: u8>(input: *const I, output: *mut O, n: usize);
}

/// A compiled [`Elementwise`] body.
pub(super) type Compiled<I, O> = unsafe fn(*const I, *mut O, usize);

/// The copy of `E` compiled for `tier`; `None` where this processor can't run it.
pub(super) fn pick<I, O, E: Elementwise<I, O>>(tier: Tier) -> Option<Compiled<I, O>> {
    if !tier.available() {
        return None;
    }
    match tier {
        Tier::Portable => Some(portable::<I, O, E>),
        #[cfg(target_arch = "x86_64")]
        Tier::Avx2 => Some(avx2::<I, O, E>),
        #[cfg(target_arch = "x86_64")]
        Tier::Avx512 => Some(avx512::<I, O, E>),
        #[cfg(not(target_arch = "x86_64"))]
        Tier::Avx2 | Tier::Avx512 => None,
    }
}

/// # Safety
/// As [`Elementwise::run`].
unsafe fn portable<I, O, E: Elementwise<I, O>>(input: *const I, output: *mut O, n: usize) {
    // SAFETY:
    // - the caller keeps the promises on the pointers;
    // - this tier needs no instruction beyond the target's.
    unsafe { E::run::<PORTABLE>(input, output, n) }
}

/// # Safety
/// As [`Elementwise::run`]; [`pick`] hands this out only where [`Tier::Avx2`] is available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<I, O, E: Elementwise<I, O>>(input: *const I, output: *mut O, n: usize) {
    // SAFETY:
    // - the caller keeps the promises on the pointers;
    // - the features of the tier are those of this function.
    unsafe { E::run::<AVX2>(input, output, n) }
}

/// # Safety
/// As [`Elementwise::run`]; [`pick`] hands this out only where [`Tier::Avx512`] is available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
unsafe fn avx512<I, O, E: Elementwise<I, O>>(input: *const I, output: *mut O, n: usize) {
    // SAFETY:
    // - the caller keeps the promises on the pointers;
    // - the features of the tier are those of this function.
    unsafe { E::run::<AVX512>(input, output, n) }
}
