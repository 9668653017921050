//! Where the ranks of a communicator run: found out once, at the first call whose algorithm hangs on it, by
//! showing each other a card. A blocking call does so on the user's communicator; a non-blocking one leaves it
//! to whoever carries it on (`asking.rs`).

use std::sync::Arc;

use mpi_runtime::{Basic, BuiltinOp, Datatype, Mpi};

use super::peers::{self, Peers};
use crate::agreed::Place;
use crate::comm::Comm;
use crate::error::{Result, value_error};

/// What a rank shows of itself: its node, that node's cores, and what others try its memory by.
pub(crate) type Card = [u64; 2 + peers::WORDS];

/// What all ranks then know.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub place: Place,
    /// Each rank's node, numbered in the order of the ranks.
    pub nodes: Arc<[usize]>,
    /// Their processes, where all can read each other's memory.
    pub peers: Option<Arc<Peers>>,
}

/// Asks all ranks. Every rank must do so at the same call.
pub(crate) fn agree(comm: Comm) -> Result<Places> {
    let (mpi, own) = (comm.mpi(), card(comm.mpi())?);
    let mut cards = vec![Card::default(); comm.size()?];
    let (words, uint64) = (own.len() as i64, word_type(mpi)?);
    // SAFETY:
    // - the receive side has room for a card of each rank, the send side holds one, and they lie apart.
    unsafe {
        let (sent, got) = (own.as_ptr().cast(), cards.as_mut_ptr().cast());
        mpi.allgather(sent, words, uint64, got, words, uint64, comm.raw())
    }?;
    let (mut places, can) = judge(&cards);
    if let Some(can) = can {
        let (own, mut least) = (u64::from(can), 0u64);
        // SAFETY:
        // - both are one uint64, apart from each other.
        unsafe {
            let (sent, got) = ((&raw const own).cast(), (&raw mut least).cast());
            mpi.allreduce(sent, got, 1, uint64, mpi.op(BuiltinOp::Min), comm.raw())
        }?;
        places.peers = places.peers.filter(|_| least == 1);
    }
    Ok(places)
}

/// The type of a card's words.
pub(crate) fn word_type(mpi: &Mpi) -> Result<Datatype> {
    mpi.datatype(Basic::Uint64)
        .ok_or_else(|| value_error!("this MPI has no UINT64_T"))
}

/// This rank's card. Others may try its memory from now on.
pub(crate) fn card(mpi: &Mpi) -> Result<Card> {
    let [process, at, token, wanted] = peers::offer()?;
    Ok([node(mpi), cores() as u64, process, at, token, wanted])
}

/// What the cards of all ranks say; and, where memory of others was tried, whether this rank could read all of
/// it: only if all ranks could, do the peers stand.
pub(crate) fn judge(cards: &[Card]) -> (Places, Option<bool>) {
    let mut known: Vec<u64> = Vec::new();
    let number = |card: &Card| {
        let found = known.iter().position(|node| *node == card[0]);
        found.unwrap_or_else(|| {
            known.push(card[0]);
            known.len() - 1
        })
    };
    let nodes: Arc<[usize]> = cards.iter().map(number).collect();
    let fewest = cards.iter().map(|card| card[1]).min().unwrap_or(0);
    let place = match (known.len() > 1, fewest >= cards.len() as u64) {
        (true, _) => Place::Apart,
        (false, true) => Place::Together,
        (false, false) => Place::Crowded,
    };
    let offers = cards.iter().map(|[_, _, offer @ ..]| *offer);
    let tried = match place {
        Place::Apart => None,
        _ => Peers::tried(offers),
    };
    let (peers, can) = tried.unzip();
    let places = Places {
        place,
        nodes,
        peers,
    };
    (places, can)
}

/// A number of this node: of its name, and of its boot, since names are not always unique.
pub(super) fn node(mpi: &Mpi) -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A rank that cannot tell counts as on a node of its own: an error here would keep the others waiting.
    let name = mpi.get_processor_name().unwrap_or_default();
    digest(&[name.as_bytes(), &boot].concat())
}

/// FNV-1a: equal bytes give equal numbers.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Processors of this node that are on, whichever of them this process may use: a launcher binds each
/// rank to its own.
fn cores() -> usize {
    // SAFETY:
    // - it takes a number and gives a number.
    let on = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(on).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cards: &[(u64, u64)]) -> (Place, Vec<usize>) {
        let card = |&(node, cores): &(u64, u64)| [node, cores, 0, 0, 0, 0];
        let cards: Vec<Card> = cards.iter().map(card).collect();
        let (places, _) = judge(&cards);
        (places.place, places.nodes.to_vec())
    }

    #[test]
    fn nodes_are_numbered_in_the_order_of_ranks() {
        assert_eq!(of(&[(9, 4), (9, 4)]), (Place::Together, vec![0, 0]));
        let crowded = [(9, 2), (9, 8), (9, 8)];
        assert_eq!(of(&crowded), (Place::Crowded, vec![0, 0, 0]));
        let apart = [(9, 2), (4, 2), (9, 2), (7, 2), (4, 2)];
        assert_eq!(of(&apart), (Place::Apart, vec![0, 1, 0, 2, 1]));
    }
}
