//! A side whose elements are widened slice by slice: all at once they would take as much memory again and more.
//! Knows one slice at a time, not who asks for the next.

use smallvec::smallvec;

use super::{Range, Ranges, Side};
use crate::error::Result;
use crate::scratch::Scratch;
use crate::wire::Element;

/// All elements of a side whose range is one slice of them at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sliced {
    all: Range,
    /// Present values matter.
    fill: bool,
}

impl Side {
    /// One range of elements that are widened, none of them yet, with room for `most`; `fill`: their present values
    /// matter.
    pub fn in_slices(
        ranges: Ranges<'_>,
        element: Element,
        fill: bool,
        most: usize,
    ) -> Result<Side> {
        let host = Side::host(&ranges, fill)?;
        let all = ranges.ranges.first().copied();
        let mut side = Side::new(ranges, element, host);
        side.sliced = all.map(|all| Sliced { all, fill });
        let count = all.map_or(0, |all| all.count.min(most));
        side.scratch = Some(Scratch::new(count.saturating_mul(side.wire_bytes))?);
        Ok(side)
    }

    /// The same to receive into.
    pub fn receiving_in_slices(
        ranges: Ranges<'_>,
        element: Element,
        keep: bool,
        most: usize,
    ) -> Result<Side> {
        ranges.view.check_writable()?;
        Side::in_slices(ranges, element, keep, most)
    }

    /// Whether it is made of slices.
    pub fn is_sliced(&self) -> bool {
        self.sliced.is_some()
    }

    /// Goes on to `n` elements from `first` on, or to all.
    pub fn turn_to(&mut self, part: Option<(usize, usize)>) -> Result<()> {
        let Some(Sliced { all, fill }) = self.sliced else {
            return Ok(());
        };
        let (first, n) = part.unwrap_or((0, all.count));
        if part.is_none() {
            self.sliced = None;
        }
        let slice = Range {
            start: all.start + first,
            count: n,
            at: 0,
        };
        self.ranges = smallvec![slice];
        let bytes = n.saturating_mul(self.wire_bytes);
        if (self.scratch.as_ref()).is_none_or(|had| had.bytes() < bytes) {
            self.scratch = None;
            self.allocate()?;
        }
        match fill {
            true => self.fill(),
            false => Ok(()),
        }
    }
}
