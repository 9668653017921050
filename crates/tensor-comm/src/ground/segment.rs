//! Memory that processes of one node share: a file in memory, opened by name, mapped by all and then
//! without a name, so that it goes with the last of them. Knows nothing of ranks.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// One mapping.
pub(crate) struct Segment {
    base: *mut u8,
    bytes: usize,
}

// SAFETY:
// - the mapping belongs to the process, and only its address is kept here.
unsafe impl Send for Segment {}
// SAFETY:
// - as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// New memory of zeros, and the number by which others find it. All of it is there: a file system that is
    /// full is an error here, not a signal later.
    pub fn create(bytes: usize) -> Result<(Segment, u64)> {
        let mut name = [0u8; 8];
        File::open("/dev/urandom")?.read_exact(&mut name)?;
        let name = u64::from_ne_bytes(name) | 1;
        let file = options().create_new(true).mode(0o600).open(path(name))?;
        // SAFETY:
        // - it takes a descriptor and numbers.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
        let made = match code {
            0 => Segment::map(&file, bytes),
            code => Err(Error::from_raw_os_error(code)),
        };
        match made {
            Ok(segment) => Ok((segment, name)),
            Err(error) => {
                Segment::unname(name);
                Err(error)
            }
        }
    }

    /// The memory of this number and size that another process of this user has made.
    pub fn open(name: u64, bytes: usize) -> Result<Segment> {
        let file = options().open(path(name))?;
        let found = file.metadata()?;
        // SAFETY:
        // - has no requirements.
        let own = found.uid() == unsafe { libc::geteuid() };
        if !own || found.len() != bytes as u64 {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        Segment::map(&file, bytes)
    }

    /// Takes the name away: who has it mapped keeps it.
    pub fn unname(name: u64) {
        // Nobody else knows the name, so a failure leaves nothing to do.
        let _ = remove_file(path(name));
    }

    fn map(file: &File, bytes: usize) -> Result<Segment> {
        // SAFETY:
        // - a new mapping of a file of this length, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match base {
            libc::MAP_FAILED => Err(Error::last_os_error()),
            base => Ok(Segment {
                base: base.cast(),
                bytes,
            }),
        }
    }

    /// Its first byte, at the start of a page.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY:
        // - the mapping was made in `map` and nobody uses it any more. A failure would leave it there.
        let _ = unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

fn path(name: u64) -> PathBuf {
    PathBuf::from(format!("/dev/shm/dlmpi-{name:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_mappings_are_one_memory_which_outlives_its_name() {
        let (first, name) = Segment::create(8192).expect("memory");
        assert!(
            Segment::open(name, 4096).is_err(),
            "another size is another thing"
        );
        let second = Segment::open(name, 8192).expect("the same");
        Segment::unname(name);
        assert!(Segment::open(name, 8192).is_err());
        assert_ne!(first.base(), second.base());
        // SAFETY:
        // - both are mappings of 8192 bytes, which nobody else has.
        unsafe {
            assert_eq!(*second.base().add(8191), 0);
            *first.base().add(8191) = 7;
            drop(first);
            assert_eq!(*second.base().add(8191), 7);
        }
    }
}
