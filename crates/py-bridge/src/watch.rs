//! The Python side of the watch: how this process's Python stack is got without the interpreter's help.
//!
//! Python registers faulthandler for a signal of no other use, with a file of its own. The engine's thread
//! sends itself that signal and reads the file: that works while every other thread waits inside MPI, or
//! holds the interpreter for ever.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{errors, mpi4py, site};

/// Bytes of a stack at most.
const STACK: usize = 1 << 16;

/// Starts the watch. `signal` makes faulthandler write all stacks into the file `descriptor`.
///
/// # Errors
/// What MPI reports, or a wrong `DLMPI_TIMEOUT`.
pub fn start(py: Python<'_>, signal: i32, descriptor: i32) -> PyResult<()> {
    let mpi = mpi4py::bound()?.mpi();
    let one_at_a_time = Mutex::new(());
    tensor_comm::watch::set_stack(tensor_comm::watch::Stack {
        get: Box::new(move || {
            let _guard = one_at_a_time.lock();
            stack(signal, descriptor)
        }),
        own: site::folder(py, "dlmpi").unwrap_or_default(),
    });
    tensor_comm::Comm::new(mpi, mpi.comm_world())
        .and_then(|world| py.detach(|| tensor_comm::watch::start(world)))
        .map_err(|error| errors::operation(py, error))
}

fn stack(signal: i32, descriptor: i32) -> String {
    let mut bytes = vec![0u8; STACK];
    // SAFETY:
    // - the descriptor is of a file in memory that Python made for this and never closes.
    // - `raise` runs the handler on this very thread before it returns; the handler was registered.
    // - `bytes` has room for as much as is read.
    let read = unsafe {
        libc::ftruncate(descriptor, 0);
        libc::lseek(descriptor, 0, libc::SEEK_SET);
        libc::raise(signal);
        libc::pread(descriptor, bytes.as_mut_ptr().cast(), STACK, 0)
    };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sets how long collectives of this thread may take: seconds, `inf`, or `None` for what
/// `DLMPI_TIMEOUT` says. Returns what was set before.
///
/// # Errors
/// `ValueError` for what is no such time.
pub fn limit(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<f64>> {
    let limit = match seconds {
        None => None,
        Some(seconds) if seconds == f64::INFINITY => Some(None),
        Some(seconds) => Some(Some(
            Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|limit| !limit.is_zero())
                .ok_or_else(|| {
                    PyValueError::new_err(format!(
                        "seconds: {seconds}, expected more than 0, or inf"
                    ))
                })?,
        )),
    };
    let before = tensor_comm::watch::limit_here(limit);
    let before = before.map_err(|error| errors::operation(py, error))?;
    Ok(before.map(|limit| limit.map_or(f64::INFINITY, |limit| limit.as_secs_f64())))
}
