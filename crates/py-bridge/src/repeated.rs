//! Persistent reductions that MPI cannot make of the tensors' own elements: `bfloat16`, `float8_*`, the
//! mean. Each start begins a non-blocking one on a communicator of the request's own, so that requests
//! may be started in any order, as in MPI. Which those are, ranks know alike: dtype and operation.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tensor_comm::{Comm, DType, Op};

use crate::collective::{self, Collective};
use crate::datatype::{self, Reading, Use};
use crate::errors;
use crate::framework::Intent;
use crate::message::Spec;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::params::{Slots, Takes};
use crate::registry;
use crate::snapshot;
use crate::table::{Body, ROWS, Row};

/// How a persistent operation is made.
pub enum Repeated<'py> {
    /// As one of dlmpi's own: its request.
    Request(Bound<'py, PyAny>),
    /// By MPI, with an operation of ours in the place of the one at this argument.
    Op(usize, Bound<'py, PyAny>),
    /// By MPI.
    Plain,
}

/// What kind of persistent operation it is, and the request of those that are dlmpi's own.
///
/// # Errors
/// What the arguments have to say.
pub fn create<'py>(
    mpi4py: &Mpi4py,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Repeated<'py>> {
    let py = slf.py();
    let Some(at) = row.params.iter().position(|p| p.takes == Takes::Op) else {
        return Ok(Repeated::Plain);
    };
    let op = collective::operation(mpi4py, row.params[at].name, slots[at].as_deref())?;
    let raw = mpi4py.comm(slf)?;
    // What cannot be asked is left to MPI's way, which says why.
    let (Some(dtype), false) = (
        dtype(mpi4py, row, slots, op),
        raw == mpi4py.mpi().comm_null(),
    ) else {
        return Ok(Repeated::Plain);
    };
    let core = |error| errors::operation(py, error);
    let comm = Comm::new(mpi4py.mpi(), raw).map_err(core)?;
    if tensor_comm::is_plain(&comm).map_err(core)? {
        return Ok(Repeated::Plain);
    }
    if !is_needed(mpi4py, op, dtype) {
        let own = match op {
            Op::Builtin(op) => tensor_comm::own(mpi4py.mpi(), op, dtype).map_err(core)?,
            _ => None,
        };
        return match own {
            Some(own) => Ok(Repeated::Op(at, mpi4py.op_object(py, own)?)),
            None => Ok(Repeated::Plain),
        };
    }
    let (name, started) = started(row)?;
    let params = &row.params[..row.params.len() - 1];
    collective::check(py, mpi4py, &started, params, comm, slots)?;
    let arguments = params
        .iter()
        .zip(slots)
        .map(|(param, slot)| match (slot, param.takes) {
            // No Datatype is derived here: what one describes is MPI's to reduce.
            (Some(given), _) => snapshot::argument(mpi4py, param, given, &mut Vec::new()),
            (None, Takes::Op) => mpi4py.module(py).getattr("SUM").map(Bound::unbind),
            (None, Takes::Int(_)) => Ok(0i32.into_pyobject(py)?.into_any().unbind()),
            (None, _) => Ok(py.None()),
        })
        .collect::<PyResult<Vec<_>>>()?;
    let arguments = PyTuple::new(py, arguments)?;
    let class = mpi4py.classes()?.repeated.bind(py);
    class
        .call_method1("_create", (slf, name, arguments))
        .map(Repeated::Request)
}

/// The dtype of what is reduced as the elements that it is; `None` where the caller's operation or Datatype
/// says what it is, and where it cannot be asked.
fn dtype(mpi4py: &Mpi4py, row: &Row, slots: &Slots<'_, '_>, op: Op) -> Option<DType> {
    if matches!(op, Op::Native(_)) {
        return None;
    }
    let mut tensors = row.params.iter().zip(slots).filter_map(|(param, slot)| {
        let msg = slot.as_deref()?;
        let sides = matches!(param.takes, Takes::Sent | Takes::Received);
        (sides && !mpi4py.is_in_place(msg)).then_some((param.name, msg))
    });
    let (name, msg) = tensors.next()?;
    let asked = || -> PyResult<Option<DType>> {
        let spec = Spec::unpack(mpi4py, name, msg, false)?;
        let mut order = StreamOrder::default();
        let loan = registry::lend(name, &spec.tensor, Intent::Send, &mut order)?;
        let dtype = loan.view().dtype();
        if let Some(given) = spec.datatype(mpi4py)?
            && datatype::reading(mpi4py, name, dtype, &given, Use::Reduce)? == Reading::Raw
        {
            return Ok(None);
        }
        Ok(Some(dtype))
    };
    asked().ok().flatten()
}

/// Whether MPI has no arithmetic for it.
fn is_needed(mpi4py: &Mpi4py, op: Op, dtype: DType) -> bool {
    match op {
        Op::Avg => true,
        Op::Builtin(op) => {
            tensor_comm::mpi_datatype(mpi4py.mpi(), dtype).is_none()
                && tensor_comm::kernels::meaning(op, dtype).is_ok()
        }
        Op::Native(_) => false,
    }
}

/// The non-blocking form of a persistent one.
fn started(row: &Row) -> PyResult<(&'static str, Collective)> {
    let name = row.name.trim_end_matches("_init").to_lowercase();
    ROWS.iter()
        .find_map(|row| match row.body {
            Body::Start(form) if row.name[1..] == name => Some((row.name, form)),
            _ => None,
        })
        .ok_or_else(errors::unbound)
}
