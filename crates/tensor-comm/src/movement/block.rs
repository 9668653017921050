//! Which elements are a rank's block, and whether the block that a rank exchanges with itself fits on
//! both sides.

use dlpack_core::{DType, TypeCode, View};

use crate::arg::Arg;
use crate::call::Call;
use crate::error::{Result, value_error};

/// Elements of an argument.
pub(crate) fn elements(arg: &Arg) -> usize {
    match arg {
        Arg::Part(part) => part.count(),
        Arg::Blocks(blocks) => blocks.total(),
        Arg::Absent | Arg::InPlace => 0,
    }
}

/// Elements of one rank's block where a part holds one block per rank.
pub(crate) fn block_count(arg: &Arg, name: &str, ranks: usize) -> Result<usize> {
    let count = elements(arg);
    match ranks {
        0 => Ok(0),
        _ if count.is_multiple_of(ranks) => Ok(count / ranks),
        _ => Err(value_error!(
            "{name}: {count} elements are not a multiple of the {ranks} ranks that share them; use the v-variant"
        )),
    }
}

/// Elements of `rank`'s block of an argument that has one per rank.
fn own_block(arg: &Arg, name: &str, ranks: usize, rank: i32) -> Result<usize> {
    match arg {
        Arg::Blocks(blocks) => Ok(blocks
            .counts()
            .get(rank as usize)
            .map_or(0, |&count| count as usize)),
        other => block_count(other, name, ranks),
    }
}

/// One side of the block that a rank exchanges with itself.
pub(super) struct Own<'a> {
    arg: &'a Arg,
    name: &'a str,
    count: usize,
}

impl<'a> Own<'a> {
    /// A side that is one block.
    pub fn whole(arg: &'a Arg, name: &'a str) -> Own<'a> {
        Own {
            arg,
            name,
            count: elements(arg),
        }
    }

    /// A side that has one block per rank.
    pub fn block(arg: &'a Arg, name: &'a str, ranks: usize, rank: i32) -> Result<Own<'a>> {
        Ok(Own {
            arg,
            name,
            count: own_block(arg, name, ranks, rank)?,
        })
    }

    /// # Errors
    /// [`crate::Error::Value`] when the two sides cannot be the same block.
    pub fn fits(&self, call: &Call, other: &Own<'_>) -> Result<()> {
        let (Some(here), Some(there)) = (self.arg.view(), other.arg.view()) else {
            return Ok(());
        };
        let (name, a, b) = (call.kind.name(), self, other);
        if !compatible(here, there) {
            return Err(value_error!(
                "{name}: {} holds {} but {} holds {}; convert one of them",
                a.name,
                here.dtype(),
                b.name,
                there.dtype()
            ));
        }
        if a.count * here.itemsize() != b.count * there.itemsize() {
            return Err(value_error!(
                "{name}: for this rank's own block {} has {} elements of {} but {} has {} of {}",
                a.name,
                a.count,
                here.dtype(),
                b.name,
                b.count,
                there.dtype()
            ));
        }
        Ok(())
    }
}

/// Whether elements of one dtype may land in the other: the same, bytes, or integers of one size.
fn compatible(a: &View, b: &View) -> bool {
    let bytes = |view: &View| {
        matches!(view.dtype(), DType::U8 | DType::I8) || view.dtype().code == TypeCode::RAW
    };
    let integers = a.dtype().is_int() && b.dtype().is_int() && a.itemsize() == b.itemsize();
    a.dtype() == b.dtype() || bytes(a) || bytes(b) || integers
}
