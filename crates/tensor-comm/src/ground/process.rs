//! What happens to this process: forked from an MPI process, or MPI finalized.
//!
//! A forked child must not touch MPI (its library's state is the parent's), so dlmpi is off there.
//! `MPI_Finalize` deletes the attributes of `COMM_SELF` first (MPI 4.1 §11.2.4); a callback of ours on
//! one of them stops the engine while MPI still works. Where there are sessions only, nothing is finalized.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use mpi_runtime::Mpi;

use crate::error::{Error, Result};

static FORKED: AtomicBool = AtomicBool::new(false);
static FINALIZING: AtomicBool = AtomicBool::new(false);
static HOOKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// What a call in a forked child fails with; `None` in the process that runs MPI.
#[inline]
pub(crate) fn forked() -> Option<Error> {
    FORKED.load(Ordering::Relaxed).then(|| {
        Error::State(
            "this process was forked from one that runs MPI, so it must not call MPI; do the communication in \
             the parent, or start workers by 'spawn' or 'forkserver' before MPI starts"
                .into(),
        )
    })
}

/// Refuses in a forked child and after `MPI_Finalize`.
#[inline]
pub(crate) fn alive() -> Result<()> {
    if let Some(error) = forked() {
        return Err(error);
    }
    if FINALIZING.load(Ordering::Relaxed) {
        return Err(Error::State(
            "MPI was finalized; no communication is possible any more".into(),
        ));
    }
    Ok(())
}

/// Whether MPI may be called: refuses in a forked child and after `MPI_Finalize`, and watches from now on
/// for what ends that.
///
/// # Errors
/// [`Error::State`] in a forked child and after `MPI_Finalize`; what MPI says.
#[inline]
pub fn attend(mpi: &'static Mpi) -> Result<()> {
    alive()?;
    watch(mpi)
}

/// Watches for fork and finalize, from the first communicator on.
#[inline]
pub(crate) fn watch(mpi: &'static Mpi) -> Result<()> {
    match WATCHING.get() {
        Some(()) => Ok(()),
        None => start_watching(mpi),
    }
}

static WATCHING: OnceLock<()> = OnceLock::new();

#[cold]
fn start_watching(mpi: &'static Mpi) -> Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    static FORKS: Once = Once::new();
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if WATCHING.get().is_some() {
        return Ok(());
    }
    FORKS.call_once(|| {
        // SAFETY:
        // - the handler only stores to an atomic, which is allowed after fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    if !mpi.initialized()? || mpi.finalized()? {
        // `COMM_SELF` is of `MPI_Init`. Asked again, since that may still come.
        return Ok(());
    }
    // SAFETY:
    // - `finalize` ignores its argument.
    let keyval = unsafe { mpi.comm_create_keyval(finalize) }?;
    // SAFETY:
    // - the value is never looked at.
    unsafe { mpi.comm_set_attr(mpi.comm_self(), keyval, std::ptr::null_mut()) }?;
    WATCHING.get_or_init(|| ());
    Ok(())
}

/// Runs `hook` at the start of `MPI_Finalize`.
pub(crate) fn at_finalize(hook: fn()) {
    HOOKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(hook);
}

unsafe extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

unsafe extern "C" fn finalize(_: *mut c_void) {
    if FORKED.load(Ordering::Relaxed) {
        // What the hooks would end is the parent's.
        return;
    }
    FINALIZING.store(true, Ordering::Release);
    let hooks = std::mem::take(&mut *HOOKS.lock().unwrap_or_else(PoisonError::into_inner));
    for hook in hooks {
        hook();
    }
}
