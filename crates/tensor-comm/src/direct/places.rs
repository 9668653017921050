//! Where the contributions to a chunk and its results lie on this rank: in the tensors, in scratch memory, or in the
//! chunk's slot on its way from or to a device. Knows no message.

use std::ops::Deref;

use super::{Direct, Flight, Output};

impl<D: Deref<Target = Direct>> Flight<D> {
    /// Where results lie that are on their way to a device.
    fn staged_result(&self, chunk: usize, owner: usize) -> Option<*mut u8> {
        let staged = self.conveyor.as_ref().filter(|staged| staged.takes())?;
        Some(staged.at(&self.call, chunk, owner))
    }

    /// Where the result of the block that this rank owns goes.
    pub(super) fn out(&self, chunk: usize) -> *mut u8 {
        let Direct { geometry, rank, .. } = &*self.call;
        let item = self.call.wire.bytes;
        let (first, _) = geometry.block(chunk, *rank);
        // Blocks that ranks own as a whole are contiguous over the chunks.
        let since = first - geometry.block(0, *rank).0;
        if let Some(staged) = self.staged_result(chunk, *rank) {
            return staged;
        }
        match self.call.output {
            Output::Whole(base) => base.wrapping_add(first * item),
            Output::Owned(base, false) => base.wrapping_add(since * item),
            Output::Owned(_, true) => self.results.wrapping_add(since * item),
            Output::Nowhere => self
                .results
                .wrapping_add((chunk % 2) * geometry.largest() * item),
        }
    }

    /// Where this rank's contribution to what `owner` owns lies.
    pub(super) fn contribution(&self, chunk: usize, owner: usize) -> *mut u8 {
        let staged = self.conveyor.as_ref().filter(|staged| staged.brings());
        match staged {
            Some(staged) => staged.at(&self.call, chunk, owner),
            None => self.call.input(self.call.geometry.block(chunk, owner).0),
        }
    }

    /// Where the results that `owner` sends are received, if all of them are.
    pub(super) fn result(&self, chunk: usize, owner: usize) -> Option<*mut u8> {
        let Output::Whole(base) = self.call.output else {
            return None;
        };
        let own = || {
            let (first, _) = self.call.geometry.block(chunk, owner);
            base.wrapping_add(first * self.call.wire.bytes)
        };
        Some(self.staged_result(chunk, owner).unwrap_or_else(own))
    }

    /// Whether the own contribution lies where the result goes.
    pub(super) fn in_place(&self, chunk: usize) -> bool {
        self.out(chunk) == self.contribution(chunk, self.call.rank)
    }

    /// Where the contribution of `source` arrives: the last one where the result goes, which spares a pass,
    /// unless the own one is there.
    pub(super) fn arrival(&self, chunk: usize, source: usize) -> *mut u8 {
        let Direct { rank, ranks, .. } = *self.call;
        let last = if rank + 1 == ranks {
            rank - 1
        } else {
            ranks - 1
        };
        if source == last && !self.in_place(chunk) {
            return self.out(chunk);
        }
        let slot = if source < rank { source } else { source - 1 };
        let block = self.call.geometry.largest() * self.call.wire.bytes;
        self.arrivals.wrapping_add(slot * block)
    }
}
