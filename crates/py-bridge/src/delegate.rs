//! Hands a call to mpi4py's own method: the caller's Datatype means raw memory, as in mpi4py. Tensors
//! are lent to it as PEP 3118 buffers. Knows no operation.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;
use tensor_comm::{Comm, Flow};

use crate::avg::Avg;
use crate::borrow::Borrowed;
use crate::buffer;
use crate::carried;
use crate::collective::{self, Collective, Role};
use crate::datatype::Use;
use crate::errors;
use crate::framework::Intent;
use crate::interrupt;
use crate::memory::{self, Division, Given};
use crate::message::Spec;
use crate::mpi4py::{self, Mpi4py};
use crate::params::{MAX_PARAMS, Slots, Takes};
use crate::table::{Body, Row};
use crate::transfer::Lent;

/// The values of a call by parameter, as mpi4py's method gets them.
pub type Values<'py> = [Option<Bound<'py, PyAny>>; MAX_PARAMS];

/// Calls `real`, mpi4py's method, with the arguments of this call. The other ranks of a collective learn
/// which one it is before, or that this rank refuses it.
///
/// # Errors
/// What mpi4py raised, or why a tensor cannot be lent as raw memory.
pub fn call<'py>(
    real: &Bound<'py, PyAny>,
    row: &'static Row,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, mpi4py) = (slf.py(), mpi4py::bound()?);
    let core = |error| errors::operation(py, error);
    let handle = mpi4py.comm(slf)?;
    let collective = match row.body {
        // mpi4py raises what MPI says about a null communicator.
        Body::Collective(collective) | Body::Start(collective)
            if handle != mpi4py.mpi().comm_null() =>
        {
            let comm = Comm::new(mpi4py.mpi(), handle).map_err(core)?;
            Some((collective, comm))
        }
        _ => None,
    };
    let (values, lent) = lend(mpi4py, row, collective, slots).inspect_err(|why| {
        if let Some((Collective { kind, .. }, comm)) = collective {
            match row.body {
                Body::Start(_) => collective::refuse_start(py, comm, kind, why),
                _ => collective::refuse(py, comm, kind, why),
            }
        }
    })?;
    let announced = match (&row.body, collective) {
        (Body::Start(Collective { kind, .. }), _) => {
            return carried::start(mpi4py, (row, (*kind).into()), real, slf, values, lent);
        }
        (_, Some((Collective { kind, .. }, comm))) => {
            let announced = interrupt::wait(py, || tensor_comm::announce(&comm, kind));
            Some(announced.map_err(core)?)
        }
        _ => None,
    };
    let result = invoke(real, row, slf, values);
    let ended = lent.end(py);
    let result = result?;
    if let Some(mut announced) = announced {
        announced.ended_well();
    }
    ended.map(|()| result)
}

/// The arguments as mpi4py gets them.
fn lend<'py>(
    mpi4py: &Mpi4py,
    row: &Row,
    collective: Option<(Collective, Comm)>,
    slots: &Slots<'_, 'py>,
) -> PyResult<(Values<'py>, Lent)> {
    let (mut values, mut lent): (Values<'py>, _) = Default::default();
    let roles = collective
        .map(|(collective, comm)| collective::roles(&collective, row.params, comm, slots))
        .transpose()?;
    for ((param, slot), value) in row.params.iter().zip(slots).zip(&mut values) {
        let Some(obj) = slot else { continue };
        let mut side =
            |intents: &[Intent]| side(mpi4py, param.name, obj, intents, roles, &mut lent);
        *value = Some(match param.takes {
            Takes::Sent => side(&[Intent::Send])?,
            Takes::Received => side(&[Intent::Receive])?,
            Takes::Either => side(&[Intent::Receive, Intent::Send])?,
            Takes::Op if obj.is_instance_of::<Avg>() => {
                return Err(pyo3::exceptions::PyValueError::new_err(format!(
                    "{}: dlmpi.AVG has no meaning for a Datatype that reads raw memory",
                    param.name
                )));
            }
            _ => Bound::clone(obj),
        });
    }
    Ok((values, lent))
}

/// One argument of a call in which some argument is raw memory. Without a Datatype of its own it is a tensor
/// all the same: its elements, in words that name it where it has none that MPI knows.
fn side<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    obj: &Bound<'py, PyAny>,
    intents: &[Intent],
    roles: Option<(Role, Role, usize)>,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let Some((send, recv, blocks)) = roles else {
        return memory(mpi4py, name, obj, intents, lent);
    };
    let (role, flow) = match intents {
        [Intent::Send] => (send, Flow::Out),
        [_, _] if send != Role::Absent => (send, Flow::Out),
        _ => (recv, Flow::In),
    };
    if role == Role::Absent {
        // mpi4py does not look at it either.
        return Ok(obj.clone());
    }
    let vector = role == Role::Vector;
    if Spec::unpack(mpi4py, name, obj, vector)?
        .datatype(mpi4py)?
        .is_some()
    {
        return memory(mpi4py, name, obj, intents, lent);
    }
    let division = Division {
        blocks: if role == Role::Whole { 0 } else { blocks },
        vector,
        logical: true,
        message: false,
        to_mpi: Given::AsItLies,
    };
    memory::lend(mpi4py, name, obj, flow, Use::UserOp, division, lent)
}

/// The arguments of a call as they are.
pub fn as_given<'py>(slots: &Slots<'_, 'py>) -> Values<'py> {
    slots.map(|given| given.map(|given| given.to_owned()))
}

/// Calls `real(slf, *values)`: by position as far as they go without a gap, then by name.
///
/// # Errors
/// What it raised.
pub fn invoke<'py>(
    real: &Bound<'py, PyAny>,
    row: &Row,
    slf: &Bound<'py, PyAny>,
    values: Values<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let mut positional: SmallVec<[Bound<'py, PyAny>; 1 + MAX_PARAMS]> = SmallVec::new();
    positional.push(slf.clone());
    let mut keywords = None;
    for (i, (param, value)) in row.params.iter().zip(values).enumerate() {
        let Some(value) = value else { continue };
        if positional.len() == i + 1 {
            positional.push(value);
        } else {
            let keywords = keywords.get_or_insert_with(|| PyDict::new(py));
            keywords.set_item(param.name, value)?;
        }
    }
    real.call(PyTuple::new(py, positional)?, keywords.as_ref())
}

/// The message with its tensor's memory lent, by the first intent that the tensor allows.
///
/// # Errors
/// Why it cannot be lent.
pub fn memory<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    intents: &[Intent],
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let py = msg.py();
    // For the tensor alone; whatever is behind it goes to mpi4py as it is.
    let is_form =
        (msg.is_instance_of::<PyList>() || msg.is_instance_of::<PyTuple>()) && msg.len()? > 0;
    let first = if is_form {
        Some(msg.get_item(0)?)
    } else {
        None
    };
    let tensor = first.as_ref().unwrap_or(msg);
    if mpi4py.is_in_place(tensor) || mpi4py.is_bottom(tensor) {
        return Ok(msg.clone());
    }
    if buffer::has_buffer(tensor) {
        buffer::no_objects(name, tensor)?;
        lent.objects.push(tensor.clone().unbind());
        return Ok(msg.clone());
    }
    let mut refused = None;
    for &intent in intents {
        match Borrowed::new(name, tensor, intent) {
            Ok(buffer) => {
                let buffer = lent.lend(py, buffer)?;
                if !is_form {
                    return Ok(buffer);
                }
                let items: Vec<Bound<'py, PyAny>> = msg.try_iter()?.collect::<PyResult<_>>()?;
                let rest = items.into_iter().skip(1);
                let items = std::iter::once(buffer).chain(rest);
                return PyList::new(py, items.collect::<Vec<_>>()).map(Bound::into_any);
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(crate::errors::unbound))
}
