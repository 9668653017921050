//! Waiting for other ranks, with a word about what may keep them when it takes long.

use std::time::{Duration, Instant};

use mpi_runtime::Mpi;

/// After this long a rank that waits says so.
const LONG: Duration = Duration::from_secs(10);

/// One wait.
#[derive(Debug)]
pub(crate) struct Patience {
    /// `None` once it was said.
    until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            until: Instant::now().checked_add(LONG),
        }
    }
}

impl Patience {
    /// Lets others run for a moment.
    pub fn wait(&mut self, mpi: &Mpi) {
        std::thread::yield_now();
        if self.until.is_some_and(|until| Instant::now() > until) {
            self.until = None;
            say(mpi);
        }
    }
}

/// Nothing that is sent can tell such ranks apart from ranks that are slow, so this is no error.
fn say(mpi: &Mpi) {
    let rank = mpi.comm_rank(mpi.comm_world()).unwrap_or(-1);
    eprintln!(
        "dlmpi: rank {rank} waits since {} s for the others' first collective on a communicator. Ranks with \
         DLMPI_COLLECTIVES=mpi and ranks of plain mpi4py never answer: give all ranks the same setting, or mark the \
         communicator on all by dlmpi.wrap(comm, collectives=\"mpi\"). DLMPI_TIMEOUT ends such waits.",
        LONG.as_secs()
    );
}
