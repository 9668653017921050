//! Receiving into elements that lie one behind the other, by a room with one byte more, which is waste. The Datatypes of such
//! small rooms hang on their addresses alone and are kept: programs receive into the same memory again and again.

use std::cell::UnsafeCell;
use std::sync::{Mutex, TryLockError};

use mpi_runtime::{Comm, Datatype, Mpi, Request};

use super::LARGE;
use crate::arrival;
use crate::counted::Derived;
use crate::error::Result;
use crate::lane::Carried;
use crate::wiretype::byte;

/// Rooms that are known.
const ROOMS: usize = 64;
/// Up to this size a room is kept, and taken without a look for a message that has come: piece by piece is as fast there.
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

/// By address and size; another room takes the place. MPI keeps what receives under way need. Held while a receive begins,
/// such that no other thread frees its Datatype before.
static KNOWN: Mutex<[Option<Known>; ROOMS]> = Mutex::new([const { None }; ROOMS]);

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
    let begin = |count, datatype| {
        // SAFETY:
        // - the caller's promise: what lies in waste may be written by anybody.
        let request = unsafe { mpi.irecv(room.ptr, count, datatype, source, tag, comm) };
        Ok(Some(request?))
    };
    // SAFETY:
    // - the caller's promise.
    let present = || unsafe {
        arrival::receive_present_in(mpi, &room, carried.capacity(), (source, tag), comm)
    };
    begin_guarded(mpi, carried, (source, tag, comm), present, begin)
}

/// The same of a receive that `begin` begins, given the count and Datatype of its room; `present` may find that its message
/// has come already, and begin it. A large room is as it is unless a message that is there is longer.
pub(crate) fn begin_guarded(
    mpi: &'static Mpi,
    carried: &Carried,
    (source, tag, comm): (i32, i32, Comm),
    present: impl FnOnce() -> Result<Option<Request>>,
    begin: impl Fn(i64, Datatype) -> Result<Option<Request>>,
) -> Result<Option<Request>> {
    let room = carried.room();
    if carried.capacity().itemsize < 2 || room.bytes == 0 {
        return Ok(None);
    }
    let address = room.ptr.addr();
    let mut known = match room.bytes <= SMALL {
        // A thread that finds another one here makes a type of its own.
        true => match KNOWN.try_lock() {
            Ok(known) => Some(known),
            Err(TryLockError::Poisoned(known)) => Some(known.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        },
        false => None,
    };
    let mut place = known
        .as_mut()
        .map(|known| &mut known[place(address, room.bytes)]);
    if let Some(Some(known)) = place.as_ref().map(|place| place.as_ref())
        && (known.address, known.bytes) == (address, room.bytes)
    {
        return begin(1, known.datatype.datatype());
    }
    let present = present()?;
    if present.is_some() {
        return Ok(present);
    }
    if room.bytes >= LARGE && !arrival::is_exceeded(mpi, room.bytes, (source, tag), comm)? {
        return begin(room.count, room.datatype);
    }
    let datatype = make(mpi, address, room.bytes)?;
    let request = begin(1, datatype.datatype())?;
    if let Some(place) = &mut place {
        **place = Some(Known {
            address,
            bytes: room.bytes,
            datatype,
        });
    }
    Ok(request)
}

/// Where a room is kept.
fn place(address: usize, bytes: usize) -> usize {
    // Arrays of one size lie a multiple of 16 bytes apart.
    ((address >> 4) ^ (address >> 10) ^ bytes) % ROOMS
}

fn make(mpi: &'static Mpi, address: usize, bytes: usize) -> Result<Derived> {
    let waste = (WASTE.0.get() as i64).wrapping_sub(address as i64);
    // Next to each other the two would be one block.
    let waste = match waste == bytes as i64 {
        true => waste + 2,
        false => waste,
    };
    let datatype = mpi.type_create_hindexed(&[bytes as i64, 1], &[0, waste], byte(mpi))?;
    Derived::new(mpi, datatype).commit()
}
