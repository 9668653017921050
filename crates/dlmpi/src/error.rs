//! The one error type, which says which ranks know of it.

use std::fmt;

/// Result of this crate.
///
/// ```
/// fn mean(comm: &dlmpi::Comm<'_>, mut x: f64) -> dlmpi::Result<f64> {
///     comm.all_reduce(&mut x, dlmpi::Op::Avg)?;
///     Ok(x)
/// }
///
/// let universe = dlmpi::initialize()?;
/// assert_eq!(mean(&universe.world(), 2.5)?, 2.5);
/// # Ok::<(), dlmpi::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong.
///
/// ```
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let mut mean = 3i32;
/// let error = world.all_reduce(&mut mean, dlmpi::Op::Avg).unwrap_err(); // integers have none
/// assert_eq!(error.kind(), dlmpi::ErrorKind::Argument);
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No MPI library could be used.
    Library,
    /// A tensor cannot be lent or written: no plain memory, elements that share memory, an unreachable device.
    Tensor,
    /// A rank, tag, count, dtype or operation that does not fit.
    Argument,
    /// The ranks called different things; the text says what each one called.
    Mismatch,
    /// This process or thread may not communicate now: MPI is finalised, its thread level is too low, the process
    /// was forked.
    State,
    /// MPI reported an error.
    Mpi {
        /// What the call returned.
        code: i32,
        /// Its class, in the numbering of the loaded library.
        class: i32,
    },
    /// A device's driver reported an error.
    Device,
    /// A result that was not `Ok` on some rank, told to all by [`crate::Comm::agree`].
    Agreed,
}

/// Which ranks know of an error.
///
/// ```
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let error = world.agree::<(), _>(Err("no file")).unwrap_err();
/// assert_eq!(error.known_to(), dlmpi::KnownTo::EveryRank);
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownTo {
    /// This one, surely. It was found before MPI was entered, in a message or in a collective that was not checked: the
    /// other ranks wait.
    ThisRank,
    /// Every rank of the communicator has an error from the same call, and none is left waiting: this one, or, of
    /// what this rank refused in a collective that was checked, an [`ErrorKind::Mismatch`] that tells of it.
    EveryRank,
    /// Nobody can tell: MPI reported it here.
    Unknown,
}

/// Why an operation did not happen, or did not end well.
///
/// ```
/// use dlmpi::{ErrorKind, KnownTo};
///
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let error = world.send(&1.5f32, 99, 0).unwrap_err();
/// assert_eq!((error.kind(), error.known_to()), (ErrorKind::Argument, KnownTo::ThisRank));
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    known_to: KnownTo,
    text: String,
}

impl Error {
    /// An error of a tensor, for implementations of [`crate::Tensor`].
    ///
    /// ```
    /// let error = dlmpi::Error::tensor("the image was never decoded");
    /// assert_eq!(error.kind(), dlmpi::ErrorKind::Tensor);
    /// assert_eq!(error.to_string(), "the image was never decoded");
    /// ```
    pub fn tensor(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Tensor, KnownTo::ThisRank, text)
    }

    pub(crate) fn new(kind: ErrorKind, known_to: KnownTo, text: impl Into<String>) -> Error {
        Error {
            kind,
            known_to,
            text: text.into(),
        }
    }

    pub(crate) fn argument(text: String) -> Error {
        Error::new(ErrorKind::Argument, KnownTo::ThisRank, text)
    }

    pub(crate) fn state(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::State, KnownTo::ThisRank, text)
    }

    /// What kind of thing went wrong.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let error = universe.world().recv(&mut [0u8; 4], -3, 0).unwrap_err();
    /// assert_eq!(error.kind(), dlmpi::ErrorKind::Argument);
    /// assert!(error.to_string().starts_with("source: -3, expected a rank from 0"));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Which ranks know.
    ///
    /// ```
    /// use dlmpi::KnownTo;
    ///
    /// /// Whether the other ranks go on to the next step, too.
    /// fn may_go_on(error: &dlmpi::Error) -> bool {
    ///     error.known_to() == KnownTo::EveryRank
    /// }
    ///
    /// let universe = dlmpi::initialize()?;
    /// let error = universe.world().send(&1u8, 0, -5).unwrap_err();
    /// assert!(!may_go_on(&error)); // whoever waits for the message does not know
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn known_to(&self) -> KnownTo {
        self.known_to
    }

    /// This error of a refused collective, once `tensor-comm` has told the other ranks where the call was checked.
    pub(crate) fn after(self, told: tensor_comm::Error) -> Error {
        match told {
            tensor_comm::Error::Told(_) => Error {
                known_to: KnownTo::EveryRank,
                ..self
            },
            error @ tensor_comm::Error::Mpi(_) => error.into(),
            _ => self,
        }
    }

    /// As `tensor-comm` takes it, to tell the other ranks.
    pub(crate) fn as_refusal(&self) -> tensor_comm::Error {
        let text = self.text.clone();
        match self.kind {
            ErrorKind::Tensor => tensor_comm::Error::Buffer(text),
            ErrorKind::Argument => tensor_comm::Error::Value(text),
            _ => tensor_comm::Error::State(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    /// What a `main` that returns it prints: the words first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({:?}, known to: {:?})",
            self.text, self.kind, self.known_to
        )
    }
}

impl std::error::Error for Error {}

impl From<dlpack_core::DoorError> for Error {
    fn from(error: dlpack_core::DoorError) -> Error {
        Error::tensor(error.to_string())
    }
}

impl From<mpi_runtime::LoadError> for Error {
    fn from(error: mpi_runtime::LoadError) -> Error {
        Error::new(ErrorKind::Library, KnownTo::ThisRank, error.to_string())
    }
}

impl From<mpi_runtime::Error> for Error {
    fn from(error: mpi_runtime::Error) -> Error {
        let (kind, known_to) = match error.mpi() {
            Some(mpi) => {
                let (code, class) = (mpi.code, mpi.class);
                (ErrorKind::Mpi { code, class }, KnownTo::Unknown)
            }
            None => (ErrorKind::Argument, KnownTo::ThisRank),
        };
        Error::new(kind, known_to, error.to_string())
    }
}

impl From<tensor_comm::Error> for Error {
    fn from(error: tensor_comm::Error) -> Error {
        use tensor_comm::Error as E;
        let text = error.to_string();
        let (kind, known_to) = match error {
            E::Mpi(error) => return error.into(),
            E::Told(error) => {
                return Error {
                    known_to: KnownTo::EveryRank,
                    ..Error::from(*error)
                };
            }
            E::Truncated { error, .. } => {
                let kind = error.mpi().map_or(ErrorKind::State, |mpi| ErrorKind::Mpi {
                    code: mpi.code,
                    class: mpi.class,
                });
                (kind, KnownTo::ThisRank)
            }
            E::Mismatch(_) => (ErrorKind::Mismatch, KnownTo::EveryRank),
            E::Buffer(_) | E::Memory(_) => (ErrorKind::Tensor, KnownTo::ThisRank),
            E::Type(_) | E::Value(_) => (ErrorKind::Argument, KnownTo::ThisRank),
            E::Device(_) => (ErrorKind::Device, KnownTo::ThisRank),
            _ => (ErrorKind::State, KnownTo::ThisRank),
        };
        Error::new(kind, known_to, text)
    }
}
