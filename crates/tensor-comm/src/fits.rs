//! Whether a message fitted the room for it, as its status says, in words that name both and the sender.
//!
//! Libraries do not always report a message that was too long: MPICH 5.0.2 says nothing of one that was
//! there before a receive from any source, Open MPI 5.0.11 nothing where the receive is one half of an
//! `Isendrecv` or is waited for by `Waitall` without statuses. The status is right each time.

use std::fmt;

use dlpack_core::{DType, View};
use mpi_runtime::{Error as MpiCallError, Family, Mpi, MpiError, StatusPtr};

use crate::error::{Error, Result, value_error};
use crate::wiretype::byte;

/// What a receive has room for.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Elements.
    pub elements: usize,
    /// Of this dtype.
    pub dtype: DType,
    /// Bytes of each.
    pub itemsize: usize,
}

impl Capacity {
    /// All of a tensor.
    #[must_use]
    pub fn whole(view: &View) -> Capacity {
        Capacity {
            elements: view.numel(),
            dtype: view.dtype(),
            itemsize: view.itemsize(),
        }
    }

    /// Bytes of all elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements.saturating_mul(self.itemsize)
    }

    /// Raises what was not right about a message that came, whatever MPI said of it.
    ///
    /// # Errors
    /// [`Error::Truncated`] where it was longer than the room, [`Error::Value`] where it is no whole number of
    /// elements.
    pub fn judge(&self, mpi: &Mpi, came: Arrived) -> Result<()> {
        let Some(bytes) = came.bytes else {
            return Ok(());
        };
        if bytes > self.bytes() {
            return Err(self.refuse(truncated(mpi, "MPI_Recv"), came));
        }
        match bytes.checked_rem(self.itemsize) {
            None | Some(0) => Ok(()),
            Some(_) => Err(value_error!(
                "the message of {bytes} bytes that came{came} is no whole number of {} of {} bytes each; receive it \
                 as the dtype that was sent",
                self.dtype,
                self.itemsize
            )),
        }
    }

    /// Says which room was too small for which message, where that is the error.
    #[must_use]
    pub fn explain(&self, mpi: &Mpi, error: Error, came: Arrived) -> Error {
        match error {
            Error::Mpi(inner) if is_truncated(mpi, &inner) => self.refuse(inner, came),
            other => other,
        }
    }

    /// In words: `came` was longer than the room. What MPI cut off has the length of the room in its status.
    #[must_use]
    pub fn too_long(&self, came: Arrived) -> String {
        let Capacity {
            elements,
            dtype,
            itemsize,
        } = self;
        let room = self.bytes();
        let size = match came.bytes {
            Some(bytes) if bytes > room => match bytes.checked_rem(*itemsize) {
                Some(0) => format!(
                    " of {} elements of {dtype} ({bytes} bytes)",
                    bytes / itemsize
                ),
                _ => format!(" of {bytes} bytes"),
            },
            _ => String::new(),
        };
        format!(
            "the message{size}{came} is longer than the room for it, {elements} elements of {dtype} ({room} bytes): \
             receive into a larger tensor, or ask for the size first (Probe and Get_count)"
        )
    }

    fn refuse(&self, error: MpiCallError, came: Arrived) -> Error {
        Error::Truncated {
            error,
            words: self.too_long(came),
        }
    }
}

/// Whether the displacements of an `MPI_Alltoallw` on one rank are taken for numbers of elements, as by Open MPI 5.0.11.
#[must_use]
pub fn scales_displacements(mpi: &Mpi) -> bool {
    mpi.family() == Family::OpenMpi
}

/// Whether the status of an `MPI_Isendrecv` is that of its message: MPICH 5.0.2 gives any status there.
#[must_use]
pub fn tells_of_pairs(mpi: &Mpi) -> bool {
    mpi.family() == Family::OpenMpi
}

/// What MPI says of a message that is longer than its room.
pub(crate) fn truncated(mpi: &Mpi, call: &'static str) -> MpiCallError {
    let code = mpi.constants().err_truncate;
    MpiCallError::Mpi(MpiError {
        code,
        class: code,
        call,
    })
}

fn is_truncated(mpi: &Mpi, error: &MpiCallError) -> bool {
    error
        .mpi()
        .is_some_and(|inner| inner.class == mpi.constants().err_truncate)
}

/// What a status says of a message.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// Who sent it.
    pub source: i32,
    /// With which tag.
    pub tag: i32,
    /// How long it was; `None` where the library cannot count that far.
    pub bytes: Option<usize>,
}

impl Arrived {
    /// Of a message of which nothing is known.
    #[must_use]
    pub const fn unknown() -> Arrived {
        Arrived {
            source: -1,
            tag: -1,
            bytes: None,
        }
    }

    /// Of a status that MPI has filled in.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - `status` is a status of this library that MPI has filled in.
    pub unsafe fn of(mpi: &Mpi, status: StatusPtr) -> Result<Arrived> {
        // SAFETY:
        // - the caller's promise.
        unsafe {
            let bytes = mpi.get_elements(status, byte(mpi))?;
            Ok(Arrived {
                source: mpi.status_source(status),
                tag: mpi.status_tag(status),
                bytes: bytes.and_then(|bytes| usize::try_from(bytes).ok()),
            })
        }
    }
}

impl fmt::Display for Arrived {
    /// ` from rank 1 with tag 7`, or nothing where it came from nobody.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            0.. => write!(f, " from rank {} with tag {}", self.source, self.tag),
            _ => Ok(()),
        }
    }
}
