//! The same memory at another address, by a derived datatype: for libraries that take two sides at one address
//! for one that is in place.

use mpi_runtime::{Datatype, Family, Mpi};

use crate::counted::Derived;
use crate::error::Result;

/// Whether this library takes two sides of a non-blocking or persistent collective at one address for one that is in
/// place, whatever their datatypes reach from there: Open MPI 5.0.11 does.
#[must_use]
pub fn takes_one_address_for_in_place(mpi: &Mpi) -> bool {
    mpi.family() == Family::OpenMpi
}

/// A datatype for an address that is beside that of the memory. Freed when dropped; operations that were started with
/// it go on.
pub struct Shifted(Derived);

// SAFETY:
// - a handle, which any thread may use.
unsafe impl Send for Shifted {}

impl Shifted {
    /// So many bytes after the memory is the address.
    pub const BY: usize = 1;

    /// Its elements at the address are those of `datatype` at the memory, with the same extent.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn new(mpi: &'static Mpi, datatype: Datatype) -> Result<Shifted> {
        let back = -(Shifted::BY as i64);
        let shifted = mpi.type_create_hindexed(&[1], &[back], datatype)?;
        Derived::new(mpi, shifted).commit().map(Shifted)
    }

    /// Its handle.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        self.0.datatype()
    }
}
