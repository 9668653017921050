//! Receiving into elements that lie one behind the other, by a room with one byte more, which is waste. The Datatypes of such
//! rooms hang on their addresses alone and are kept: programs receive into the same memory again and again.

use std::cell::{RefCell, UnsafeCell};

use mpi_runtime::{Comm, Datatype, Mpi, Request};

use super::LARGE;
use crate::arrival;
use crate::counted::Derived;
use crate::error::Result;
use crate::lane::Carried;
use crate::wiretype::byte;

/// Rooms that a thread knows.
const ROOMS: usize = 64;
/// Up to this size a known room is taken without a look for a message that has come: piece by piece is as fast there.
const SMALL: usize = 4096;

/// Bytes that any receive may write and nobody reads.
struct Waste(UnsafeCell<[u8; 4]>);

// SAFETY:
// - nobody here reads or writes them.
unsafe impl Sync for Waste {}

static WASTE: Waste = Waste(UnsafeCell::new([0; 4]));

/// The Datatype of a room at this address and of so many bytes.
struct Known {
    address: usize,
    bytes: usize,
    datatype: Derived,
}

thread_local! {
    /// By address and size; another room takes the place. MPI keeps what receives under way need.
    static KNOWN: RefCell<[Option<Known>; ROOMS]> = const { RefCell::new([const { None }; ROOMS]) };
}

/// Starts to receive into elements of more than a byte each: a message that has come already is measured, else the room
/// has one byte more, as a [`super::Moat`] has, which lies in waste. A message that is longer is no message of whole elements,
/// and told by its status where MPI does not. `None` where another way is needed, and nothing was begun.
///
/// # Errors
/// `MPI_ERR_TRUNCATE` in words, and what MPI reports.
///
/// # Safety
/// - The elements are there, writable, and nothing else touches them until the request completes.
pub unsafe fn receive_guarded(
    mpi: &'static Mpi,
    carried: &Carried,
    (source, tag): (i32, i32),
    comm: Comm,
) -> Result<Option<Request>> {
    let room = carried.room();
    if carried.capacity().itemsize < 2 || room.bytes == 0 {
        return Ok(None);
    }
    let known = match room.bytes <= SMALL {
        true => find(room.ptr.addr(), room.bytes),
        false => None,
    };
    if known.is_none() {
        // SAFETY:
        // - the caller's promise.
        let present = unsafe {
            arrival::receive_present_in(mpi, &room, carried.capacity(), (source, tag), comm)
        }?;
        if present.is_some() {
            return Ok(present);
        }
    }
    let (count, datatype) = match known {
        Some(datatype) => (1, datatype),
        None if room.bytes >= LARGE => (room.count, room.datatype),
        None => (1, make(mpi, room.ptr.addr(), room.bytes)?),
    };
    // SAFETY:
    // - the caller's promise, for either type: what lies in waste may be written by anybody.
    Ok(Some(unsafe {
        mpi.irecv(room.ptr, count, datatype, source, tag, comm)
    }?))
}

/// Where a room is kept.
fn place(address: usize, bytes: usize) -> usize {
    // Arrays of one size lie a multiple of 16 bytes apart.
    ((address >> 4) ^ (address >> 10) ^ bytes) % ROOMS
}

fn find(address: usize, bytes: usize) -> Option<Datatype> {
    KNOWN.with_borrow(|known| match &known[place(address, bytes)] {
        Some(room) if room.address == address && room.bytes == bytes => {
            Some(room.datatype.datatype())
        }
        _ => None,
    })
}

fn make(mpi: &'static Mpi, address: usize, bytes: usize) -> Result<Datatype> {
    let waste = (WASTE.0.get() as i64).wrapping_sub(address as i64);
    // Next to each other the two would be one block.
    let waste = match waste == bytes as i64 {
        true => waste + 2,
        false => waste,
    };
    let datatype = mpi.type_create_hindexed(&[bytes as i64, 1], &[0, waste], byte(mpi))?;
    let room = Known {
        address,
        bytes,
        datatype: Derived::new(mpi, datatype).commit()?,
    };
    let made = room.datatype.datatype();
    // Dropped outside the borrow: the room that was there.
    let _before = KNOWN.with_borrow_mut(|known| known[place(address, bytes)].replace(room));
    Ok(made)
}
