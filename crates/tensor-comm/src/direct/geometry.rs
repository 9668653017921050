//! Which elements are whose: the division of a reduction into chunks and of a chunk into blocks.
//!
//! Arithmetic on agreed numbers alone, so that every rank divides alike.

/// What a chunk of all ranks together holds at most, in bytes: as fast as any from 1 MiB on for tensors
/// beyond the caches, and the fastest one for 16 MiB (both libraries, two ranks).
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes that arrive at a rank per chunk as a rule: the scratch memory of a call.
pub(crate) const USUAL_ROOM: usize = CHUNK_BYTES;
/// With many ranks a chunk grows, so that a block is still worth a message.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks start at multiples of this many elements, away from each other's cache lines.
const ALIGN: usize = 64;

/// Elements of a reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One range; in each chunk every rank owns a share of it.
    Whole(usize),
    /// One range per rank, as first element and count: the rank owns it (`Reduce_scatter`).
    Blocks(Vec<(usize, usize)>),
}

/// The division.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    extent: Extent,
    ranks: usize,
    /// Elements of a chunk; of one rank's part of it where ranks have ranges of their own.
    chunk: usize,
}

impl Geometry {
    /// Of elements of `item` bytes.
    pub fn new(extent: Extent, ranks: usize, item: usize) -> Geometry {
        let bytes = CHUNK_BYTES.max(BLOCK_BYTES * ranks);
        let share = match extent {
            Extent::Whole(_) => 1,
            Extent::Blocks(_) => ranks,
        };
        let chunk = (bytes / share / item.max(1))
            .next_multiple_of(ALIGN)
            .max(ALIGN);
        Geometry {
            extent,
            ranks,
            chunk,
        }
    }

    /// The same with blocks of at most `bytes` bytes.
    pub fn within(extent: Extent, ranks: usize, item: usize, bytes: usize) -> Geometry {
        let block = (bytes / item.max(1) / ALIGN).max(1) * ALIGN;
        let share = match extent {
            Extent::Whole(_) => ranks,
            Extent::Blocks(_) => 1,
        };
        Geometry {
            extent,
            ranks,
            chunk: block * share,
        }
    }

    /// Number of elements.
    pub fn total(&self) -> usize {
        match &self.extent {
            Extent::Whole(n) => *n,
            Extent::Blocks(blocks) => blocks.iter().map(|block| block.1).sum(),
        }
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        let longest = match &self.extent {
            Extent::Whole(n) => *n,
            Extent::Blocks(blocks) => blocks.iter().map(|block| block.1).max().unwrap_or(0),
        };
        longest.div_ceil(self.chunk)
    }

    /// Number of elements of all ranks.
    pub fn elements(&self) -> usize {
        match &self.extent {
            Extent::Whole(n) => *n,
            Extent::Blocks(blocks) => blocks.iter().map(|block| block.1).sum(),
        }
    }

    /// First element, and number of elements, of what `rank` owns in chunk number `chunk`.
    pub fn block(&self, chunk: usize, rank: usize) -> (usize, usize) {
        let cut = |n: usize| {
            let first = n.min(chunk * self.chunk);
            (first, self.chunk.min(n - first))
        };
        match &self.extent {
            Extent::Whole(n) => {
                let (first, n) = cut(*n);
                let share = n.div_ceil(self.ranks).next_multiple_of(ALIGN);
                let start = n.min(rank * share);
                (first + start, share.min(n - start))
            }
            Extent::Blocks(blocks) => {
                let (start, n) = blocks.get(rank).copied().unwrap_or((0, 0));
                let (first, n) = cut(n);
                (start + first, n)
            }
        }
    }

    /// Elements of a block at most.
    pub fn largest(&self) -> usize {
        match &self.extent {
            Extent::Whole(n) => self
                .chunk
                .min(*n)
                .div_ceil(self.ranks)
                .next_multiple_of(ALIGN),
            Extent::Blocks(blocks) => {
                let longest = blocks.iter().map(|block| block.1).max().unwrap_or(0);
                self.chunk.min(longest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every element of every range belongs to exactly one block of one chunk.
    fn covers(extent: Extent, ranks: usize, item: usize) {
        let total = match &extent {
            Extent::Whole(n) => *n,
            Extent::Blocks(blocks) => blocks.iter().map(|b| b.1).sum(),
        };
        let geometry = Geometry::new(extent.clone(), ranks, item);
        let mut blocks: Vec<(usize, usize)> = (0..geometry.chunks())
            .flat_map(|chunk| (0..ranks).map(move |rank| (chunk, rank)))
            .map(|(chunk, rank)| geometry.block(chunk, rank))
            .filter(|block| block.1 > 0)
            .collect();
        assert!(blocks.iter().all(|block| block.1 <= geometry.largest()));
        assert_eq!(geometry.elements(), total);
        blocks.sort_unstable();
        let mut at = 0;
        for (first, n) in blocks {
            assert_eq!(first, at, "{extent:?}");
            at += n;
        }
        assert_eq!(at, total);
    }

    proptest! {
        #[test]
        fn blocks_cover_everything_once(
            n in prop_oneof![0usize..200, 200usize..20_000_000],
            counts in prop::collection::vec(0usize..1_000_000, 1..7),
            ranks in 1usize..40,
            item in prop::sample::select(&[1usize, 2, 4, 8, 16][..]),
        ) {
            covers(Extent::Whole(n), ranks, item);
            let mut at = 0;
            let blocks: Vec<(usize, usize)> = counts
                .iter()
                .map(|&n| {
                    at += n;
                    (at - n, n)
                })
                .collect();
            covers(Extent::Blocks(blocks), counts.len(), item);
        }
    }
}
