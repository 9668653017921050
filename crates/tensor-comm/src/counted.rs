//! Counts as MPI takes them.
//!
//! Where the library has no `_c` entry points (MPI 4.0) and a count exceeds `int`, the same elements are
//! described by a derived datatype instead. That changes no type signature, so it is a local step.

use mpi_runtime::{Datatype, Mpi};

use crate::error::{Result, value_error};
use crate::ground::process;
use crate::wiretype::WireType;

/// Largest piece of a derived datatype, in units: a round number well below 2^31.
const PIECE: i64 = 1 << 30;

/// A datatype made here, freed when dropped.
pub(crate) struct Derived {
    mpi: &'static Mpi,
    datatype: Datatype,
}

impl Drop for Derived {
    fn drop(&mut self) {
        if process::alive().is_err() {
            return;
        }
        // A failure leaves nothing to do: the handle is local and ours alone.
        // SAFETY:
        // - the handle never leaves this crate but for the duration of an MPI call.
        let _ = unsafe { self.mpi.type_free(&mut self.datatype) };
    }
}

impl Derived {
    pub fn new(mpi: &'static Mpi, datatype: Datatype) -> Derived {
        Derived { mpi, datatype }
    }

    /// The handle.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    pub fn commit(self) -> Result<Derived> {
        self.mpi.type_commit(self.datatype)?;
        Ok(self)
    }
}

/// A count and datatype, with the derived datatype kept alive.
pub(crate) struct Counted {
    pub count: i64,
    pub datatype: Datatype,
    pub derived: Option<Derived>,
}

/// `elements` elements of a wire type.
pub(crate) fn counted(mpi: &'static Mpi, elements: usize, wire: WireType) -> Result<Counted> {
    let count = units(elements as i64, wire)?;
    if mpi.has_large_counts() || count <= i64::from(i32::MAX) {
        return Ok(Counted {
            count,
            datatype: wire.datatype,
            derived: None,
        });
    }
    let derived = large(mpi, count, wire)?;
    Ok(Counted {
        count: 1,
        datatype: derived.datatype,
        derived: Some(derived),
    })
}

/// One datatype of `count` units: whole pieces, then the rest.
fn large(mpi: &'static Mpi, count: i64, wire: WireType) -> Result<Derived> {
    let unit = (wire.bytes / wire.units) as i64;
    let piece = Derived::new(mpi, mpi.type_contiguous(PIECE, wire.datatype)?);
    let pieces = Derived::new(mpi, mpi.type_contiguous(count / PIECE, piece.datatype)?);
    let rest = count % PIECE;
    if rest == 0 {
        return pieces.commit();
    }
    let rest_type = Derived::new(mpi, mpi.type_contiguous(rest, wire.datatype)?);
    let displs = [0, (count - rest) * unit];
    let all = mpi.type_create_struct(&[1, 1], &displs, &[pieces.datatype, rest_type.datatype])?;
    Derived::new(mpi, all).commit()
}

/// Counts and displacements of one block per rank, in units of one datatype.
pub(crate) struct CountedBlocks {
    pub counts: Vec<i64>,
    pub displs: Vec<i64>,
    pub datatype: Datatype,
    pub derived: Option<Derived>,
}

/// Blocks of `counts[r]` elements at `displs[r]`.
pub(crate) fn counted_blocks(
    mpi: &'static Mpi,
    name: &str,
    counts: &[i64],
    displs: Vec<i64>,
    wire: WireType,
) -> Result<CountedBlocks> {
    let largest = counts.iter().chain(&displs).copied().max().unwrap_or(0);
    let limit = if mpi.has_large_counts() {
        i64::MAX
    } else {
        i64::from(i32::MAX)
    };
    let scale = |values: &[i64], by: i64| values.iter().map(|v| v * by).collect::<Vec<i64>>();
    if units(largest, wire)? <= limit {
        let by = wire.units as i64;
        let (counts, displs) = (scale(counts, by), scale(&displs, by));
        return Ok(CountedBlocks {
            counts,
            displs,
            datatype: wire.datatype,
            derived: None,
        });
    }
    // A coarser unit that divides every count and displacement carries the same signature.
    let coarse = counts
        .iter()
        .chain(&displs)
        .fold(0, |a, &b| gcd(a, b))
        .clamp(1, PIECE / wire.units as i64);
    let coarse = if counts.iter().chain(&displs).all(|v| v % coarse == 0) {
        coarse
    } else {
        1
    };
    if largest / coarse > limit {
        return Err(value_error!(
            "{name}: a count or displacement of {largest} elements is more than this MPI library's limit of {limit}, and the blocks have no common divisor that helps; use an MPI with large counts (MPICH 4, Open MPI 6) or smaller blocks"
        ));
    }
    let derived = Derived::new(
        mpi,
        mpi.type_contiguous(coarse * wire.units as i64, wire.datatype)?,
    )
    .commit()?;
    let divide = |values: &[i64]| values.iter().map(|v| v / coarse).collect::<Vec<i64>>();
    Ok(CountedBlocks {
        counts: divide(counts),
        displs: divide(&displs),
        datatype: derived.datatype,
        derived: Some(derived),
    })
}

fn units(elements: i64, wire: WireType) -> Result<i64> {
    elements.checked_mul(wire.units as i64).ok_or_else(|| {
        value_error!(
            "{elements} elements of {} bytes exceed what MPI can count",
            wire.bytes
        )
    })
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::gcd;

    #[test]
    fn gcd_of_nothing_is_nothing() {
        assert_eq!(gcd(0, 0), 0);
        assert_eq!(gcd(0, 12), 12);
        assert_eq!(gcd(18, 12), 6);
    }
}
