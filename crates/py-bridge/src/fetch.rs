//! Memory that will be read, asked for before. Knows addresses alone.

/// Fetches the line of the caches at an address, which may be anything, for what will read or write it.
#[inline]
pub fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - a prefetch reads nothing that the program could see, and faults nowhere.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
