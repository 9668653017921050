//! The short way of `Alltoallw` where all blocks of a side are elements of its own Datatype.

use mpi_runtime::{CountArrays, Datatype, Mpi, Request};
use smallvec::SmallVec;

use super::reducing::Work;
use super::{Flat, Lane, Ready};
use crate::error::Result;
use crate::fits::scales_displacements;
use crate::wiretype::mpi_datatype;

/// A block of one array for each rank, at a displacement in bytes.
pub struct Typed {
    flat: Flat,
    /// A count for each rank, then a displacement.
    numbers: Vec<i64>,
    datatype: Datatype,
}

impl Typed {
    /// Blocks of `numbers`: one count per rank in elements, then one displacement per rank in bytes; `None` where a block
    /// leaves the array or does not fit a C `int`, or MPI has no such elements.
    #[inline]
    #[must_use]
    pub fn new(mpi: &Mpi, flat: Flat, numbers: Vec<i64>) -> Option<Typed> {
        let (counts, displs) = numbers.split_at(numbers.len() / 2);
        for (&count, &displ) in counts.iter().zip(displs) {
            let (from, elements) = (usize::try_from(displ).ok()?, usize::try_from(count).ok()?);
            let end = elements.checked_mul(flat.itemsize())?.checked_add(from)?;
            let fits = i32::try_from(count).is_ok() && i32::try_from(displ).is_ok();
            if !fits || (count > 0 && end > flat.bytes()) {
                return None;
            }
        }
        Some(Typed {
            datatype: mpi_datatype(mpi, flat.dtype)?,
            flat,
            numbers,
        })
    }

    fn is_for(&self, ranks: usize) -> bool {
        self.numbers.len() == 2 * ranks
    }

    /// The one block, at displacement 0.
    fn at_its_block(mut self) -> Typed {
        if let [count, displ] = &mut self.numbers[..] {
            if *count > 0 {
                self.flat.data = self.flat.data.wrapping_offset(*displ as isize);
            }
            *displ = 0;
        }
        self
    }

    fn numbers(&self) -> (&[i64], &[i64]) {
        self.numbers.split_at(self.numbers.len() / 2)
    }

    /// Its Datatype for each rank.
    fn types(&self) -> SmallVec<[Datatype; 16]> {
        SmallVec::from_elem(self.datatype, self.numbers.len() / 2)
    }
}

/// The two sides of an `Alltoallw`.
pub(super) struct Exchange {
    mpi: &'static Mpi,
    send: Typed,
    recv: Typed,
}

impl Lane {
    /// The `Alltoallw` that these arguments make, which has its number then; `None`, and nothing is done, where they are no
    /// such ones.
    #[inline]
    pub fn typed(self, send: Typed, recv: Typed) -> Option<Ready> {
        let takes = |side: &Typed| side.is_for(self.size) && self.takes(&side.flat);
        if !takes(&send) || !takes(&recv) || send.flat.meets(&recv.flat) {
            return None;
        }
        let mpi = self.mpi;
        let (send, recv) = match self.size == 1 && scales_displacements(mpi) {
            true => (send.at_its_block(), recv.at_its_block()),
            false => (send, recv),
        };
        let numbered = self.takes_number();
        numbered.then(|| self.with(Work::Typed(Exchange { mpi, send, recv })))
    }
}

impl Exchange {
    /// Makes the call and returns when it is done.
    ///
    /// # Safety
    /// - Both sides are valid for what their numbers say, the receiving one writable and apart from the sending one, until the
    ///   call returns.
    /// - The communicator has as many ranks as each side has blocks.
    pub unsafe fn block(&self, comm: mpi_runtime::Comm) -> Result<()> {
        let Exchange { mpi, send, recv } = self;
        let ((sent, from), (received, into)) = (send.numbers(), recv.numbers());
        // SAFETY:
        // - the caller's promise.
        Ok(unsafe {
            mpi.alltoallw(
                send.flat.data,
                (sent, from, &send.types()),
                recv.flat.data,
                (received, into, &recv.types()),
                comm,
            )
        }?)
    }

    /// Starts the call. The arrays must be kept until the request completes.
    ///
    /// # Safety
    /// - As for [`Exchange::block`], until the request completes.
    pub unsafe fn start(&self, comm: mpi_runtime::Comm) -> Result<(Request, Option<CountArrays>)> {
        let Exchange { mpi, send, recv } = self;
        let ((sent, from), (received, into)) = (send.numbers(), recv.numbers());
        // SAFETY:
        // - the caller's promise.
        let (request, arrays) = unsafe {
            mpi.ialltoallw(
                send.flat.data,
                (sent, from, &send.types()),
                recv.flat.data,
                (received, into, &recv.types()),
                comm,
            )
        }?;
        Ok((request, Some(arrays)))
    }
}
