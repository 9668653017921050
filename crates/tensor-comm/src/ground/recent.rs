//! The state that a thread used last, so that MPI need not be asked for it in every call. A handle means another
//! communicator only after its first one has gone, and its attributes with it: what was remembered before that is forgotten.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::state::State;

/// How many communicators with a state have gone.
static GONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static LAST: Cell<Last> = const {
        Cell::new(Last {
            asked: Asked { handle: 0, gone: 0 },
            state: std::ptr::null(),
        })
    };
}

/// Which communicator is asked for, and when: how many had gone before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    handle: u64,
    gone: u64,
}

#[derive(Clone, Copy)]
struct Last {
    asked: Asked,
    state: *const State,
}

/// A communicator with a state goes: its handle may mean another one from now on.
pub(super) fn forget() {
    GONE.fetch_add(1, Ordering::Release);
}

impl Asked {
    #[inline]
    pub fn about(comm: mpi_runtime::Comm) -> Asked {
        Asked {
            handle: comm.raw(),
            gone: GONE.load(Ordering::Acquire),
        }
    }

    /// Its state, if this thread asked for the same one before and no communicator has gone since.
    #[inline]
    pub fn known(self) -> Option<Arc<State>> {
        let state = self.place()?;
        // SAFETY:
        // - as in `look`.
        unsafe {
            Arc::increment_strong_count(state);
            Some(Arc::from_raw(state))
        }
    }

    /// Looks at its state, where that is known in this way. `look` calls no MPI.
    #[inline]
    pub fn look<R>(self, look: impl FnOnce(&State) -> R) -> Option<R> {
        let state = self.place()?;
        // SAFETY:
        // - it is an Arc<State> of which the attribute holds a strong count: none has gone since it was found there, and
        //   this one must not go during a call on its communicator.
        Some(look(unsafe { &*state }))
    }

    #[inline]
    fn place(self) -> Option<*const State> {
        let last = LAST.try_with(Cell::get).ok()?;
        (!last.state.is_null() && last.asked == self).then_some(last.state)
    }

    /// Remembers its state, as its attribute has it.
    pub fn found(self, state: &Arc<State>) {
        let last = Last {
            asked: self,
            state: Arc::as_ptr(state),
        };
        // At the end of a thread there is nobody to remember it.
        let _ = LAST.try_with(|slot| slot.set(last));
    }
}
