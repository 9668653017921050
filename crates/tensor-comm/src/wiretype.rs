//! Which MPI datatype carries a dtype.
//!
//! A dtype with an arithmetic meaning in MPI has its basic type. Anything else is moved as unsigned
//! integers of its size, so that `Get_count` on the receiver counts elements, or as bytes where no
//! integer has that size. Nothing here is ever used to reduce as bytes.

use dlpack_core::DType;
use mpi_runtime::{Basic, Datatype, Family, Mpi};

use crate::error::{Result, buffer_error};

/// How one element travels: `units` elements of `datatype`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireType {
    pub datatype: Datatype,
    pub units: usize,
    /// Bytes of one element.
    pub bytes: usize,
}

/// The basic MPI type with the same meaning, by the C name that mpi4py uses, since the caller's own
/// operations are shown it. (`long` has 64 bits on every platform of this project.)
pub(crate) fn basic(dtype: DType) -> Option<Basic> {
    Some(match dtype {
        DType::BOOL => Basic::CBool,
        DType::I8 => Basic::SignedChar,
        DType::I16 => Basic::Short,
        DType::I32 => Basic::Int,
        DType::I64 => Basic::Long,
        DType::U8 => Basic::UnsignedChar,
        DType::U16 => Basic::UnsignedShort,
        DType::U32 => Basic::Unsigned,
        DType::U64 => Basic::UnsignedLong,
        DType::F32 => Basic::Float,
        DType::F64 => Basic::Double,
        DType::LONG_DOUBLE => Basic::LongDouble,
        DType::C64 => Basic::CFloatComplex,
        DType::C128 => Basic::CDoubleComplex,
        DType::COMPLEX_LONG_DOUBLE => Basic::CLongDoubleComplex,
        _ => return None,
    })
}

/// The natural basic MPI datatype of a dtype; `None` for those that MPI does not know (`bfloat16`,
/// `float16`, `float8_*`, vectors, raw bytes).
pub fn mpi_datatype(mpi: &Mpi, dtype: DType) -> Option<Datatype> {
    mpi.datatype(basic(dtype)?)
}

/// How elements of this dtype travel.
pub(crate) fn wire_type(mpi: &Mpi, dtype: DType, itemsize: usize) -> Result<WireType> {
    if let Some(datatype) = mpi_datatype(mpi, dtype) {
        return Ok(WireType {
            datatype,
            units: 1,
            bytes: itemsize,
        });
    }
    let (carrier, unit) = match itemsize {
        1 => (Basic::Uint8, 1),
        2 => (Basic::Uint16, 2),
        4 => (Basic::Uint32, 4),
        8 => (Basic::Uint64, 8),
        _ => (Basic::Byte, 1),
    };
    let datatype = mpi
        .datatype(carrier)
        .ok_or_else(|| buffer_error!("this MPI library has no datatype that can carry {dtype}"))?;
    Ok(WireType {
        datatype,
        units: itemsize / unit,
        bytes: itemsize,
    })
}

/// The MPI datatype by which elements of a dtype are received, and how many of it are one element.
///
/// # Errors
/// [`crate::Error::Buffer`] when the library has none.
pub fn receiver(mpi: &Mpi, dtype: DType, itemsize: usize) -> Result<(Datatype, usize)> {
    receiving_type(mpi, dtype, itemsize).map(|wire| (wire.datatype, wire.units))
}

/// The MPI datatype that carries a dtype, and how many of it are one element.
///
/// # Errors
/// [`crate::Error::Buffer`] when the library has none.
pub fn carrier(mpi: &Mpi, dtype: DType, itemsize: usize) -> Result<(Datatype, usize)> {
    wire_type(mpi, dtype, itemsize).map(|wire| (wire.datatype, wire.units))
}

/// How a message of elements of this dtype is received.
///
/// MPICH 5.0.2 ends the process by an assertion when a message that is no whole number of the receive's datatype
/// comes after it; as bytes it is received, and judged by its status (`fits.rs`). No library of this family
/// compares the datatypes of the two sides.
///
/// # Errors
/// [`crate::Error::Buffer`] when the library has no datatype for it.
pub(crate) fn receiving_type(mpi: &Mpi, dtype: DType, itemsize: usize) -> Result<WireType> {
    match mpi.family() {
        Family::Mpich => Ok(WireType {
            datatype: byte(mpi),
            units: itemsize,
            bytes: itemsize,
        }),
        _ => moving_type(mpi, dtype, itemsize),
    }
}

/// How elements of this dtype travel where nothing is combined.
pub(crate) fn moving_type(mpi: &Mpi, dtype: DType, itemsize: usize) -> Result<WireType> {
    // MPICH 5.0.2 fails in the inner nodes of its gather tree with the complex type; the same bytes as two
    // long doubles go through.
    match (dtype, mpi.datatype(Basic::LongDouble)) {
        (DType::COMPLEX_LONG_DOUBLE, Some(datatype)) => Ok(WireType {
            datatype,
            units: 2,
            bytes: itemsize,
        }),
        _ => wire_type(mpi, dtype, itemsize),
    }
}

/// `MPI_BYTE`: for arguments that describe nothing, and for measuring messages.
pub(crate) fn byte(mpi: &Mpi) -> Datatype {
    mpi.datatype(Basic::Byte)
        .unwrap_or_else(|| mpi.datatype_null())
}
