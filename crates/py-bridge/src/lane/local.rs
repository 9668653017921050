//! The short way of what concerns nobody else: packing and `Reduce_local` of few elements in plain arrays. The interpreter
//! is held meanwhile, which costs others less than to give it away and to ask for it again.

use pyo3::ffi;
use pyo3::prelude::*;
use tensor_comm::lane::{self, Flat};
use tensor_comm::{Comm, DType, Flow, Op};

use crate::collective;
use crate::errors;
use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::params::Slots;
use crate::plain;
use crate::registry;

/// `Datatype.Pack` and `Unpack`: the position behind.
#[inline]
pub fn pack(
    mpi4py: &'static Mpi4py,
    elements: Flow,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> Option<PyResult<Py<PyAny>>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let packing = elements == Flow::Out;
    let (inner, outer, position) = if packing { (0, 1, 2) } else { (2, 0, 1) };
    let (read, written) = (Intent::Send, Intent::Receive);
    let intents = if packing {
        (read, written)
    } else {
        (written, read)
    };
    let comm = Comm::new(mpi, mpi4py.comm(slots[3].as_ref()?).ok()?).ok()?;
    let flat = registry::flat(slots[inner].as_ref()?, intents.0)?;
    let room = bytes(slots[outer].as_ref()?, intents.1)?;
    let datatype = mpi4py.known_datatype(slf)?;
    let position = plain::int(slots[position].as_ref()?)?;
    let own = tensor_comm::mpi_datatype(mpi, flat.dtype)? == datatype;
    if !own || !lane::is_small(&flat) || flat.meets(&room) || position < 0 {
        return None;
    }
    let (count, length) = (
        i32::try_from(flat.count).ok()?,
        i32::try_from(room.count).ok()?,
    );
    let size = mpi.pack_size(count, datatype, comm.raw()).ok()?;
    if position.checked_add(size)? > length {
        return None;
    }
    // SAFETY:
    // - the caller holds both, and nobody changes them while this thread is attached; what is packed fits.
    let done = unsafe {
        match packing {
            true => mpi.pack(
                flat.data,
                count,
                datatype,
                room.data,
                length,
                position,
                comm.raw(),
            ),
            false => mpi.unpack(
                room.data,
                length,
                position,
                flat.data,
                count,
                datatype,
                comm.raw(),
            ),
        }
    };
    let position = done.map_err(|error| errors::mpi(py, &error));
    Some(position.and_then(|position| Ok(position.into_pyobject(py)?.into_any().unbind())))
}

/// The bytes of a `bytearray`, of `bytes` that are read, or of a plain array.
#[inline]
fn bytes(given: &Bound<'_, PyAny>, intent: Intent) -> Option<Flat> {
    let object = given.as_ptr();
    let plain = |data: *mut std::ffi::c_char, size: ffi::Py_ssize_t| {
        let count = usize::try_from(size).ok()?;
        Some(Flat {
            data: data.cast(),
            count,
            dtype: DType::U8,
        })
    };
    // SAFETY:
    // - any object may be asked for its type; the other functions are for the type that was found.
    unsafe {
        if ffi::PyByteArray_CheckExact(object) != 0 {
            return plain(
                ffi::PyByteArray_AsString(object),
                ffi::PyByteArray_Size(object),
            );
        }
        if intent == Intent::Send && ffi::PyBytes_CheckExact(object) != 0 {
            return plain(ffi::PyBytes_AsString(object), ffi::PyBytes_Size(object));
        }
    }
    let flat = registry::flat(given, intent)?;
    Some(Flat {
        count: flat.bytes(),
        dtype: DType::U8,
        ..flat
    })
}

/// `Op.Reduce_local`.
#[inline]
pub fn reduce(
    mpi4py: &'static Mpi4py,
    slf: &Bound<'_, PyAny>,
    slots: &Slots<'_, '_>,
) -> Option<tensor_comm::Result<()>> {
    let mpi = mpi4py.mpi();
    tensor_comm::attend(mpi).ok()?;
    let input = registry::flat(slots[0].as_ref()?, Intent::Send)?;
    let inout = registry::flat(slots[1].as_ref()?, Intent::Receive)?;
    let Op::Builtin(op) = collective::operation(mpi4py, "op", Some(slf)).ok()? else {
        return None;
    };
    // SAFETY:
    // - the caller holds both arrays, and nobody changes them while this thread is attached.
    unsafe { lane::reduce_local(mpi, input, inout, op) }
}
