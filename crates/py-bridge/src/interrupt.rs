//! Waiting in MPI without the interpreter, such that a second interrupt ends the process.
//!
//! MPI's blocking calls cannot be interrupted, and Python's signal handler only leaves a note that is read
//! when the call returns, so a rank that waits for one that never comes ignores Ctrl-C. Here the first
//! interrupt inside a wait of the main thread says so, and the second ends the process as an interrupt
//! does by default, upon which the launcher ends the job. Other threads' waits leave the main thread free
//! to hear Python's `KeyboardInterrupt`, so they are not counted.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// 0: the main thread is not in a wait; else one more than the number of interrupts in this wait.
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static WATCH: OnceLock<Watch> = OnceLock::new();

/// The handler that was there, which goes on hearing every interrupt.
struct Watch {
    main: libc::pthread_t,
    before: libc::sigaction,
}

/// Whether this is the process's first thread, which is Python's main one but in unusual hosts.
pub fn on_main_thread() -> bool {
    thread_local! {
        // SAFETY:
        // - both take nothing and cannot fail.
        static FIRST: bool = unsafe { libc::gettid() == libc::getpid() };
    }
    FIRST.try_with(|first| *first).unwrap_or(false)
}

/// Runs blocking `work` detached from the interpreter.
#[inline]
pub fn wait<T: Ungil>(py: Python<'_>, work: impl Ungil + FnOnce() -> T) -> T {
    // SAFETY:
    // - has no requirements.
    let own = WATCH
        .get()
        .is_some_and(|watch| watch.main == unsafe { libc::pthread_self() });
    if !own {
        return py.detach(work);
    }
    let _waiting = Waiting::begin();
    py.detach(work)
}

/// The main thread's wait; ended in `Drop`, so also by a panic.
struct Waiting;

impl Waiting {
    #[inline]
    fn begin() -> Waiting {
        INTERRUPTS.store(1, Ordering::Relaxed);
        Waiting
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        INTERRUPTS.store(0, Ordering::Relaxed);
    }
}

/// Puts our handler before Python's, once. Does nothing on other threads than Python's main thread, and
/// where interrupts have their default effect or are ignored.
///
/// # Errors
/// What `threading` raises.
pub fn watch(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    if main.is(threading.call_method0("current_thread")?) {
        put_before();
    }
    Ok(())
}

fn put_before() {
    // A program that sets a handler of its own later has the last word: ours is gone then.
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY:
    // - `before` is room for the current action; no new one is given.
    if unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY:
    // - filled above, and any bits are an action.
    let before = unsafe { before.assume_init() };
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        return;
    }
    let watch = Watch {
        // SAFETY:
        // - has no requirements.
        main: unsafe { libc::pthread_self() },
        before,
    };
    if WATCH.set(watch).is_err() {
        return;
    }
    let mut ours = before;
    ours.sa_sigaction = interrupted as *const () as usize;
    ours.sa_flags |= libc::SA_SIGINFO;
    // SAFETY:
    // - `interrupted` has the type that SA_SIGINFO asks for, and calls only what a handler may.
    // A failure leaves things as they were.
    let _ = unsafe { libc::sigaction(libc::SIGINT, &ours, std::ptr::null_mut()) };
}

extern "C" fn interrupted(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let count = INTERRUPTS.load(Ordering::Relaxed);
    if count > 0 {
        INTERRUPTS.store(count + 1, Ordering::Relaxed);
        say(match count {
            1 => b"dlmpi: interrupted while this rank waits in MPI; a second interrupt ends it\n",
            _ => b"dlmpi: ended by a second interrupt while this rank waited in MPI\n",
        });
    }
    if count > 1 {
        end(signal);
    }
    let Some(Watch { before, .. }) = WATCH.get() else {
        return;
    };
    // SAFETY:
    // - it was installed for this signal, with or without SA_SIGINFO as its flags say, and is neither
    //   default nor ignored.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO == 0 {
            let call: extern "C" fn(libc::c_int) = std::mem::transmute(before.sa_sigaction);
            call(signal);
        } else {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(before.sa_sigaction);
            call(signal, info, context);
        }
    }
}

fn say(words: &[u8]) {
    // SAFETY:
    // - the bytes are valid, and `write` may be called in a handler. Nobody is there to hear of a failure.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
}

/// Dies of the signal, so that whoever started this process sees why.
fn end(signal: libc::c_int) {
    // SAFETY:
    // - all of these may be called in a handler, and the set is made before it is used.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
