//! The short way of `Alltoallw` where all blocks of a side are elements of its own Datatype.

use mpi_runtime::{Datatype, Mpi};
use smallvec::SmallVec;

use super::{Flat, Lane};
use crate::error::Result;
use crate::fits::scales_displacements;
use crate::wiretype::mpi_datatype;

/// Up to this many ranks nothing is allocated.
type Numbers = SmallVec<[i32; 16]>;

/// A block of one array for each rank, at a displacement in bytes.
pub struct Typed {
    flat: Flat,
    counts: Numbers,
    displs: Numbers,
    datatype: Datatype,
}

// SAFETY:
// - its address only goes to MPI, within one call of the caller's, who keeps the memory.
unsafe impl Send for Typed {}
// SAFETY:
// - as above.
unsafe impl Sync for Typed {}

impl Typed {
    /// Blocks of `numbers`: one count per rank in elements, then one displacement per rank in bytes; `None` where a block
    /// leaves the array, or MPI has no such elements.
    #[inline]
    #[must_use]
    pub fn new(mpi: &Mpi, flat: Flat, numbers: &[i64]) -> Option<Typed> {
        let (counts, displs) = numbers.split_at(numbers.len() / 2);
        for (&count, &displ) in counts.iter().zip(displs) {
            let (from, count) = (usize::try_from(displ).ok()?, usize::try_from(count).ok()?);
            let end = count.checked_mul(flat.itemsize())?.checked_add(from)?;
            if count > 0 && end > flat.bytes() {
                return None;
            }
        }
        let narrow = |numbers: &[i64]| -> Option<Numbers> {
            let number = |&number: &i64| i32::try_from(number).ok();
            numbers.iter().map(number).collect()
        };
        Some(Typed {
            counts: narrow(counts)?,
            displs: narrow(displs)?,
            datatype: mpi_datatype(mpi, flat.dtype)?,
            flat,
        })
    }
}

/// An `Alltoallw` that can be made.
pub struct Exchange {
    mpi: &'static Mpi,
    on: mpi_runtime::Comm,
    send: Typed,
    recv: Typed,
}

impl Lane {
    /// The `Alltoallw` that these arguments make, which has its number then; `None`, and nothing is done, where they are no
    /// such ones.
    #[inline]
    pub fn typed(self, send: Typed, recv: Typed) -> Option<Exchange> {
        let each = |side: &Typed| side.counts.len() == self.size && side.displs.len() == self.size;
        if !each(&send) || !each(&recv) || send.flat.meets(&recv.flat) {
            return None;
        }
        let (mpi, on) = (self.comm.mpi(), self.on);
        if self.size == 1 && scales_displacements(mpi) {
            return None;
        }
        if self.state.is_some_and(|state| !state.takes(self.sequence)) {
            return None;
        }
        Some(Exchange {
            mpi,
            on,
            send,
            recv,
        })
    }
}

impl Exchange {
    /// Makes the call and returns when this rank's part of it is done. Needs no interpreter.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - The memory of both sides is there until this returns. Nobody writes what is sent; nobody else reads or writes
    ///   what is received into.
    #[inline]
    pub unsafe fn run(&self) -> Result<()> {
        let types =
            |side: &Typed| SmallVec::<[Datatype; 16]>::from_elem(side.datatype, side.counts.len());
        let (send, recv) = (&self.send, &self.recv);
        // SAFETY:
        // - both sides hold what their numbers say (`Typed::new`) and are apart, one for each rank; the caller's promise for
        //   the rest.
        unsafe {
            self.mpi.alltoallw(
                send.flat.data,
                (&send.counts, &send.displs, &types(send)),
                recv.flat.data,
                (&recv.counts, &recv.displs, &types(recv)),
                self.on,
            )
        }?;
        Ok(())
    }
}
