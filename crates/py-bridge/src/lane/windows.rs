//! The short way of one-sided operations with plain arrays of MPI's own dtypes, and of what ends them.

use mpi_runtime::{BuiltinOp, Mpi, Win};
use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::{DType, Op, kernels};

use crate::collective;
use crate::delegate;
use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::mpi4py::Mpi4py;
use crate::outstanding::Outstanding;
use crate::p2p::Address;
use crate::params::Slots;
use crate::plain;
use crate::table::Row;
use crate::target;

/// Which operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneSided {
    /// `Put`.
    Put,
    /// `Get`.
    Get,
    /// `Accumulate`.
    Accumulate,
}

/// What ends operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// `Flush`.
    Rank,
    /// `Flush_local`.
    RankLocal,
    /// `Flush_all`.
    All,
    /// `Flush_local_all`.
    AllLocal,
}

/// Begins a one-sided operation; its array is held until it is over.
#[inline]
pub fn begin(
    mpi4py: &'static Mpi4py,
    which: OneSided,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let win = window(mpi4py, slf)?;
    let target = plain::int(slots[1].as_ref()?)?;
    let displ = match &slots[2] {
        None => 0,
        Some(given) if given.is_none() => 0,
        Some(given) => plain::int(given)?,
    };
    let target_at = usize::try_from(target).ok()?;
    let intent = match which {
        OneSided::Get => Intent::Receive,
        OneSided::Put | OneSided::Accumulate => Intent::Send,
    };
    let (flat, array) = plain::flat(mpi4py, slots[0].as_ref()?, intent, 1)?;
    if !is_within(slf, target_at, displ, flat.bytes()) {
        return None;
    }
    let datatype = tensor_comm::mpi_datatype(mpi, flat.dtype)?;
    let count = i32::try_from(flat.count).ok()?;
    let op = match which {
        OneSided::Accumulate => combined(mpi4py, slots, flat.dtype)?,
        OneSided::Put | OneSided::Get => mpi.op(BuiltinOp::Sum),
    };
    let holds = outstanding(slf).ok()??;
    let (address, displ) = (Address::new(flat.data), i64::from(displ));
    // SAFETY:
    // - the array has these elements, writable for `Get`, and is held, by `holds` from then on.
    let begun = interrupt::wait(py, || unsafe {
        let origin = address.get();
        match which {
            OneSided::Put => mpi.put(origin, count, datatype, target, displ, win),
            OneSided::Get => mpi.get(origin, count, datatype, target, displ, win),
            OneSided::Accumulate => mpi.accumulate(origin, count, datatype, target, displ, op, win),
        }
    });
    if begun.is_ok() {
        holds.get().array(target, &array);
    }
    let begun = begun.map_err(|error| errors::mpi(py, &error));
    Some(begun.map(|()| py.None()))
}

/// Whether these bytes from `displ` on lie in the window of `target`, as far as it is known: `target.rs` looks at the rest,
/// and refuses in words.
fn is_within(slf: &Bound<'_, PyAny>, target: usize, displ: i32, bytes: usize) -> bool {
    let end = |(size, unit): (usize, i64)| {
        let start = usize::try_from(i64::from(displ).checked_mul(unit)?).ok()?;
        start.checked_add(bytes).filter(|end| *end <= size)
    };
    let room = target::room(slf, target).ok().flatten();
    room.and_then(end).is_some()
}

/// The operation of an `Accumulate`, where numbers of this dtype have it.
fn combined(mpi4py: &Mpi4py, slots: &Slots<'_, '_>, dtype: DType) -> Option<mpi_runtime::Op> {
    let op = collective::operation(mpi4py, "op", slots[3].as_deref()).ok()?;
    let real = dtype.is_int() || matches!(dtype, DType::F32 | DType::F64);
    match op {
        Op::Builtin(op) if real && kernels::meaning(op, dtype).is_ok() => {
            Some(mpi4py.mpi().op(tensor_comm::library(op)))
        }
        _ => None,
    }
}

fn window(mpi4py: &Mpi4py, slf: &Bound<'_, PyAny>) -> Option<Win> {
    tensor_comm::attend(mpi4py.mpi()).ok()?;
    let handle = mpi4py.win_handle(slf).ok()?;
    // SAFETY:
    // - it is the handle of a window of the library that both use, and the object is alive.
    Some(unsafe { Win::from_raw(handle.get()) })
}

/// Ends operations, and lets go of what they worked on.
#[inline]
pub fn flush(
    mpi4py: &'static Mpi4py,
    which: Flush,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let win = window(mpi4py, slf)?;
    let rank = match which {
        Flush::Rank | Flush::RankLocal => Some(plain::int(slots[0].as_ref()?)?),
        Flush::All | Flush::AllLocal => None,
    };
    let over = mark(slf).ok()?;
    let flushed = interrupt::wait(py, || call(mpi, which, rank.unwrap_or(0), win));
    // As `entry` does for what may let objects go.
    Some(Python::attach(|py| {
        flushed.map_err(|error| errors::mpi(py, &error))?;
        release(slf, rank, over).map(|()| py.None())
    }))
}

fn call(mpi: &Mpi, which: Flush, rank: i32, win: Win) -> Result<(), mpi_runtime::Error> {
    match which {
        Flush::Rank => mpi.win_flush(rank, win),
        Flush::RankLocal => mpi.win_flush_local(rank, win),
        Flush::All => mpi.win_flush_all(win),
        Flush::AllLocal => mpi.win_flush_local_all(win),
    }
}

/// The same by mpi4py's own method.
///
/// # Errors
/// What it raised, and what a framework has to say of its tensor.
pub fn flush_by<'py>(
    real: &Bound<'py, PyAny>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let over = mark(slf)?;
    let result = delegate::invoke(real, row, slf, delegate::as_given(slots))?;
    let rank = slots[0].as_ref().map(|rank| rank.extract()).transpose()?;
    release(slf, rank, over).map(|()| result)
}

fn outstanding<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Outstanding>>> {
    let holds = slf.getattr_opt(intern!(slf.py(), "_held"))?;
    holds.map(|holds| Ok(holds.cast_into()?)).transpose()
}

/// What a flush that begins now ends: other threads may begin more while it waits.
fn mark(slf: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(outstanding(slf)?.map_or(0, |holds| holds.get().mark()))
}

fn release(slf: &Bound<'_, PyAny>, rank: Option<i32>, mark: u64) -> PyResult<()> {
    match outstanding(slf)? {
        Some(holds) => holds.get().end(slf.py(), rank, mark),
        None => Ok(()),
    }
}
