//! The user's communicator as an operation sees it.

use mpi_runtime::Mpi;

use crate::agreed::{CommFacts, Standing};
use crate::error::{Result, value_error};
use crate::ground::process;
use crate::ground::settings::{Choice, Settings};

/// A communicator and the library that it belongs to. Borrowed: dropping it frees nothing.
#[derive(Debug, Clone, Copy)]
pub struct Comm {
    mpi: &'static Mpi,
    raw: mpi_runtime::Comm,
    one_call: bool,
    device: bool,
    hands_over: bool,
    /// Whose algorithms its reductions use, where that was said of it.
    choice: Option<Choice>,
    known: Option<Known>,
}

/// What a communicator does not change, asked once per call.
#[derive(Debug, Clone, Copy)]
struct Known {
    size: u32,
    inter: bool,
}

/// This rank's part in a rooted collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The root.
    Root,
    /// A rank that sends to or receives from the root.
    Leaf,
    /// In the root's group of an intercommunicator, but not the root.
    Idle,
}

impl Comm {
    /// # Errors
    /// [`crate::Error::Value`] for `MPI_COMM_NULL`; [`crate::Error::State`] in a forked child and after
    /// `MPI_Finalize`; what MPI says.
    #[inline]
    pub fn new(mpi: &'static Mpi, raw: mpi_runtime::Comm) -> Result<Comm> {
        if raw == mpi.comm_null() {
            return Err(value_error!(
                "the communicator is COMM_NULL: it was freed, or this rank is not a member"
            ));
        }
        process::alive()?;
        process::watch(mpi)?;
        Ok(Comm {
            mpi,
            raw,
            one_call: false,
            device: false,
            hands_over: false,
            choice: None,
            known: None,
        })
    }

    /// Refuses what a forked child, or anybody after `MPI_Finalize`, would do with a communicator made before.
    ///
    /// # Errors
    /// [`crate::Error::State`] there.
    #[inline]
    pub fn alive(&self) -> Result<()> {
        process::alive()
    }

    /// The same communicator with exactly one plain MPI call per collective, so that peers need not be
    /// dlmpi; what needs more is refused.
    #[must_use]
    pub fn plain(self) -> Comm {
        Comm {
            one_call: true,
            ..self
        }
    }

    /// The same communicator with what was said of it, if anything was.
    pub(crate) fn choosing(self, choice: Option<Choice>) -> Comm {
        Comm { choice, ..self }
    }

    /// The same communicator, its size and kind asked for.
    pub(crate) fn asked(self) -> Result<Comm> {
        let size = self.mpi.comm_size(self.raw)? as u32;
        let inter = self.mpi.comm_test_inter(self.raw)?;
        Ok(Comm {
            known: Some(Known { size, inter }),
            ..self
        })
    }

    /// Whether exactly one plain MPI call per collective was asked for.
    pub(crate) fn is_plain(self) -> bool {
        self.one_call
    }

    /// The same communicator for a call in which MPI is given the addresses of device memory, or is not.
    pub(crate) fn giving_device_memory(self, device: bool) -> Comm {
        Comm { device, ..self }
    }

    /// The same communicator, whose ranks hand large blocks over by themselves (`handover.rs`), or do not.
    pub(crate) fn handing_over(self, hands_over: bool) -> Comm {
        Comm { hands_over, ..self }
    }

    /// Whether its ranks hand large blocks over by themselves: known to all alike.
    pub(crate) fn hands_over(self) -> bool {
        self.hands_over
    }

    /// Whether MPI is given the addresses of device memory.
    pub(crate) fn gives_device_memory(self) -> bool {
        self.device
    }

    /// The library.
    #[inline]
    pub fn mpi(self) -> &'static Mpi {
        self.mpi
    }

    /// The native handle.
    #[inline]
    pub fn raw(self) -> mpi_runtime::Comm {
        self.raw
    }

    /// Rank of this process in its own group.
    pub fn rank(self) -> Result<i32> {
        Ok(self.mpi.comm_rank(self.raw)?)
    }

    /// Size of this process's own group.
    pub fn size(self) -> Result<usize> {
        match self.known {
            Some(known) => Ok(known.size as usize),
            None => Ok(self.mpi.comm_size(self.raw)? as usize),
        }
    }

    /// Whether this is an intercommunicator.
    #[inline]
    pub fn is_inter(self) -> Result<bool> {
        match self.known {
            Some(known) => Ok(known.inter),
            None => Ok(self.mpi.comm_test_inter(self.raw)?),
        }
    }

    /// Number of blocks in a collective with one block per peer: the remote group's size on an
    /// intercommunicator.
    pub(crate) fn blocks(self) -> Result<usize> {
        if self.is_inter()? {
            Ok(self.mpi.comm_remote_size(self.raw)? as usize)
        } else {
            self.size()
        }
    }

    /// This rank's role under `root` (MPI 4.1 §6.2.3 for intercommunicators).
    pub(crate) fn role(self, root: i32) -> Result<Role> {
        let constants = self.mpi.constants();
        if !self.is_inter()? {
            return Ok(if root == self.rank()? {
                Role::Root
            } else {
                Role::Leaf
            });
        }
        Ok(match root {
            root if root == constants.root => Role::Root,
            root if root == constants.proc_null => Role::Idle,
            _ => Role::Leaf,
        })
    }

    /// The agreed facts of this communicator for a blocking call, whose ranks know so much of each other, or
    /// for a non-blocking one (`None`).
    pub(crate) fn facts(self, standing: Option<Standing>) -> Result<CommFacts> {
        let inter = self.is_inter()?;
        let settings = Settings::get()?;
        Ok(CommFacts {
            choice: standing.map_or(Choice::Mpi, |_| self.choice.unwrap_or(settings.allreduce)),
            standing: standing.unwrap_or(Standing::NONE),
            family: self.mpi.family(),
            size: self.size()? as u32,
            large_counts: self.mpi.has_large_counts(),
            one_call: inter || self.one_call || settings.plain,
        })
    }
}
