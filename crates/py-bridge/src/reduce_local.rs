//! `Op.Reduce_local` on tensors.

use pyo3::prelude::*;
use tensor_comm::Arg;

use crate::collective;
use crate::datatype::Use;
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::message::{self, Loans, Message};
use crate::mpi4py;
use crate::params::Slots;
use crate::table::Row;

/// `Op.Reduce_local`; `real` is mpi4py's, for raw memory.
///
/// # Errors
/// What the arguments, MPI or a framework have to say.
pub fn call<'py>(
    real: &Bound<'py, PyAny>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let [Some(inbuf), Some(inoutbuf), ..] = slots else {
        return Err(errors::unbound());
    };
    if reduce_local(slf, inbuf, inoutbuf)? {
        return Ok(slf.py().None().into_bound(slf.py()));
    }
    delegate::invoke(real, row, slf, delegate::as_given(slots))
}

/// Combines `inbuf` into `inoutbuf`; `False` where the caller means raw memory, which is mpi4py's.
///
/// # Errors
/// What the arguments, MPI or a framework have to say.
fn reduce_local(
    op: &Bound<'_, PyAny>,
    inbuf: &Bound<'_, PyAny>,
    inoutbuf: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let (py, mpi4py) = (op.py(), mpi4py::bound()?);
    let mpi = mpi4py.mpi();
    tensor_comm::attend(mpi).map_err(|error| errors::operation(py, error))?;
    let op = collective::operation(mpi4py, "op", Some(op))?;
    let usage = match op {
        tensor_comm::Op::Native(_) => Use::UserOp,
        _ => Use::Reduce,
    };
    let mut loans = Loans::new(mpi4py);
    let mut part = |name, msg, intent| {
        let read = message::simple(&mut loans, name, msg, intent, usage, 0)?;
        PyResult::Ok(match read {
            Message::Ours(Arg::Part(part)) => Some(part),
            _ => None,
        })
    };
    let input = part("inbuf", inbuf, Intent::Send)?;
    let inout = part("inoutbuf", inoutbuf, Intent::Receive)?;
    let (Some(input), Some(inout)) = (input, inout) else {
        return Ok(false);
    };
    loans.order.wait(py)?;
    // SAFETY:
    // - `loans` keeps the tensors' memory.
    let done = py.detach(|| unsafe { tensor_comm::reduce_local(mpi, &input, &inout, op) });
    let told = loans.wrote(py);
    done.map_err(|error| errors::operation(py, error))?;
    told.map(|()| true)
}
