//! What goes wrong when MPI is looked for, and when it is called.

use crate::Mpi;
use thiserror::Error;

/// An MPI call returned something other than `MPI_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiError {
    /// The code that the call returned: what mpi4py's `MPI.Exception` takes.
    pub code: i32,
    /// Its class (`MPI_Error_class`), in the loaded library's numbering: compare with
    /// [`Mpi::constants`], since classes are numbered differently per ABI.
    pub class: i32,
    /// The MPI function that returned it.
    pub call: &'static str,
}

impl MpiError {
    /// The library's own words for [`code`](Self::code) (`MPI_Error_string`).
    pub fn text(&self) -> String {
        Mpi::global()
            .and_then(|mpi| mpi.error_text(self.code))
            .unwrap_or_else(|| format!("MPI error code {}", self.code))
    }
}

impl std::fmt::Display for MpiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} (error code {}, class {})",
            self.call,
            self.text(),
            self.code,
            self.class
        )
    }
}

impl std::error::Error for MpiError {}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI reports it.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// MPI was not entered: the loaded library has no large-count form of this function.
    #[error(
        "{call}: {argument} is {value}, but this MPI library takes at most {limit} (it has no {call}_c); \
         use a derived datatype or several calls"
    )]
    CountTooLarge {
        /// The MPI function.
        call: &'static str,
        /// The argument that does not fit.
        argument: &'static str,
        /// Its value.
        value: i64,
        /// The largest value that fits.
        limit: i64,
    },
}

impl Error {
    /// What MPI reported, if it was MPI.
    pub fn mpi(&self) -> Option<&MpiError> {
        match self {
            Error::Mpi(error) => Some(error),
            Error::CountTooLarge { .. } => None,
        }
    }
}

/// No MPI can be used in this process.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The extension module is not in the process.
    #[error("{module} is not loaded in this process ({detail}): import mpi4py.MPI first")]
    ModuleNotLoaded {
        /// The path given.
        module: String,
        /// What the dynamic linker says.
        detail: String,
    },
    /// No MPI symbol where we looked.
    #[error(
        "no MPI library found in {looked_in}: MPI_Allreduce is not defined there; load or link an MPI library first, or name one"
    )]
    NoMpi {
        /// Where.
        looked_in: String,
    },
    /// The library could not be opened.
    #[error(
        "cannot open an MPI library: {detail}; give the path of a libmpi, or install one (for example the `mpich` package of PyPI)"
    )]
    CannotOpen {
        /// What the dynamic linker says, for every name tried.
        detail: String,
    },
    /// A required function is missing.
    #[error("{library} has no {symbol}; MPI 3.1 or newer is needed, and this is {version}")]
    MissingSymbol {
        /// The file of the library.
        library: String,
        /// The C name.
        symbol: String,
        /// The library's version text.
        version: String,
    },
    /// The library does not say which one it is.
    #[error(
        "{library}: MPI_Get_library_version failed with error code {code}, so its ABI is not known and it is not called; \
         check that installation of MPI"
    )]
    NoVersion {
        /// The file of the library.
        library: String,
        /// What the function returned.
        code: i32,
    },
    /// Neither MPICH, Open MPI nor the standard ABI.
    #[error(
        "{library} calls itself {version:?}: its ABI is not known (known: MPICH and Intel MPI, MVAPICH, Cray MPICH, ParaStation; \
         Open MPI; the MPI 5 standard ABI); calling it could corrupt memory, so it is refused. Use one of these, or an MPI built with the standard ABI"
    )]
    UnknownAbi {
        /// The file of the library.
        library: String,
        /// The library's version text.
        version: String,
    },
    /// The caller's view of MPI and ours are of different ABIs.
    #[error(
        "{what} is {found} in the MPI that was found ({library}, {family} ABI, by way of {how}), but the caller's MPI says {expected}: \
         two different MPI libraries are in this process; start it with one (LD_PRELOAD, MPI4PY_LIBMPI or a linked libmpi may name the other)"
    )]
    Mismatch {
        /// What was compared.
        what: &'static str,
        /// Ours.
        found: i64,
        /// The caller's.
        expected: i64,
        /// The file of our library.
        library: String,
        /// Its family.
        family: &'static str,
        /// How it was found.
        how: String,
    },
    /// Another library is in use already.
    #[error(
        "{loaded} is already in use in this process, and {asked} is another MPI: one process can use one MPI only"
    )]
    AlreadyLoaded {
        /// The file in use.
        loaded: String,
        /// The file asked for.
        asked: String,
    },
}
