//! Whether the message that a call is to receive is there already and longer than its room.

use pyo3::intern;
use pyo3::prelude::*;

use crate::errors;
use crate::lend;
use crate::mpi4py::Mpi4py;
use crate::p2p;
use crate::params::Slots;
use crate::table::{Class, Row};

/// Whether it is longer than so many bytes; also where that cannot be told of a message that was matched.
///
/// # Errors
/// What the arguments or MPI have to say.
pub fn exceeds(
    mpi4py: &Mpi4py,
    row: &Row,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
    bytes: usize,
) -> PyResult<bool> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    if row.class == Class::Message {
        let known = slf.getattr_opt(intern!(py, "_bytes"))?;
        let known = known.and_then(|known| known.extract::<usize>().ok());
        return Ok(known.is_none_or(|known| known > bytes));
    }
    let takes = |name: &str| row.params.iter().any(|param| param.name == name);
    if row.class != Class::Comm || !takes("source") {
        return Ok(false);
    }
    let int = |name: &str, default| match lend::given(row, slots, name) {
        Some(given) => p2p::int(name, given),
        None => Ok(default),
    };
    let constants = mpi.constants();
    let tag = match takes("recvtag") {
        true => "recvtag",
        false => "tag",
    };
    let from = (
        int("source", constants.any_source)?,
        int(tag, constants.any_tag)?,
    );
    let comm = mpi4py.comm(slf)?;
    py.detach(|| tensor_comm::is_exceeded(mpi, bytes, from, comm))
        .map_err(|error| errors::operation(py, error))
}
