//! [`Mpi`]: the one loaded library of this process, and what can be told about it without calling it.

mod load;

use crate::abi::{Abi, Family, Special};
use crate::basic::{Basic, BuiltinOp};
use crate::constants::Constants;
use crate::error::LoadError;
use crate::find;
use crate::gpu::Queries;
use crate::handle::{Comm, Datatype, Errhandler, Group, Message, Op, Request};
use crate::table::Table;
use libc::c_int;
use std::path::Path;
use std::sync::OnceLock;

static GLOBAL: OnceLock<Mpi> = OnceLock::new();

/// The MPI library of this process: a table of its functions, with one method for each.
///
/// It is found once and lives as long as the process. Its methods are named like MPI's functions,
/// in snake case and with the same arguments; results that C returns through pointers are returned.
#[derive(Debug)]
pub struct Mpi {
    pub(crate) table: AnyTable,
    pub(crate) queries: Queries,
    family: Family,
    how: String,
    path: String,
    version: String,
    identity: usize,
    special: [u64; Special::ALL.len()],
    datatypes: Vec<Option<u64>>,
    ops: Vec<u64>,
}

/// The table by the width of the library's handles.
pub(crate) enum AnyTable {
    Int(Table<c_int>),
    Pointer(Table<usize>),
}

impl std::fmt::Debug for AnyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AnyTable::Int(_) => "handles are C ints",
            AnyTable::Pointer(_) => "handles are pointers",
        })
    }
}

impl Mpi {
    /// The library, if one has been loaded.
    #[inline]
    pub fn global() -> Option<&'static Mpi> {
        GLOBAL.get()
    }

    /// Takes the MPI that an extension module of this process (mpi4py's) uses: what the global scope
    /// has, else what the module depends on. Calling it again gives the same result.
    ///
    /// # Errors
    /// - [`LoadError`]: the module is not loaded, there is no MPI behind it, or an unknown one.
    pub fn load_from_module(extension_path: &Path) -> Result<&'static Mpi, LoadError> {
        load::install(|| find::behind_module(extension_path))
    }

    /// Takes the MPI that is in the global scope of the process: the one that the program links.
    ///
    /// # Errors
    /// - [`LoadError`]: there is none, or an unknown one.
    pub fn load_global() -> Result<&'static Mpi, LoadError> {
        load::install(find::in_process)
    }

    /// Opens an MPI library: the named one, or, with `None`, what the process has already, else the
    /// first of the usual names (Open MPI's first under its own launcher).
    ///
    /// # Errors
    /// - [`LoadError`]: none can be opened, it is an unknown one, or another MPI is in use already.
    pub fn open(path: Option<&Path>) -> Result<&'static Mpi, LoadError> {
        if path.is_none()
            && let Some(mpi) = Mpi::global()
        {
            return Ok(mpi);
        }
        load::install(|| find::by_opening(path))
    }

    /// Compares with what another user of the same MPI (mpi4py) says of it: the bytes of a handle and of
    /// an `MPI_Status`, and the number behind `MPI_IN_PLACE`.
    ///
    /// # Errors
    /// - [`LoadError::Mismatch`]: they differ, so two different MPI libraries are in the process.
    pub fn cross_check(
        &self,
        handle_bytes: usize,
        status_bytes: usize,
        in_place: isize,
    ) -> Result<(), LoadError> {
        let rows = [
            (
                "the size of a handle",
                self.handle_bytes() as i64,
                handle_bytes as i64,
            ),
            (
                "the size of an MPI_Status",
                self.status_bytes() as i64,
                status_bytes as i64,
            ),
            (
                "MPI_IN_PLACE",
                self.abi().in_place as isize as i64,
                in_place as i64,
            ),
        ];
        for (what, found, expected) in rows {
            if found != expected {
                return Err(LoadError::Mismatch {
                    what,
                    found,
                    expected,
                    library: self.path.clone(),
                    family: self.family.name(),
                    how: self.how.clone(),
                });
            }
        }
        Ok(())
    }

    /// The library's ABI.
    pub fn family(&self) -> Family {
        self.family
    }

    /// `MPI_Get_library_version`, all of it; MPICH's has several lines.
    pub fn library_version(&self) -> &str {
        &self.version
    }

    /// The file that `MPI_Allreduce` is in.
    pub fn library_path(&self) -> &str {
        &self.path
    }

    /// Where it was found, in words.
    pub fn how_found(&self) -> &str {
        &self.how
    }

    /// Whether the library has MPI 4's large-count functions (`MPI_Send_c`, ...). Without them a count above
    /// `i32::MAX` is [`Error::CountTooLarge`](crate::Error::CountTooLarge).
    pub fn has_large_counts(&self) -> bool {
        match &self.table {
            AnyTable::Int(table) => table.send_c.is_some() && table.allreduce_c.is_some(),
            AnyTable::Pointer(table) => table.send_c.is_some() && table.allreduce_c.is_some(),
        }
    }

    /// Bytes of a native handle.
    pub fn handle_bytes(&self) -> usize {
        self.family.handle_bytes()
    }

    /// Bytes of an `MPI_Status`.
    pub fn status_bytes(&self) -> usize {
        self.abi().status.bytes
    }

    /// `MPI_IN_PLACE`.
    #[inline]
    pub fn in_place(&self) -> *const u8 {
        std::ptr::without_provenance(self.abi().in_place)
    }

    /// The integer constants of the library.
    #[inline]
    pub fn constants(&self) -> &'static Constants {
        &self.abi().constants
    }

    #[inline]
    pub(crate) fn abi(&self) -> &'static Abi {
        self.family.abi()
    }

    /// A predefined datatype; `None` if the library has none of this name.
    #[inline]
    pub fn datatype(&self, basic: Basic) -> Option<Datatype> {
        self.datatypes
            .get(basic as usize)
            .copied()
            .flatten()
            .map(Datatype::from_bits)
    }

    /// Which predefined datatype a handle is. Of several names of one datatype, the first.
    pub fn basic(&self, datatype: Datatype) -> Option<Basic> {
        Basic::ALL
            .iter()
            .copied()
            .find(|basic| self.datatype(*basic) == Some(datatype))
    }

    /// A predefined operation.
    #[inline]
    pub fn op(&self, op: BuiltinOp) -> Op {
        Op::from_bits(self.ops[op as usize])
    }

    /// Which predefined operation a handle is.
    pub fn builtin_op(&self, op: Op) -> Option<BuiltinOp> {
        BuiltinOp::ALL
            .iter()
            .copied()
            .find(|builtin| self.op(*builtin) == op)
    }

    #[inline]
    pub(crate) fn special(&self, name: Special) -> u64 {
        self.special[name as usize]
    }
}

macro_rules! predefined {
    ($($method:ident: $kind:ident = $special:ident, $mpi:literal;)*) => {
        impl Mpi { $(
            #[doc = concat!("`", $mpi, "`")]
            #[inline]
            pub fn $method(&self) -> $kind {
                $kind::from_bits(self.special(Special::$special))
            }
        )* }
    };
}

predefined! {
    comm_null: Comm = CommNull, "MPI_COMM_NULL";
    comm_world: Comm = CommWorld, "MPI_COMM_WORLD";
    comm_self: Comm = CommSelf, "MPI_COMM_SELF";
    datatype_null: Datatype = DatatypeNull, "MPI_DATATYPE_NULL";
    op_null: Op = OpNull, "MPI_OP_NULL";
    request_null: Request = RequestNull, "MPI_REQUEST_NULL";
    group_null: Group = GroupNull, "MPI_GROUP_NULL";
    group_empty: Group = GroupEmpty, "MPI_GROUP_EMPTY";
    errhandler_null: Errhandler = ErrhandlerNull, "MPI_ERRHANDLER_NULL";
    errors_return: Errhandler = ErrorsReturn, "MPI_ERRORS_RETURN";
    errors_are_fatal: Errhandler = ErrorsAreFatal, "MPI_ERRORS_ARE_FATAL";
    message_null: Message = MessageNull, "MPI_MESSAGE_NULL";
    message_no_proc: Message = MessageNoProc, "MPI_MESSAGE_NO_PROC";
}
