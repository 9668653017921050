//! To and from the communicators of the `mpi` crate (rsmpi), for programs that start MPI with it.
//!
//! Knows rsmpi's types and their raw handles; what is done with them is the table's business, which
//! returns the error codes that rsmpi's own safe methods drop.

use crate::{Comm, LoadError, Mpi};
use mpi::ffi;
use mpi::raw::{AsRaw, FromRaw};
use mpi::topology::{InterCommunicator, SimpleCommunicator};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

pub use mpi::topology::AsCommunicator;

/// What has a communicator's raw handle: rsmpi's communicator types.
pub trait AsComm: AsRaw<Raw = ffi::MPI_Comm> {}
impl<T: AsRaw<Raw = ffi::MPI_Comm>> AsComm for T {}

/// Loads the table from the MPI library that rsmpi links, and checks that it is that one.
///
/// # Errors
/// - [`LoadError`]: the program's MPI is of an unknown kind, or another one is in front of it.
pub fn load() -> Result<&'static Mpi, LoadError> {
    let mpi = Mpi::load_global()?;
    mpi.cross_check(
        size_of::<ffi::MPI_Comm>(),
        size_of::<ffi::MPI_Status>(),
        mpi.in_place() as isize,
    )?;
    // SAFETY:
    // - The constant is initialised by rsmpi's C part before the program starts.
    let world = bits(unsafe { ffi::RSMPI_COMM_WORLD });
    let ours = mpi.comm_world().raw();
    if world != ours {
        return Err(LoadError::Mismatch {
            what: "MPI_COMM_WORLD",
            found: ours as i64,
            expected: world as i64,
            library: mpi.library_path().to_owned(),
            family: mpi.family().name(),
            how: mpi.how_found().to_owned(),
        });
    }
    Ok(mpi)
}

/// The handle of an rsmpi communicator, whichever kind.
///
/// # Safety
/// - Nothing uses the result after `communicator` is dropped: dropping it frees the handle.
pub unsafe fn comm(communicator: &impl AsRaw<Raw = ffi::MPI_Comm>) -> Comm {
    // SAFETY:
    // - rsmpi's communicators hold live handles of the library that it links.
    // - The caller keeps to the life of the handle.
    unsafe { Comm::from_raw(bits(communicator.as_raw())) }
}

/// An rsmpi communicator that shares a handle and never frees it.
pub struct Borrowed<'a, T> {
    communicator: ManuallyDrop<T>,
    owner: PhantomData<&'a ()>,
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.communicator
    }
}

impl<T> Borrowed<'_, T> {
    fn new(communicator: T) -> Self {
        Borrowed {
            communicator: ManuallyDrop::new(communicator),
            owner: PhantomData,
        }
    }
}

/// An rsmpi view of an intracommunicator; `None` for `MPI_COMM_NULL` and for intercommunicators.
///
/// # Safety
/// - `comm` is not freed during `'a`.
/// - The table was loaded by [`load`], so that it is rsmpi's library that the handle belongs to.
/// - MPI is initialised and not finalised.
pub unsafe fn simple<'a>(mpi: &Mpi, comm: Comm) -> Option<Borrowed<'a, SimpleCommunicator>> {
    if comm == mpi.comm_null() {
        return None;
    }
    // rsmpi has own variants for these two, and debug builds of it refuse them as raw handles.
    if comm == mpi.comm_world() {
        return Some(Borrowed::new(SimpleCommunicator::world()));
    }
    if comm == mpi.comm_self() {
        return Some(Borrowed::new(SimpleCommunicator::self_comm()));
    }
    if mpi.comm_test_inter(comm).ok()? {
        return None;
    }
    // SAFETY:
    // - The handle is live, no intercommunicator and neither of the two predefined ones.
    // - ManuallyDrop keeps rsmpi from freeing it, so that it may be used elsewhere.
    Some(Borrowed::new(unsafe {
        SimpleCommunicator::from_raw(raw(comm)?)
    }))
}

/// An rsmpi view of an intercommunicator; `None` for everything else.
///
/// # Safety
/// - As for [`simple`].
pub unsafe fn inter<'a>(mpi: &Mpi, comm: Comm) -> Option<Borrowed<'a, InterCommunicator>> {
    if comm == mpi.comm_null() || !mpi.comm_test_inter(comm).ok()? {
        return None;
    }
    // SAFETY:
    // - The handle is a live intercommunicator.
    // - ManuallyDrop keeps rsmpi from freeing it, so that it may be used elsewhere.
    unsafe { InterCommunicator::try_from_raw(raw(comm)?) }.map(Borrowed::new)
}

/// rsmpi's handle type is a C int or a pointer, by the library that it was built for.
fn bits(handle: ffi::MPI_Comm) -> u64 {
    match size_of::<ffi::MPI_Comm>() {
        // SAFETY:
        // - The handle has exactly this size and is plain data.
        4 => u64::from(unsafe { std::mem::transmute_copy::<ffi::MPI_Comm, u32>(&handle) }),
        // SAFETY:
        // - A handle that is no C int is a pointer, on every known ABI.
        _ => unsafe { std::mem::transmute_copy::<ffi::MPI_Comm, usize>(&handle) as u64 },
    }
}

fn raw(comm: Comm) -> Option<ffi::MPI_Comm> {
    match size_of::<ffi::MPI_Comm>() {
        4 => {
            let narrow = u32::try_from(comm.raw()).ok()?;
            // SAFETY:
            // - The handle type has exactly this size and is plain data.
            Some(unsafe { std::mem::transmute_copy::<u32, ffi::MPI_Comm>(&narrow) })
        }
        // SAFETY:
        // - A handle type that is no C int is a pointer, on every known ABI.
        _ => Some(unsafe {
            std::mem::transmute_copy::<usize, ffi::MPI_Comm>(&(comm.raw() as usize))
        }),
    }
}
