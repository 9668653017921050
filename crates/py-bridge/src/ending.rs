//! `MPI_Finalize` at the very end of the process that started MPI, and in no child forked from it.
//!
//! mpi4py's own end has no such difference: a child that leaves by `sys.exit` ends MPI on its parent's
//! connections, which takes the job down (MPICH) or waits for ever. Knows nothing of what MPI did.

use std::sync::OnceLock;

use crate::mpi4py::Mpi4py;

/// The process that is to end MPI.
static OURS: OnceLock<u32> = OnceLock::new();

/// Has this process end MPI where nobody else has, when the interpreter is gone; after what is asked for
/// later. Says whether the interpreter can take it.
pub fn finalize_at_exit() -> bool {
    if OURS.set(std::process::id()).is_err() {
        return true;
    }
    // SAFETY:
    // - the interpreter runs, since a function of its extension module does;
    // - `finalize` calls nothing of it.
    unsafe { pyo3::ffi::Py_AtExit(Some(finalize)) == 0 }
}

extern "C" fn finalize() {
    let Some(mpi4py) = Mpi4py::get().filter(|_| OURS.get() == Some(&std::process::id())) else {
        return;
    };
    let mpi = mpi4py.mpi();
    if let (Ok(true), Ok(false)) = (mpi.initialized(), mpi.finalized()) {
        // SAFETY:
        // - the interpreter has ended, and with it all threads that could make a call; our own are ended
        //   by a callback inside this one.
        // An error is the library's to report: nobody is left to hear it.
        let _ = unsafe { mpi.finalize() };
    }
}
