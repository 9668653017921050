//! The Python side of the trace: where its file is, and stretches of the user's program.

use std::path::PathBuf;

use pyo3::prelude::*;
use tensor_comm::Comm;
use tensor_comm::trace::{self, Header};

use crate::{errors, mpi4py};

/// Starts to trace this process into the file `path`; `node` names the processes that share its clock.
///
/// # Errors
/// `RuntimeError` with the operating system's words.
pub fn start(py: Python<'_>, path: PathBuf, node: String) -> PyResult<()> {
    let mpi = mpi4py::bound()?.mpi();
    let core = |error| errors::operation(py, error);
    let world = Comm::new(mpi, mpi.comm_world()).map_err(core)?;
    let library = mpi.library_version().lines().next().unwrap_or_default();
    let header = Header {
        rank: usize::try_from(world.rank().map_err(core)?).unwrap_or(0),
        size: world.size().map_err(core)?,
        node,
        library: library.trim().to_owned(),
    };
    py.detach(|| trace::start(&path, &header)).map_err(core)
}
