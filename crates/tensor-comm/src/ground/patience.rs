//! Waiting for other ranks, with a word about what may keep them when it takes long.

use std::time::{Duration, Instant};

use mpi_runtime::Mpi;

/// After this long a rank that waits says so.
const LONG: Duration = Duration::from_secs(10);

/// Looks before it sleeps between them: others need the core, too.
const EAGER: u32 = 2000;
const SLEEP: Duration = Duration::from_micros(50);

/// One wait.
#[derive(Debug)]
pub(crate) struct Patience {
    /// `None` once it was said.
    until: Option<Instant>,
    looks: u32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            until: Instant::now().checked_add(LONG),
            looks: 0,
        }
    }
}

impl Patience {
    /// Lets others run for a moment.
    pub fn wait(&mut self, mpi: &Mpi) {
        self.looks = self.looks.saturating_add(1);
        match self.looks < EAGER {
            true => std::thread::yield_now(),
            false => std::thread::sleep(SLEEP),
        }
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
        "dlmpi: rank {rank} waits since {} s for the others' first collective on a communicator. One of them \
         may be late or have failed (started by python -m dlmpi run, that ends the job). Or it never answers: ranks with \
         DLMPI_COLLECTIVES=mpi and ranks of plain mpi4py do not; give all ranks the same setting, or mark the \
         communicator on all by dlmpi.wrap(comm, collectives=\"mpi\"). DLMPI_TIMEOUT ends such waits.",
        LONG.as_secs()
    );
}
