//! What differs between the ABI families as data: constants, predefined handles, status layout.
//! Knows no function of MPI; the prototypes are in `table`.

mod mpich;
mod openmpi;
mod standard;

use crate::basic::{Basic, BuiltinOp};
use crate::constants::Constants;
use std::ffi::CStr;

/// The ABI of the loaded library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// MPICH and what shares its ABI: Intel MPI, MVAPICH, Cray MPICH, ParaStation.
    Mpich,
    /// Open MPI's own ABI.
    OpenMpi,
    /// The standard ABI of MPI 5.0 (`libmpi_abi`).
    Abi,
}

impl Family {
    /// The name that mpi4py and others use: `mpich`, `openmpi`, `mpiabi`.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Mpich => "mpich",
            Family::OpenMpi => "openmpi",
            Family::Abi => "mpiabi",
        }
    }

    pub(crate) const fn abi(self) -> &'static Abi {
        match self {
            Family::Mpich => &mpich::ABI,
            Family::OpenMpi => &openmpi::ABI,
            Family::Abi => &standard::ABI,
        }
    }

    /// Bytes of a handle: 4 on MPICH, 8 elsewhere.
    pub const fn handle_bytes(self) -> usize {
        match self {
            Family::Mpich => 4,
            Family::OpenMpi | Family::Abi => 8,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One family's row.
pub(crate) struct Abi {
    /// `MPI_IN_PLACE` as an address.
    pub in_place: usize,
    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE` as an address.
    pub status_ignore: usize,
    pub status: StatusLayout,
    pub constants: Constants,
    pub handle: fn(Special) -> Predefined,
    pub datatype: fn(Basic) -> Predefined,
    pub op: fn(BuiltinOp) -> Predefined,
}

/// Size of `MPI_Status` and the byte offsets of its public fields.
#[derive(Clone, Copy)]
pub(crate) struct StatusLayout {
    pub bytes: usize,
    pub source: usize,
    pub tag: usize,
    pub error: usize,
}

/// Where a predefined handle comes from.
#[derive(Clone, Copy)]
pub(crate) enum Predefined {
    /// The handle is this number.
    Value(u64),
    /// The handle is the address of this symbol.
    Symbol(&'static CStr),
}

/// Predefined handles other than datatypes and operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Special {
    CommNull,
    CommWorld,
    CommSelf,
    DatatypeNull,
    OpNull,
    RequestNull,
    GroupNull,
    GroupEmpty,
    ErrhandlerNull,
    ErrorsReturn,
    ErrorsAreFatal,
    InfoNull,
    MessageNull,
    MessageNoProc,
}

impl Special {
    pub(crate) const ALL: [Special; 14] = [
        Special::CommNull,
        Special::CommWorld,
        Special::CommSelf,
        Special::DatatypeNull,
        Special::OpNull,
        Special::RequestNull,
        Special::GroupNull,
        Special::GroupEmpty,
        Special::ErrhandlerNull,
        Special::ErrorsReturn,
        Special::ErrorsAreFatal,
        Special::InfoNull,
        Special::MessageNull,
        Special::MessageNoProc,
    ];
}
