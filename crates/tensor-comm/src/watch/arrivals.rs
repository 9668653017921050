//! Which ranks have not arrived at a collective, and what they say of themselves.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::sync::Arc;

use super::About;

/// What was found out about the ranks of a collective that does not end.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// Those that have not made this call yet, or say nothing.
    pub late: Vec<Late>,
    /// Ranks that have made the call, this one among them.
    pub arrived: Vec<usize>,
    /// Those of them that are no longer in it: it failed there, or their part of it is done.
    pub left: Vec<Late>,
    /// Why nobody could be asked; the lists are empty then.
    pub unasked: Option<String>,
}

/// A rank that is not in the call.
#[derive(Debug, Clone)]
pub struct Late {
    /// Its rank in the communicator.
    pub rank: usize,
    /// What it says.
    pub heard: Heard,
}

/// What a rank says when it is asked.
#[derive(Debug, Clone)]
pub enum Heard {
    /// Nothing.
    Silence,
    /// It is a process of another job, which cannot be asked.
    Elsewhere,
    /// It lives.
    Answer {
        /// The number of its last collective on this communicator.
        reached: u64,
        /// Where it runs and what it is doing.
        doing: String,
        /// The Python stacks of its threads, innermost frames first; empty without Python.
        stack: String,
        /// A debugger holds it.
        debugged: bool,
    },
}

impl Arrivals {
    /// Whether a late rank is held by a debugger, so that it may come yet.
    pub fn debugged(&self) -> bool {
        self.late
            .iter()
            .any(|late| matches!(late.heard, Heard::Answer { debugged: true, .. }))
    }
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} ", self.rank)?;
        match &self.heard {
            Heard::Silence => {
                f.write_str("does not answer: it is stopped, dead, or held up inside MPI")
            }
            Heard::Elsewhere => f.write_str("is of another job and cannot be asked"),
            Heard::Answer { reached, doing, .. } => {
                let calls = if *reached == 1 {
                    "collective"
                } else {
                    "collectives"
                };
                write!(f, "has made {reached} {calls} here; {doing}")
            }
        }
    }
}

/// In words, one line: `not arrived: rank 1 (...), rank 3 (...)`.
impl std::fmt::Display for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(why) = &self.unasked {
            return write!(f, "the ranks could not be asked: {why}");
        }
        let (ranks, what) = match (self.late.is_empty(), self.left.is_empty()) {
            (false, _) => (&self.late, "not arrived: "),
            (true, false) => (
                &self.left,
                "every rank has made this call; no longer in it: ",
            ),
            (true, true) => (&self.left, "every rank has made this call"),
        };
        f.write_str(what)?;
        for (i, rank) in ranks.iter().enumerate() {
            write!(f, "{}{rank}", if i > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

/// Where the engine's thread puts what it found out, for a thread that waits for it.
#[derive(Debug, Default)]
pub(super) struct Reply {
    found: Mutex<Option<Arrivals>>,
    there: Condvar,
}

impl Reply {
    fn lock(&self) -> MutexGuard<'_, Option<Arrivals>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn give(&self, arrivals: Arrivals) {
        *self.lock() = Some(arrivals);
        self.there.notify_all();
    }

    fn take(&self, limit: Duration) -> Option<Arrivals> {
        let guard = self.lock();
        let empty = |found: &mut Option<Arrivals>| found.is_none();
        let waited = self.there.wait_timeout_while(guard, limit, empty);
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// Asks the ranks of a collective whether they have arrived, through the engine's thread.
pub(crate) fn of(about: &About, limit: Duration) -> Arrivals {
    let unasked = |why: &str| Arrivals {
        unasked: Some(why.to_owned()),
        ..Arrivals::default()
    };
    if !super::ANSWERING.load(std::sync::atomic::Ordering::Acquire) {
        return unasked("DLMPI_TIMEOUT is not set");
    }
    let reply = Arc::new(Reply::default());
    super::watcher::request(about.clone(), Arc::clone(&reply));
    crate::engine::wake();
    let found = reply.take(limit);
    found.unwrap_or_else(|| unasked("the engine has stopped"))
}
