//! Memory of this thread for the elements of one step, which stay in the first-level cache.

use std::mem::MaybeUninit;

use super::fold::STEP_BYTES;

/// Room for a step; what is in it was written by whoever reads it.
#[repr(align(64))]
pub(super) struct Step(MaybeUninit<[u8; STEP_BYTES]>);

impl Step {
    /// Nothing is in it.
    #[inline]
    pub fn new() -> Step {
        Step(MaybeUninit::uninit())
    }

    /// Its first byte.
    #[inline]
    pub fn ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}
