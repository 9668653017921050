//! What the caller's `MPI.Datatype` means for a tensor: its natural type under some name, another
//! reading of its memory, or a mistake. Knows no message form.

use std::sync::OnceLock;

use dlpack_core::{DType, TypeCode};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensor_comm::Op;

use crate::mpi4py::Mpi4py;
use crate::typestr;

/// What will be done with the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// They are moved.
    Move,
    /// They are combined by an operation that dlmpi knows.
    Reduce,
    /// They are combined by the caller's own operation, which is given the caller's own Datatype.
    UserOp,
}

impl Use {
    /// What an operation, if there is one, does with them.
    pub(crate) fn by(op: Option<Op>) -> Use {
        match op {
            None => Use::Move,
            Some(Op::Native(_)) => Use::UserOp,
            Some(_) => Use::Reduce,
        }
    }
}

/// How a Datatype reads a tensor's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// As what it is: counts are elements, our path.
    Natural,
    /// As raw memory, the way mpi4py does.
    Raw,
}

/// What a named MPI datatype is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    /// A number of this type, under whatever name.
    Number(DType),
    /// One byte without a meaning: `BYTE`, `PACKED`, `CHAR`.
    Byte,
}

/// Datatypes that are bytes by their name, whatever type string mpi4py gives them.
const BYTES: [&str; 4] = ["BYTE", "PACKED", "CHAR", "CHARACTER"];

static NAMED: OnceLock<Vec<(u64, Named)>> = OnceLock::new();

/// The `MPI.Datatype` that a message names: itself, or mpi4py's for a type string.
///
/// # Errors
/// `KeyError` for a string that mpi4py does not know; `ValueError` for a null handle, at which MPICH 5.0.2 ends the process
/// in some calls.
pub fn resolve<'py>(mpi4py: &Mpi4py, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if given.is_instance_of::<PyString>() {
        return match mpi4py.typedict(given.py()).get_item(given)? {
            Some(datatype) => Ok(datatype),
            None => Err(PyKeyError::new_err(format!(
                "cannot map {} to MPI datatype",
                given.repr()?
            ))),
        };
    }
    if mpi4py.is_datatype(given) && mpi4py.datatype(given)? == mpi4py.mpi().datatype_null() {
        return Err(PyValueError::new_err(
            "the Datatype of a message is DATATYPE_NULL, or was freed",
        ));
    }
    Ok(given.clone())
}

/// The element type of a named Datatype, for a message without a tensor (`[None, 0, MPI.INT]`).
///
/// # Errors
/// What mpi4py raised.
pub fn element(mpi4py: &Mpi4py, datatype: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    Ok(match find(mpi4py, datatype)? {
        Some(Named::Number(dtype)) => Some(dtype),
        Some(Named::Byte) => Some(DType::U8),
        None => None,
    })
}

/// How `datatype` reads elements of `dtype`.
///
/// # Errors
/// `ValueError` when a reduction would combine the wrong bits.
pub fn reading(
    mpi4py: &Mpi4py,
    name: &str,
    dtype: DType,
    datatype: &Bound<'_, PyAny>,
    usage: Use,
) -> PyResult<Reading> {
    let named = match usage {
        Use::UserOp => None,
        _ => find(mpi4py, datatype)?,
    };
    let Some(named) = named else {
        return Ok(Reading::Raw);
    };
    judge(dtype, named, usage).map_err(|kind| {
        PyValueError::new_err(format!(
            "{name}: a reduction of {dtype} elements as {kind} would combine the wrong bits; leave the Datatype out, or give the one of {dtype}"
        ))
    })
}

/// The rule behind [`reading`]; the error names the Datatype's kind.
fn judge(dtype: DType, named: Named, usage: Use) -> Result<Reading, String> {
    let one_byte = dtype.itemsize() == Some(1);
    let kind = match named {
        Named::Number(number) if number == dtype => return Ok(Reading::Natural),
        Named::Byte if one_byte => return Ok(Reading::Natural),
        Named::Number(number) => number.to_string(),
        Named::Byte => "bytes".to_owned(),
    };
    let lawful = match (usage, named) {
        (Use::Move | Use::UserOp, _) => true,
        (Use::Reduce, Named::Byte) => false,
        (Use::Reduce, Named::Number(number)) => {
            // A store of bytes has no kind of its own; a complex number is two reals; the sign of an
            // integer is in the reading.
            (one_byte && (dtype.is_int() || dtype.is_bool()))
                || dtype.code == TypeCode::RAW
                || real_part(dtype) == Some(number)
                || (dtype.is_int() && number.is_int() && dtype.bits == number.bits)
                // DLPack has one code for every 128-bit float; only the Datatype tells which it is.
                || QUADS.contains(&(dtype, number))
        }
    };
    if lawful { Ok(Reading::Raw) } else { Err(kind) }
}

/// 128-bit floats of unknown kind and pairs of them, as DLPack has them, and what they may be here.
const QUADS: [(DType, DType); 2] = [
    (DType::new(TypeCode::FLOAT, 128, 1), DType::LONG_DOUBLE),
    (
        DType::new(TypeCode::FLOAT, 128, 2),
        DType::COMPLEX_LONG_DOUBLE,
    ),
];

fn real_part(dtype: DType) -> Option<DType> {
    match dtype {
        DType::C32 => Some(DType::F16),
        DType::C64 => Some(DType::F32),
        DType::C128 => Some(DType::F64),
        DType::COMPLEX_LONG_DOUBLE => Some(DType::LONG_DOUBLE),
        _ => None,
    }
}

fn find(mpi4py: &Mpi4py, datatype: &Bound<'_, PyAny>) -> PyResult<Option<Named>> {
    let handle = mpi4py.datatype(datatype)?.raw();
    let table = match NAMED.get() {
        Some(table) => table,
        None => {
            let table = table(mpi4py, datatype.py())?;
            NAMED.get_or_init(|| table)
        }
    };
    Ok(table.iter().find(|row| row.0 == handle).map(|row| row.1))
}

/// Every named datatype that mpi4py knows, Fortran's included, by its type string. Pairs of value and
/// index have none of a number.
fn table(mpi4py: &Mpi4py, py: Python<'_>) -> PyResult<Vec<(u64, Named)>> {
    let mut table = Vec::new();
    for (name, value) in mpi4py.module(py).dict() {
        if !mpi4py.is_datatype(&value) || !value.is_truthy()? {
            continue;
        }
        let handle = mpi4py.datatype(&value)?.raw();
        let name: String = name.extract()?;
        if BYTES.contains(&name.as_str()) {
            table.insert(0, (handle, Named::Byte));
            continue;
        }
        let text: Option<String> = value.getattr("typestr")?.extract()?;
        let number = text.and_then(|text| typestr::parse(&text).ok());
        if let Some(dtype) = number.filter(|dtype| dtype.code != TypeCode::RAW) {
            table.push((handle, Named::Number(dtype)));
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(dtype: DType) -> Named {
        Named::Number(dtype)
    }

    #[test]
    fn the_same_kind_and_size_is_natural_whatever_the_use() {
        for usage in [Use::Move, Use::Reduce] {
            assert_eq!(
                judge(DType::F64, number(DType::F64), usage),
                Ok(Reading::Natural)
            );
            assert_eq!(judge(DType::U8, Named::Byte, usage), Ok(Reading::Natural));
        }
    }

    #[test]
    fn any_reading_may_move() {
        assert_eq!(
            judge(DType::F64, number(DType::F32), Use::Move),
            Ok(Reading::Raw)
        );
        assert_eq!(judge(DType::F64, Named::Byte, Use::Move), Ok(Reading::Raw));
        assert_eq!(
            judge(DType::BF16, number(DType::U16), Use::Move),
            Ok(Reading::Raw)
        );
    }

    #[test]
    fn a_reduction_of_other_bits_is_refused() {
        for (dtype, named) in [
            (DType::F64, number(DType::F32)),
            (DType::BF16, number(DType::F16)),
            (DType::BF16, number(DType::U16)),
            (DType::F32, number(DType::I32)),
            (DType::F32, Named::Byte),
            (DType::I32, number(DType::I64)),
            (DType::F8_E4M3FN, number(DType::U8)),
        ] {
            assert!(
                judge(dtype, named, Use::Reduce).is_err(),
                "{dtype} as {named:?}"
            );
        }
    }

    #[test]
    fn lawful_readings_reduce_as_in_mpi4py() {
        for (dtype, named) in [
            (DType::C128, DType::F64),
            (DType::U8, DType::F64),
            (DType::raw(16), DType::F64),
            (DType::I32, DType::U32),
            (QUADS[1].0, DType::COMPLEX_LONG_DOUBLE),
        ] {
            assert_eq!(
                judge(dtype, number(named), Use::Reduce),
                Ok(Reading::Raw),
                "{dtype}"
            );
        }
    }
}
