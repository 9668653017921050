//! What becomes of device memory on a communicator, and why, in words: for reports, not for calls.

use super::{Reach, Way, allowed, allowed_with, open, support, takes};
use crate::comm::Comm;
use crate::error::Result;
use crate::ground::gate::Gate;
use crate::ground::settings::{Aware, Settings};
use crate::ground::state::State;

/// What this rank knows of it.
#[derive(Debug, Clone)]
pub struct Awareness {
    /// Whether the library says that it takes device memory.
    pub takes: bool,
    /// How that was found out.
    pub found: String,
    /// Operations, and what becomes of device memory in them.
    pub operations: Vec<(&'static str, String)>,
}

/// What becomes of device memory on this communicator. Local; the ranks agree in a blocking collective before.
///
/// # Errors
/// Settings that do not parse, and what MPI reports of the communicator.
pub fn awareness(comm: &Comm) -> Result<Awareness> {
    let said = support(comm.mpi());
    let (_, state) = Gate::state_of(*comm)?;
    let collectives = [
        ("blocking collectives", Way::Blocking),
        ("non-blocking collectives", Way::NonBlocking),
    ];
    let mut operations = vec![("messages", messages(*comm, state.as_deref())?)];
    for (name, way) in collectives {
        let words = match allowed(comm.mpi(), state.as_deref(), way)? {
            true => "direct".to_owned(),
            false => format!("staged: {}", hindrance(*comm, state.as_deref(), way)?),
        };
        operations.push((name, words));
    }
    Ok(Awareness {
        takes: said.takes,
        found: said.reasons.join("; "),
        operations,
    })
}

fn messages(comm: Comm, state: Option<&State>) -> Result<String> {
    let ranks = comm.size()?;
    let mut open = Vec::new();
    for peer in 0..ranks {
        if allowed_with(comm, peer as i32)? {
            open.push(peer.to_string());
        }
    }
    if open.len() == ranks {
        return Ok("direct".to_owned());
    }
    let why = hindrance(comm, state, Way::Message)?;
    Ok(match open.is_empty() {
        true => format!("staged: {why}"),
        false => format!("direct with ranks {}; else staged: {why}", open.join(", ")),
    })
}

/// Why device memory is staged where it is.
fn hindrance(comm: Comm, state: Option<&State>, way: Way) -> Result<String> {
    let (support, reach) = (support(comm.mpi()), state.and_then(State::reach));
    let untaken = !takes(support.flavour, way);
    Ok(match (Settings::get()?.gpu_aware, reach) {
        (Aware::No, _) => "DLMPI_GPU_AWARE=0".to_owned(),
        (Aware::Auto, _) if !support.takes => "this rank's MPI does not take it".to_owned(),
        _ if untaken => "not known to work in this library".to_owned(),
        (_, None) => "the ranks have not agreed on it".to_owned(),
        (_, Some(reach)) => reach.hindrance(),
    })
}

impl Reach {
    fn hindrance(&self) -> String {
        if let Some(rank) = self.ranks.iter().position(|rank| !rank.offers) {
            return format!("the MPI of rank {rank} does not take it");
        }
        let others = |a: usize| (a + 1..self.ranks.len()).map(move |b| (a, b));
        let pair = (0..self.ranks.len())
            .flat_map(others)
            .find(|&(a, b)| !open(&self.ranks[a], &self.ranks[b]));
        match pair {
            Some((a, b)) => format!("ranks {a} and {b} of one node see different devices"),
            None => "not known".to_owned(),
        }
    }
}
