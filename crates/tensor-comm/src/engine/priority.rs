//! What the engine's thread asks of the scheduler: to run seldom and briefly, but at once.
//!
//! It shares a core with threads that compute. What is refused, or unknown to an older kernel, only makes
//! operations take longer.

/// Asks for short turns and punctual sleeps for the calling thread.
pub(super) fn short_turns() {
    #[cfg(target_os = "linux")]
    linux::short_turns();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::size_of;

    /// Linux adds 50 us to every sleep unless told otherwise.
    const SLACK_NS: libc::c_ulong = 1000;
    /// A thread with short turns takes the core from one with long turns when it wakes up (Linux 6.12); this
    /// is the shortest turn there is.
    const TURN_NS: u64 = 100_000;

    /// `struct sched_attr`, as long as it was at first.
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }

    const _: () = assert!(size_of::<SchedAttr>() == 48);

    pub fn short_turns() {
        // SAFETY:
        // - it sets a number of the calling thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
        let mut attr = SchedAttr::default();
        let size = size_of::<SchedAttr>();
        // SAFETY:
        // - the kernel writes at most `size` bytes to `attr`, which has as many; 0 is the calling thread.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
        // What a user chose, such as a real-time policy, stays.
        if got == 0 && attr.policy == libc::SCHED_OTHER as u32 {
            attr.flags = 0;
            attr.runtime = TURN_NS;
            // SAFETY:
            // - the kernel reads `attr.size` bytes of `attr`: what it wrote there itself, one number changed.
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
        }
    }
}
