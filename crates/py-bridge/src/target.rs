//! Arguments that name another rank's side of an operation and that libraries do not look at: what is reached in its
//! window, and whether there is such a rank. Knows no tensor.

use mpi_runtime::BuiltinOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tensor_comm::{Op, kernels};

use crate::bounds::{self, Reach};
use crate::collective;
use crate::datatype;
use crate::delegate::Values;
use crate::mpi4py::Mpi4py;
use crate::p2p;
use crate::params::{Slots, Takes};
use crate::table::Row;

/// Operations that move elements, of whatever kind.
const MOVE: [BuiltinOp; 2] = [BuiltinOp::Replace, BuiltinOp::NoOp];

/// Compares what an operation reaches at its target with that rank's window, where the window knows of it. Memory beyond
/// it would be read or overwritten: neither MPICH 5.0.2 nor Open MPI 5.0.11 looks.
///
/// # Errors
/// `ValueError` naming the argument; what MPI reports about a Datatype. What cannot be read is mpi4py's to refuse.
pub fn window(
    mpi4py: &Mpi4py,
    row: &Row,
    win: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
    values: &Values<'_>,
) -> PyResult<()> {
    let argument = |name: &str| {
        let at = row.params.iter().position(|param| param.name == name)?;
        slots[at].as_deref()
    };
    operation(mpi4py, row, slots, values)?;
    let rank = argument("target_rank").and_then(|rank| rank.extract::<usize>().ok());
    let Some(rank) = rank else { return Ok(()) };
    let Some((size, unit)) = room(win, rank)? else {
        return Ok(());
    };
    let Some(origin) = values[0]
        .as_ref()
        .and_then(|origin| origin.cast::<PyList>().ok())
    else {
        return Ok(());
    };
    // `[buffer, count, displacement, Datatype]`, or without a displacement (`elements.rs`, `memory.rs`).
    let last = origin.len().saturating_sub(1);
    let (Ok(buffer), Ok(count), Ok(datatype)) = (
        origin.get_item(0),
        origin.get_item(1),
        origin.get_item(last),
    ) else {
        return Ok(());
    };
    let single = row.params.iter().any(|param| param.name == "target_disp");
    let (name, spec) = match single {
        true => ("target_disp", argument("target_disp")),
        false => ("target", argument("target")),
    };
    let Some((displ, asked, given)) = spec_of(spec)? else {
        return Ok(());
    };
    let handle = |datatype| mpi4py.datatype(datatype).ok();
    let null = mpi4py.mpi().datatype_null();
    let (Some(sent), Some(put)) = (
        handle(&datatype).filter(|sent| *sent != null),
        handle(given.as_ref().unwrap_or(&datatype)).filter(|put| *put != null),
    ) else {
        return Ok(());
    };
    let reach = |datatype| Reach::of(win.py(), mpi4py.mpi(), datatype);
    let count = match (asked, single) {
        (Some(count), _) => count,
        (None, true) => 1,
        // A tensor as a whole.
        (None, false) if count.is_none() => {
            let length = bounds::length(&buffer)?;
            reach(sent)?.check_all(row.params[0].name, length)?
        }
        (None, false) => match count.extract() {
            Ok(count) => count,
            Err(_) => return Ok(()),
        },
    };
    if count == 0 {
        return Ok(());
    }
    let reach = reach(put)?;
    reach.check_at(
        &format!("{name}: the window of rank {rank}"),
        displ.saturating_mul(unit),
        count,
        size,
    )
}

/// Refuses an operation without a meaning for the elements: libraries find out in the call that synchronises, or not at all,
/// and end the job.
fn operation(
    mpi4py: &Mpi4py,
    row: &Row,
    slots: &Slots<'_, '_>,
    values: &Values<'_>,
) -> PyResult<()> {
    let Some(at) = row.params.iter().position(|param| param.takes == Takes::Op) else {
        return Ok(());
    };
    let (name, given) = (row.params[at].name, slots[at].as_deref());
    let op = collective::operation(mpi4py, name, given)?;
    let origin = values[0]
        .as_ref()
        .and_then(|origin| origin.cast::<PyList>().ok());
    let element = match origin.map(|origin| origin.get_item(3)) {
        Some(Ok(datatype)) => datatype::element(mpi4py, &datatype)?,
        _ => None,
    };
    let wrong = match (op, element) {
        (Op::Builtin(op), Some(dtype)) => kernels::meaning(op, dtype).err(),
        (Op::Native(op), _) if op == mpi4py.mpi().op_null() => {
            Some("OP_NULL is no operation".to_owned())
        }
        (Op::Native(op), Some(dtype)) if !MOVE.iter().any(|name| mpi4py.mpi().op(*name) == op) => {
            Some(format!(
                "only operations of MPI's own, on what they are for, work in windows, not this one on {dtype}"
            ))
        }
        _ => None,
    };
    match wrong {
        Some(words) => Err(PyValueError::new_err(format!("{name}: {words}"))),
        None => Ok(()),
    }
}

/// A displacement, and a count and a Datatype where they are said.
type Spec<'py> = (i64, Option<i64>, Option<Bound<'py, PyAny>>);

/// Reads `displacement`, or a sequence of it, a count and a Datatype; `None` where it is none of these.
fn spec_of<'py>(spec: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Spec<'py>>> {
    let Some(spec) = spec.filter(|spec| !spec.is_none()) else {
        return Ok(Some((0, None, None)));
    };
    if let Ok(displ) = spec.extract() {
        return Ok(Some((displ, None, None)));
    }
    let Ok(items) = spec.extract::<Vec<Bound<'py, PyAny>>>() else {
        return Ok(None);
    };
    let displ = match items.first().map(|displ| displ.extract::<i64>()) {
        None => 0,
        Some(Ok(displ)) => displ,
        Some(Err(_)) => return Ok(None),
    };
    let count = match items.get(1).map(|count| count.extract::<i64>()) {
        None => None,
        Some(Ok(count)) => Some(count),
        Some(Err(_)) => return Ok(None),
    };
    Ok(Some((displ, count, items.get(2).cloned())))
}

/// Bytes of a rank's window and of one displacement there, where the window knows of them (`_announced.py`).
///
/// # Errors
/// What Python raised.
pub fn room(win: &Bound<'_, PyAny>, rank: usize) -> PyResult<Option<(usize, i64)>> {
    let Some(rooms) = win.getattr_opt(pyo3::intern!(win.py(), "_rooms"))? else {
        return Ok(None);
    };
    let Ok(rooms) = rooms.cast_into::<PyTuple>() else {
        return Ok(None);
    };
    match (rooms.get_item(2 * rank), rooms.get_item(2 * rank + 1)) {
        (Ok(size), Ok(unit)) => Ok(Some((size.extract()?, unit.extract()?))),
        _ => Ok(None),
    }
}

/// Refuses a rank or a tag that a partitioned operation cannot have. Open MPI 5.0.11 looks at them when it is too late, and
/// ends the job.
///
/// # Errors
/// `ValueError` naming the argument; what mpi4py reports about the communicator.
pub fn partitioned(
    mpi4py: &Mpi4py,
    row: &Row,
    comm: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> PyResult<()> {
    let constants = mpi4py.mpi().constants();
    for (param, slot) in row.params.iter().zip(slots) {
        let (Takes::Int(_), Some(given)) = (param.takes, slot) else {
            continue;
        };
        let (name, value) = (param.name, p2p::int(param.name, given)?);
        if name == "tag" {
            if value < 0 && value != constants.any_tag {
                return Err(PyValueError::new_err(format!(
                    "{name}: {value} is negative"
                )));
            }
            continue;
        }
        let inter = comm.getattr("is_inter")?.is_truthy()?;
        let size = comm.getattr(if inter { "remote_size" } else { "size" })?;
        let known = [constants.proc_null, constants.any_source].contains(&value);
        if !known && !(0..size.extract()?).contains(&value) {
            return Err(PyValueError::new_err(format!(
                "{name}: there is no rank {value} among {size}"
            )));
        }
    }
    Ok(())
}
