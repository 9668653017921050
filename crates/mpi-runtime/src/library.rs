//! A dynamic library as a place to look symbols up. The only user of dlopen and dlsym;
//! knows nothing of MPI.

use libc::{c_int, c_void};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// An open library. Never closed: function pointers into it live in statics, and an MPI
/// library does not survive being unloaded.
pub(crate) struct Library {
    handle: *mut c_void,
}

impl Library {
    /// The global scope of the process: the program, what it links, LD_PRELOAD, RTLD_GLOBAL.
    pub fn process() -> Library {
        Library {
            handle: libc::RTLD_DEFAULT,
        }
    }

    /// A library that is in the process already, with what it depends on.
    pub fn loaded(path: &Path) -> Result<Library, String> {
        Library::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    }

    /// Opens a library for ourselves.
    pub fn open(path: &Path) -> Result<Library, String> {
        Library::dlopen(path, libc::RTLD_LAZY | libc::RTLD_LOCAL)
    }

    /// Moves an open library to the global scope: plugins of MPI libraries look its symbols up there.
    pub fn publish(path: &Path) -> Result<(), String> {
        Library::dlopen(
            path,
            libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL,
        )
        .map(|_| ())
    }

    fn dlopen(path: &Path, flags: c_int) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a path cannot contain a NUL", path.display()))?;
        // SAFETY:
        // - `name` is a C string that outlives the call.
        // - A library's constructors run arbitrary code: naming it is the caller's decision to run it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() {
            return Err(dl_error().unwrap_or_else(|| format!("{}: not loaded", path.display())));
        }
        Ok(Library { handle })
    }

    /// The address of a symbol; `None` if it is missing or a weak symbol without a definition.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY:
        // - The handle is RTLD_DEFAULT or came from dlopen and is never closed.
        // - `name` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle, name.as_ptr()) })
    }
}

/// The file that an address was loaded from.
pub(crate) fn file_of(address: NonNull<c_void>) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY:
    // - dladdr accepts any address and writes `info`, which is valid for writes.
    // - Dl_info is integers and pointers: all zeros is a value of it.
    let info = unsafe {
        if libc::dladdr(address.as_ptr(), info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY:
    // - dladdr succeeded, so dli_fname is a C string that lives as long as the library, which is never closed.
    Some(
        unsafe { CStr::from_ptr(info.dli_fname) }
            .to_string_lossy()
            .into_owned(),
    )
}

fn dl_error() -> Option<String> {
    // SAFETY:
    // - dlerror returns NULL or a C string that is valid until the next dl call of this thread.
    unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}
