//! Which elements of a tensor one side of a call is about.

use dlpack_core::View;
use smallvec::{SmallVec, smallvec};

use crate::arg::{Arg, Blocks, Part};
use crate::error::{Result, buffer_error, value_error};

/// Consecutive logical elements of the tensor, and where they lie in the travelling form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub start: usize,
    pub count: usize,
    /// First element in the travelling form.
    pub at: usize,
}

impl Range {
    /// One of so many equal parts of it.
    pub fn part(self, (index, of): (usize, usize)) -> Range {
        let count = self.count / of.max(1);
        Range {
            start: self.start + index * count,
            count,
            at: self.at + index * count,
        }
    }
}

/// Elements of a tensor that one side of a call is about.
#[derive(Clone)]
pub(crate) struct Ranges<'a> {
    pub(super) view: &'a View,
    pub(super) ranges: SmallVec<[Range; 1]>,
}

impl<'a> Ranges<'a> {
    /// The tensor.
    pub fn view(&self) -> &'a View {
        self.view
    }

    /// Consecutive elements.
    pub fn part(part: &'a Part) -> Ranges<'a> {
        let range = Range {
            start: part.start(),
            count: part.count(),
            at: part.start(),
        };
        Ranges {
            view: part.view(),
            ranges: smallvec![range],
        }
    }

    /// One range per rank.
    pub fn blocks(blocks: &'a Blocks) -> Ranges<'a> {
        let range = |(&count, &displ): (&i64, &i64)| Range {
            start: displ as usize,
            count: count as usize,
            at: displ as usize,
        };
        Ranges {
            view: blocks.view(),
            ranges: blocks
                .counts()
                .iter()
                .zip(blocks.displs())
                .map(range)
                .collect(),
        }
    }

    /// The elements of an argument; `name` is the argument's name.
    pub fn of(arg: &'a Arg, name: &str) -> Result<Ranges<'a>> {
        match arg {
            Arg::Part(part) => Ok(Ranges::part(part)),
            Arg::Blocks(blocks) => Ok(Ranges::blocks(blocks)),
            Arg::Absent => Err(buffer_error!(
                "{name}: None, but this rank needs a tensor here"
            )),
            Arg::InPlace => Err(value_error!("{name}: IN_PLACE has no meaning here")),
        }
    }
}
