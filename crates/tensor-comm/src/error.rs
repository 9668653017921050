//! The one error type of this crate. Which Python exception a variant becomes is py-bridge's business.

use device::DeviceError;
use dlpack_core::DoorError;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did not happen, or did not end well.
///
/// Everything but [`Error::Mpi`] is found on the calling rank before MPI is entered: nothing was sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tensor cannot be exported or written: read-only, overlapping, NULL, on an unreachable device.
    #[error("{0}")]
    Buffer(String),
    /// There is no memory for a copy that the call needs.
    #[error("{0}")]
    Memory(String),
    /// An argument is of a kind that this operation does not take.
    #[error("{0}")]
    Type(String),
    /// A count, displacement, dtype or operation that does not fit.
    #[error("{0}")]
    Value(String),
    /// The ranks of a communicator called different things; every rank gets this error. The text says
    /// what each one called.
    #[error("{0}")]
    Mismatch(String),
    /// This process may not communicate now: it was forked, or MPI is finalized, or its thread level is
    /// too low.
    #[error("{0}")]
    State(String),
    /// MPI itself reported an error.
    #[error(transparent)]
    Mpi(#[from] mpi_runtime::Error),
    /// MPI reports a message that is longer than its room (`MPI_ERR_TRUNCATE`); in words which room.
    #[error("{error} ({words})")]
    Truncated {
        /// What MPI reports.
        error: mpi_runtime::Error,
        /// What the room was, and what to do.
        words: String,
    },
    /// What this rank refused in a collective that was checked: every rank learned of it, and none waits.
    #[error(transparent)]
    Told(Box<Error>),
    /// The device's driver reported an error.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    /// The same, known to every rank.
    pub(crate) fn told(self) -> Error {
        match self {
            Error::Told(_) => self,
            other => Error::Told(Box::new(other)),
        }
    }
}

impl From<DoorError> for Error {
    fn from(error: DoorError) -> Self {
        Error::Buffer(error.to_string())
    }
}

/// A [`Error::Value`] from a format string.
macro_rules! value_error {
    ($($arg:tt)*) => { $crate::error::Error::Value(format!($($arg)*)) };
}
/// A [`Error::Buffer`] from a format string.
macro_rules! buffer_error {
    ($($arg:tt)*) => { $crate::error::Error::Buffer(format!($($arg)*)) };
}
pub(crate) use {buffer_error, value_error};
