//! Memory for `MPI_Status`, whose layout is the library's. Knows sizes; the fields are read through [`Mpi`].

use crate::Mpi;
use libc::c_void;

/// The largest `MPI_Status` of the known ABIs (the standard ABI's), in 8-byte words.
const WORDS: usize = 4;

/// A pointer to a native `MPI_Status`, or to none.
///
/// Where MPI writes several statuses it is a pointer to the first of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPtr(pub *mut c_void);

impl StatusPtr {
    /// `MPI_STATUS_IGNORE`, whatever the library uses for it.
    pub const fn ignore() -> StatusPtr {
        StatusPtr(std::ptr::null_mut())
    }

    /// Whether this is [`ignore`](Self::ignore).
    pub const fn is_ignore(self) -> bool {
        self.0.is_null()
    }
}

/// Storage for one status of any library.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct StatusBuf {
    words: [u64; WORDS],
}

impl Default for StatusBuf {
    fn default() -> Self {
        StatusBuf::new()
    }
}

impl StatusBuf {
    /// Zeroed: no source, no tag, nothing received.
    pub const fn new() -> StatusBuf {
        StatusBuf { words: [0; WORDS] }
    }

    /// For a call that fills the status. Valid as long as this value stays where it is.
    pub fn as_ptr(&mut self) -> StatusPtr {
        StatusPtr(self.words.as_mut_ptr().cast())
    }
}

/// Storage for an array of statuses, spaced as the loaded library spaces them.
#[derive(Debug)]
pub struct StatusArray {
    words: Vec<u64>,
    bytes_each: usize,
    len: usize,
}

impl StatusArray {
    /// Room for `len` statuses.
    pub fn new(mpi: &Mpi, len: usize) -> StatusArray {
        let bytes_each = mpi.status_bytes();
        let words = (len * bytes_each).div_ceil(8);
        StatusArray {
            words: vec![0; words.max(1)],
            bytes_each,
            len,
        }
    }

    /// How many there is room for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is there room for none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole array, for [`Mpi::waitall`] and its like.
    pub fn as_ptr(&mut self) -> StatusPtr {
        StatusPtr(self.words.as_mut_ptr().cast())
    }

    /// One status of it; `None` past the end.
    pub fn get(&mut self, index: usize) -> Option<StatusPtr> {
        let first = self.words.as_mut_ptr().cast::<u8>();
        (index < self.len).then(|| StatusPtr(first.wrapping_add(index * self.bytes_each).cast()))
    }
}

impl Mpi {
    /// What MPI is given for a status: the pointer, or the library's `MPI_STATUS_IGNORE`.
    #[inline]
    pub(crate) fn status_argument(&self, status: StatusPtr) -> *mut c_void {
        if status.is_ignore() {
            std::ptr::without_provenance_mut(self.abi().status_ignore)
        } else {
            status.0
        }
    }

    /// `MPI_SOURCE` of a status.
    ///
    /// # Safety
    /// - `status` points at a status of the loaded library and is not [`StatusPtr::ignore`].
    pub unsafe fn status_source(&self, status: StatusPtr) -> i32 {
        // SAFETY:
        // - `status` points at a whole native status, and `source` is the offset of a C int in it.
        unsafe { field(status, self.abi().status.source).read() }
    }

    /// `MPI_TAG` of a status.
    ///
    /// # Safety
    /// - `status` points at a status of the loaded library and is not [`StatusPtr::ignore`].
    pub unsafe fn status_tag(&self, status: StatusPtr) -> i32 {
        // SAFETY:
        // - `status` points at a whole native status, and `tag` is the offset of a C int in it.
        unsafe { field(status, self.abi().status.tag).read() }
    }

    /// `MPI_ERROR` of a status: meaningful after a call on several requests that returned `MPI_ERR_IN_STATUS`.
    ///
    /// # Safety
    /// - `status` points at a status of the loaded library and is not [`StatusPtr::ignore`].
    pub unsafe fn status_error(&self, status: StatusPtr) -> i32 {
        // SAFETY:
        // - `status` points at a whole native status, and `error` is the offset of a C int in it.
        unsafe { field(status, self.abi().status.error).read() }
    }

    /// Writes `MPI_SOURCE`, `MPI_TAG` and `MPI_ERROR`, as a generalized request's query callback has to.
    ///
    /// # Safety
    /// - `status` points at a status of the loaded library that may be written and is not [`StatusPtr::ignore`].
    pub unsafe fn status_set(&self, status: StatusPtr, source: i32, tag: i32, error: i32) {
        let layout = &self.abi().status;
        // SAFETY:
        // - `status` points at a whole, writable native status, and these are the offsets of C ints in it.
        unsafe {
            field(status, layout.source).write(source);
            field(status, layout.tag).write(tag);
            field(status, layout.error).write(error);
        }
    }
}

/// # Safety
/// - `offset` lies inside the status that `status` points at.
unsafe fn field(status: StatusPtr, offset: usize) -> *mut i32 {
    // SAFETY:
    // - The result stays inside the status, by this function's own contract.
    unsafe { status.0.cast::<u8>().add(offset).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn every_status_fits() {
        for family in [Family::Mpich, Family::OpenMpi, Family::Abi] {
            let layout = family.abi().status;
            assert!(layout.bytes <= size_of::<StatusBuf>());
            for offset in [layout.source, layout.tag, layout.error] {
                assert!(offset + 4 <= layout.bytes);
            }
        }
    }
}
