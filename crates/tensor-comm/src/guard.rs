//! Room for a message of unknown length on a library that writes past the end of the room
//! (`arrival.rs`).
//!
//! Open MPI 5.0.11 copies a message at once, however long it is, where the room is one block; elsewhere
//! it unpacks piece by piece and stops at the end. So the last byte of the room gets another place, from
//! where it is brought home. Knows bytes, no tensor.

use std::cell::UnsafeCell;

use mpi_runtime::{Datatype, Mpi};

use crate::counted::Derived;
use crate::error::Result;
use crate::wiretype::byte;

mod waste;

pub(crate) use waste::begin_guarded;
pub use waste::receive_guarded;

/// Direct room from here on is left as it is unless a longer message is there already: the copy at once is what makes large
/// messages fast.
pub const LARGE: usize = 1 << 20;

/// Room whose last byte lies elsewhere.
pub(crate) struct Guard {
    room: *mut u8,
    bytes: usize,
    /// The last byte. Of room for less than two bytes there are two here, apart from each other, so that
    /// there always is a gap; a message may be one or two bytes too long there without an error.
    cells: Box<UnsafeCell<[u8; 4]>>,
    datatype: Derived,
}

impl Guard {
    /// Of `bytes` bytes at `room`.
    ///
    /// # Safety
    /// - They are there, and writable, for as long as this is used.
    pub unsafe fn new(mpi: &'static Mpi, room: *mut u8, bytes: usize) -> Result<Guard> {
        let last = match bytes {
            0 => 0,
            // SAFETY:
            // - the caller's promise.
            _ => unsafe { room.add(bytes - 1).read() },
        };
        let cells = Box::new(UnsafeCell::new([last, 0, 0, 0]));
        let cell = (cells.get() as i64).wrapping_sub(room as i64);
        let (lengths, places) = match bytes {
            0 | 1 => ([1, 1], [cell, cell.wrapping_add(2)]),
            _ => ([bytes as i64 - 1, 1], [0, cell]),
        };
        let datatype = mpi.type_create_hindexed(&lengths, &places, byte(mpi))?;
        Ok(Guard {
            room,
            bytes,
            cells,
            datatype: Derived::new(mpi, datatype).commit()?,
        })
    }

    /// One of it, at the room's address, is the room.
    pub fn datatype(&self) -> Datatype {
        self.datatype.datatype()
    }

    /// Brings the last byte home.
    pub fn settle(&self) {
        if self.bytes > 0 {
            // SAFETY:
            // - `new`'s promise; MPI is done with the cells.
            unsafe {
                let last = self.cells.get().cast::<u8>().read();
                self.room.add(self.bytes - 1).write(last);
            }
        }
    }
}

/// Room with one byte more, which lies elsewhere. Nothing has to be brought home, so it serves requests that
/// are started and completed without us; a message that is one byte too long is not an error of MPI's there.
pub struct Moat {
    #[expect(dead_code, reason = "MPI may write it")]
    cell: Box<UnsafeCell<[u8; 1]>>,
    datatype: Derived,
}

// SAFETY:
// - nobody here reads or writes the cell; the datatype's handle may be used by any thread.
unsafe impl Send for Moat {}

impl Moat {
    /// Of `bytes` bytes at `room`. The address is only looked at.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn new(mpi: &'static Mpi, room: *const u8, bytes: usize) -> Result<Moat> {
        let cell = Box::new(UnsafeCell::new([0]));
        let place = (cell.get() as i64).wrapping_sub(room as i64);
        let datatype = mpi.type_create_hindexed(&[bytes as i64, 1], &[0, place], byte(mpi))?;
        Ok(Moat {
            cell,
            datatype: Derived::new(mpi, datatype).commit()?,
        })
    }

    /// One of it, at the room's address, is the room.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        self.datatype.datatype()
    }
}
