//! Whether MPI is given the addresses of device memory on a communicator: what the library of this process says
//! (`mpi-runtime`), which operations take it, and what the ranks have agreed on. What is not known is staged.
//!
//! Local facts never reach the wire: an address on the device or of a mirror in the host's memory is the same
//! message. The ranks agree all the same, since one whose library does not take it, or that sees other devices than its
//! neighbour, may be the one that has to open the memory. Knows no driver call and no tensor.

mod report;

use std::sync::OnceLock;

use device::cuda;
use mpi_runtime::{Basic, Flavour, GpuSupport, Mpi};

use super::place;
use super::settings::{Aware, Settings};
use super::state::State;
use crate::comm::Comm;
use crate::error::{Result, value_error};
pub use report::{Awareness, awareness};

/// How an operation gives memory to MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A message, blocking or not.
    Message,
    /// A blocking collective.
    Blocking,
    /// A non-blocking one.
    NonBlocking,
}

/// Whether a library that takes device memory takes it in these operations. `Reduce_local`, windows, persistent
/// operations and what mpi4py carries out are never given any.
fn takes(flavour: Flavour, way: Way) -> bool {
    match way {
        Way::Message | Way::Blocking => true,
        // Open MPI's documentation leaves all of them out, and some end the process; of others nobody says it.
        Way::NonBlocking => flavour == Flavour::Mpich,
    }
}

/// What the library of this process says, asked once.
pub(crate) fn support(mpi: &Mpi) -> &'static GpuSupport {
    static SUPPORT: OnceLock<GpuSupport> = OnceLock::new();
    SUPPORT.get_or_init(|| mpi.gpu_support())
}

/// What this rank brings to the agreement: whether it would give device memory to MPI.
pub(crate) fn offers(mpi: &Mpi) -> bool {
    Settings::get().is_ok_and(|settings| settings.gpu_aware == Aware::Auto) && support(mpi).takes
}

/// Whether MPI is given device memory in these operations on a communicator.
pub(crate) fn allowed(mpi: &Mpi, state: Option<&State>, way: Way) -> Result<bool> {
    let known = |reach: fn(&Reach) -> bool| state.and_then(State::reach).is_some_and(reach);
    given(mpi, way, known(Reach::everywhere))
}

/// The same for a message to or from one rank, or from any.
pub(crate) fn allowed_with(comm: Comm, peer: i32) -> Result<bool> {
    let agreed = match Settings::get()?.gpu_aware {
        Aware::Auto if !comm.is_inter()? => {
            let state = State::existing(comm)?;
            let reach = state.as_deref().and_then(State::reach);
            reach.is_some_and(|reach| reach.is_open_to(peer))
        }
        _ => false,
    };
    given(comm.mpi(), Way::Message, agreed)
}

fn given(mpi: &Mpi, way: Way, agreed: bool) -> Result<bool> {
    Ok(match Settings::get()?.gpu_aware {
        Aware::No => false,
        Aware::Yes => takes(support(mpi).flavour, way),
        Aware::Auto => agreed && takes(support(mpi).flavour, way),
    })
}

/// What one rank says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rank {
    offers: bool,
    node: u64,
    /// A digest of the devices that it sees.
    devices: u64,
}

/// Which ranks of a communicator may be given device memory by which.
#[derive(Debug)]
pub(crate) struct Reach {
    ranks: Box<[Rank]>,
    own: usize,
    everywhere: bool,
    anywhere: bool,
}

impl Reach {
    /// Asks all ranks. Every rank must do so at the same blocking call.
    pub fn agree(comm: Comm) -> Result<Reach> {
        let mpi = comm.mpi();
        let uint64 = mpi
            .datatype(Basic::Uint64)
            .ok_or_else(|| value_error!("this MPI has no UINT64_T"))?;
        let offers = offers(mpi);
        // Where it is of no use, no driver is started for it.
        let devices = if offers { devices() } else { 0 };
        let own = [u64::from(offers), place::node(mpi), devices];
        let mut all = vec![[0u64; 3]; comm.size()?];
        // SAFETY:
        // - the receive side holds three uint64 of each rank, the send side three, and they lie apart.
        unsafe {
            let (sent, got) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            mpi.allgather(sent, 3, uint64, got, 3, uint64, comm.raw())
        }?;
        let rank = |&[offers, node, devices]: &[u64; 3]| Rank {
            offers: offers == 1,
            node,
            devices,
        };
        Ok(Reach::new(
            all.iter().map(rank).collect(),
            comm.rank()? as usize,
        ))
    }

    fn new(ranks: Box<[Rank]>, own: usize) -> Reach {
        let everywhere = ranks.iter().all(|a| ranks.iter().all(|b| open(a, b)));
        let anywhere = ranks.iter().any(|a| ranks.iter().any(|b| open(a, b)));
        Reach {
            ranks,
            own,
            everywhere,
            anywhere,
        }
    }

    /// Whether each rank may be given device memory by each.
    pub fn everywhere(&self) -> bool {
        self.everywhere
    }

    /// Whether a rank may be given device memory by some rank.
    pub fn anywhere(&self) -> bool {
        self.anywhere
    }

    /// Whether this rank may give device memory for a message to or from `peer`; from any, where that is no rank.
    fn is_open_to(&self, peer: i32) -> bool {
        let own = self.ranks.get(self.own);
        let other = usize::try_from(peer).ok().map(|peer| self.ranks.get(peer));
        match (own, other) {
            (Some(own), Some(Some(other))) => open(own, other),
            _ => self.everywhere,
        }
    }
}

/// Ranks of one node hand each other memory by CUDA's IPC, for which both must see the device.
fn open(a: &Rank, b: &Rank) -> bool {
    a.offers && b.offers && (a.node != b.node || a.devices == b.devices)
}

/// A digest of the devices that this process sees, in whatever order; of none, and of a driver that fails, a number
/// that no device has.
fn devices() -> u64 {
    let Ok(cuda) = cuda() else { return 0 };
    let uuids: std::result::Result<Vec<_>, _> = (0..cuda.device_count())
        .map(|dev| cuda.device_uuid(dev))
        .collect();
    let mut uuids = uuids.unwrap_or_default();
    uuids.sort_unstable();
    match uuids.is_empty() {
        true => 0,
        false => place::digest(uuids.as_flattened()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rank(offers: bool, node: u64, devices: u64) -> Rank {
        Rank {
            offers,
            node,
            devices,
        }
    }

    #[test]
    fn nodes_are_kept_apart() {
        let same = Reach::new([rank(true, 1, 5), rank(true, 1, 5)].into(), 0);
        assert!(same.everywhere() && same.is_open_to(1) && same.is_open_to(-2));
        // One visible device per rank: within a node it is staged, between nodes it is not.
        let bound = [
            rank(true, 1, 5),
            rank(true, 1, 6),
            rank(true, 2, 7),
            rank(false, 3, 8),
        ];
        let bound = Reach::new(bound.into(), 0);
        assert!(!bound.everywhere() && !bound.is_open_to(-2));
        assert!(!bound.is_open_to(1) && bound.is_open_to(2) && !bound.is_open_to(3));
        assert!(bound.is_open_to(0) && !bound.is_open_to(4) && bound.anywhere());
        let none = Reach::new([rank(false, 1, 5), rank(false, 1, 5)].into(), 0);
        assert!(same.anywhere() && !none.anywhere());
    }

    #[test]
    fn operations_have_a_row_each() {
        for flavour in [Flavour::OpenMpi, Flavour::Intel, Flavour::Other] {
            assert!(takes(flavour, Way::Message) && takes(flavour, Way::Blocking));
            assert!(!takes(flavour, Way::NonBlocking), "{flavour:?}");
        }
        assert!(takes(Flavour::Mpich, Way::NonBlocking));
    }
}
