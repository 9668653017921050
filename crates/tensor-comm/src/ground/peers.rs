//! Memory of the other processes of this node, read and written without their help (Linux's cross-memory
//! attach).
//!
//! Whether that is allowed (same user, seccomp, Yama, namespaces) is found out by trying: every rank reads a
//! number out of every other one, and only where all can, any does. Knows addresses, not tensors.

use std::sync::{Arc, OnceLock};

use super::settings::{Cma, Settings};
use crate::error::{Error, Result};

/// What a rank tells for the trial: its process, the place of a number in its memory, that number, and whether it
/// wants others there.
pub(crate) type Offer = [u64; WORDS];
pub(crate) const WORDS: usize = 4;

/// This rank's offer. Others may read its memory from now on, as far as the system lets them.
pub(crate) fn offer() -> Result<Offer> {
    invite();
    let token = token();
    let at = std::ptr::from_ref(token).addr() as u64;
    let wanted = Settings::get()?.cma == Cma::Auto;
    Ok([std::process::id().into(), at, *token, wanted.into()])
}

/// Ranks up to which each is tried with each.
const MOST: usize = 64;

/// The processes of a communicator's ranks, each of which may read every other one's memory.
#[derive(Debug)]
pub(crate) struct Peers(Box<[libc::pid_t]>);

impl Peers {
    /// Tries it with what the ranks of one node offer; says whether this rank can read all others. `None` where
    /// there are too many.
    pub fn tried(offers: impl ExactSizeIterator<Item = Offer>) -> Option<(Arc<Peers>, bool)> {
        if !cfg!(target_os = "linux") || offers.len() > MOST {
            return None;
        }
        let offers: Vec<Offer> = offers.collect();
        let peers = Peers(offers.iter().map(|one| one[0] as libc::pid_t).collect());
        // A rank that does not want it says so where all hear it: settings may not have been compared yet.
        let can = (0..).zip(&offers).all(|(peer, [_, at, token, wanted])| {
            let mut read = 0u64;
            // SAFETY:
            // - the number is ours to write.
            let done = unsafe { peers.read(peer, *at as usize, (&raw mut read).cast(), 8) };
            *wanted == 1 && done.is_ok() && read == *token
        });
        Some((Arc::new(peers), can))
    }

    /// Copies `bytes` from the address `from` of a rank's process.
    ///
    /// # Errors
    /// [`Error::State`] where the process is gone, or forbids it by now.
    ///
    /// # Safety
    /// - `to` is valid for writes of `bytes`.
    pub unsafe fn read(&self, rank: usize, from: usize, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY:
        // - by the caller's promise.
        unsafe { transfer(self.pid(rank), to, from, bytes, Way::Here) }
            .map_err(|why| Error::State(format!("reading memory of rank {rank}: {why}")))
    }

    /// Copies `bytes` to the address `to` of a rank's process.
    ///
    /// # Errors
    /// As [`Peers::read`].
    ///
    /// # Safety
    /// - `from` is valid for reads of `bytes`. The other rank has given that memory for it.
    pub unsafe fn write(
        &self,
        rank: usize,
        to: usize,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY:
        // - by the caller's promise.
        unsafe { transfer(self.pid(rank), from.cast_mut(), to, bytes, Way::There) }
            .map_err(|why| Error::State(format!("writing memory of rank {rank}: {why}")))
    }

    fn pid(&self, rank: usize) -> libc::pid_t {
        self.0.get(rank).copied().unwrap_or(0)
    }
}

/// Whether others can read this memory of ours: some that a device maps they cannot. The ends are tried.
pub(crate) fn is_readable(at: *const u8, bytes: usize) -> bool {
    each_end(at, bytes, |place| {
        let mut byte = 0u8;
        // SAFETY:
        // - the byte is ours to write.
        unsafe { transfer(own(), &raw mut byte, place, 1, Way::Here) }.is_ok()
    })
}

/// Whether others can read and write this memory of ours, which nobody else uses now.
pub(crate) fn is_writable(at: *mut u8, bytes: usize) -> bool {
    each_end(at, bytes, |place| {
        let mut byte = 0u8;
        // SAFETY:
        // - the byte is ours to write and to read.
        // - what is written back is what was there.
        unsafe {
            transfer(own(), &raw mut byte, place, 1, Way::Here).is_ok()
                && transfer(own(), &raw mut byte, place, 1, Way::There).is_ok()
        }
    })
}

fn each_end(at: *const u8, bytes: usize, open: impl Fn(usize) -> bool) -> bool {
    let ends = [0, bytes.saturating_sub(1)];
    bytes == 0 || ends.iter().all(|offset| open(at.addr() + offset))
}

fn own() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Whereto bytes are copied.
#[derive(Clone, Copy)]
enum Way {
    Here,
    There,
}

/// # Safety
/// - `here` is valid for `bytes` in the way they go. What is written there is nobody else's now.
#[cfg(target_os = "linux")]
unsafe fn transfer(
    pid: libc::pid_t,
    here: *mut u8,
    there: usize,
    bytes: usize,
    way: Way,
) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes {
        let local = libc::iovec {
            iov_base: here.wrapping_add(done).cast(),
            iov_len: bytes - done,
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(there.wrapping_add(done)),
            iov_len: bytes - done,
        };
        let (local, remote) = (&raw const local, &raw const remote);
        // SAFETY:
        // - by the caller's promise; the kernel judges the other side.
        let got = unsafe {
            match way {
                Way::Here => libc::process_vm_readv(pid, local, 1, remote, 1, 0),
                Way::There => libc::process_vm_writev(pid, local, 1, remote, 1, 0),
            }
        };
        match usize::try_from(got) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => done += got,
            Err(_) => return Err(std::io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// # Safety
/// - None: nothing is copied.
#[cfg(not(target_os = "linux"))]
unsafe fn transfer(_: libc::pid_t, _: *mut u8, _: usize, _: usize, _: Way) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Where Yama lets only ancestors read a process, the launcher's process and its other children may read
/// this one, too.
fn invite() {
    #[cfg(target_os = "linux")]
    if std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|s| s.trim() == "1")
    {
        // SAFETY:
        // - it takes numbers. Where it fails, the trial does.
        unsafe {
            libc::prctl(
                libc::PR_SET_PTRACER,
                libc::getppid() as libc::c_ulong,
                0,
                0,
                0,
            )
        };
    }
}

/// What the others read in the trial: a number that no other process has at the same place by chance.
fn token() -> &'static u64 {
    use std::hash::{BuildHasher, RandomState};
    static TOKEN: OnceLock<u64> = OnceLock::new();
    TOKEN.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_whole_or_refused() {
        let from: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut to = vec![0u8; from.len()];
        let peers = Peers(Box::new([std::process::id() as libc::pid_t]));
        // SAFETY:
        // - the vector holds as many bytes.
        unsafe { peers.read(0, from.as_ptr().addr(), to.as_mut_ptr(), to.len()) }.expect("ours");
        assert_eq!(from, to);
        // SAFETY:
        // - as above.
        let gone = unsafe { peers.read(0, 8, to.as_mut_ptr(), 8) };
        assert!(matches!(gone, Err(Error::State(words)) if words.contains("rank 0")));
        assert!(is_readable(from.as_ptr(), from.len()) && is_readable(std::ptr::null(), 0));
        assert!(!is_readable(std::ptr::without_provenance(8), 1));
        assert!(
            is_writable(to.as_mut_ptr(), to.len())
                && !is_writable(std::ptr::without_provenance_mut(8), 1)
        );
        assert_eq!(from, to);
        to.fill(0);
        // SAFETY:
        // - as above; the target is a vector of as many bytes.
        unsafe { peers.write(0, to.as_mut_ptr().addr(), from.as_ptr(), from.len()) }.expect("ours");
        assert_eq!(from, to);
    }
}
