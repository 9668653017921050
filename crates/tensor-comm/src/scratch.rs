//! Host memory for packed and widened elements, kept per thread so that a loop does not fault it in anew.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;

use crate::error::{Error, Result, buffer_error};

const ALIGN: usize = 64;
/// Blocks kept per thread, and the largest that is kept.
const KEEP: usize = 4;
const KEEP_BYTES: usize = 64 << 20;

/// One allocation.
struct Block {
    ptr: *mut u8,
    layout: Layout,
}

// SAFETY:
// - a block is memory of the allocator, which any thread may free, and has one owner.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY:
        // - `ptr` came from `alloc` with this very layout and has no other owner.
        unsafe { dealloc(self.ptr, self.layout) }
    }
}

thread_local! {
    static KEPT: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// An uninitialised block of host memory, aligned to a cache line.
pub struct Scratch(Option<Block>);

impl Scratch {
    /// At least `bytes` of memory; out of memory is an error, not an abort.
    ///
    /// # Errors
    /// [`Error::Memory`] and [`Error::Buffer`] then.
    pub fn new(bytes: usize) -> Result<Scratch> {
        let kept = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let fits = |i: &usize| kept[*i].layout.size() >= bytes;
            let best = (0..kept.len())
                .filter(fits)
                .min_by_key(|&i| kept[i].layout.size())?;
            Some(kept.swap_remove(best))
        });
        if let Ok(Some(block)) = kept {
            return Ok(Scratch(Some(block)));
        }
        let too_large = |_| {
            buffer_error!("{bytes} bytes of scratch memory are more than an address space holds")
        };
        let layout = Layout::from_size_align(bytes.max(ALIGN), ALIGN).map_err(too_large)?;
        // SAFETY:
        // - the layout's size is at least ALIGN, so not zero.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            return Err(Error::Memory(format!(
                "out of memory: {bytes} bytes of host memory to pack, widen or combine a tensor"
            )));
        }
        Ok(Scratch(Some(Block { ptr, layout })))
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |block| block.layout.size())
    }

    /// The memory.
    pub fn ptr(&self) -> *mut u8 {
        self.0
            .as_ref()
            .map_or(std::ptr::null_mut(), |block| block.ptr)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(block) = self.0.take() else { return };
        if block.layout.size() > KEEP_BYTES {
            return;
        }
        // After the thread's own destructors, and when the list is full, the block is simply freed.
        let _ = KEPT.try_with(|kept| match kept.try_borrow_mut() {
            Ok(mut kept) if kept.len() < KEEP => kept.push(block),
            _ => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_used_again_and_a_huge_one_is_refused() {
        let first = Scratch::new(1000).map(|s| s.ptr() as usize).expect("small");
        let second = Scratch::new(900).expect("small");
        assert_eq!(first, second.ptr() as usize);
        assert_eq!(second.ptr() as usize % ALIGN, 0);
        let other = Scratch::new(900).expect("small");
        assert_ne!(second.ptr(), other.ptr());
        assert!(Scratch::new(usize::MAX - 10).is_err());
    }
}
