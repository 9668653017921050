//! Generalized requests (MPI-4.1, 13.2): operations of ours that look like MPI's.

use super::{Result, call, with_table};
use crate::{Mpi, Request, StatusPtr};
use libc::{c_int, c_void};

/// An operation of ours behind an `MPI_Request`. MPI owns the value from [`Mpi::grequest_start`] on and drops it when
/// the request is freed. Its methods run inside MPI calls, on whichever thread makes them; a panic ends the process.
pub trait GeneralizedRequest: Send + Sync + 'static {
    /// Fills the status of the completed operation: with [`Mpi::status_set`], [`Mpi::status_set_elements`] and
    /// [`Mpi::status_set_cancelled`]. `Err` is an MPI error code, which the completing call reports.
    ///
    /// # Safety
    /// - `status` is a writable status of the loaded library.
    unsafe fn query(&self, status: StatusPtr) -> std::result::Result<(), i32>;

    /// `MPI_Cancel` was called; `complete` says whether [`Mpi::grequest_complete`] had been.
    fn cancel(&self, complete: bool) -> std::result::Result<(), i32>;
}

impl Mpi {
    /// `MPI_Grequest_start`
    pub fn grequest_start<T: GeneralizedRequest>(&self, operation: T) -> Result<Request> {
        let state: *mut T = Box::into_raw(Box::new(operation));
        let started = call!(self, "MPI_Grequest_start",
            grequest_start(query::<T>, free::<T>, cancel::<T>, state.cast(), &mut request) => request);
        if started.is_err() {
            // SAFETY:
            // - `state` came from Box::into_raw, and MPI made no request that would free it.
            drop(unsafe { Box::from_raw(state) });
        }
        started.map(Request::from_bits)
    }

    /// `MPI_Grequest_complete`: the operation is done. The request is then completed like any other.
    ///
    /// # Safety
    /// - `request` came from [`grequest_start`](Self::grequest_start), was not completed before, and has not been freed.
    pub unsafe fn grequest_complete(&self, request: Request) -> Result<()> {
        call!(
            self,
            "MPI_Grequest_complete",
            grequest_complete(request.native())
        )
    }
}

fn code(result: std::result::Result<(), i32>) -> c_int {
    result.err().unwrap_or(0)
}

unsafe extern "C" fn query<T: GeneralizedRequest>(
    state: *mut c_void,
    status: *mut c_void,
) -> c_int {
    // SAFETY:
    // - `state` is the T of grequest_start, which lives until `free`.
    // - MPI passes a status to fill.
    code(unsafe { (*state.cast::<T>()).query(StatusPtr(status)) })
}

unsafe extern "C" fn free<T: GeneralizedRequest>(state: *mut c_void) -> c_int {
    // SAFETY:
    // - `state` came from Box::into_raw in grequest_start, and MPI calls this once per request.
    drop(unsafe { Box::from_raw(state.cast::<T>()) });
    0
}

unsafe extern "C" fn cancel<T: GeneralizedRequest>(state: *mut c_void, complete: c_int) -> c_int {
    // SAFETY:
    // - `state` is the T of grequest_start, which lives until `free`.
    code(unsafe { (*state.cast::<T>()).cancel(complete != 0) })
}
