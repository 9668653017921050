//! The functions by which libraries tell of device memory, and the libraries of this process. They take no
//! handles, so that one prototype serves every ABI. Judges nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::library::Library;

/// `MPIX_GPU_SUPPORT_CUDA`
const CUDA: c_int = 0;

/// The functions that are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queries {
    cuda: Option<unsafe extern "C" fn() -> c_int>,
    gpu: Option<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>,
    tools: Option<Tools>,
}

/// The part of `MPI_T` that reads a control variable.
#[derive(Debug, Clone, Copy)]
struct Tools {
    init: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    index: unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int,
    open: unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
}

/// The function of this name, as the type that is wanted.
macro_rules! function {
    ($library:expr, $name:expr, $kind:ty) => {
        $library.symbol($name).map(|found| {
            // SAFETY:
            // - The symbol is the library's function of this name, whose C prototype the type repeats.
            unsafe { std::mem::transmute::<*const c_void, $kind>(found.as_ptr()) }
        })
    };
}

impl Queries {
    /// Looks them up.
    pub fn of(library: &Library) -> Queries {
        let tools = || {
            Some(Tools {
                init: function!(library, c"MPI_T_init_thread", _)?,
                finalize: function!(library, c"MPI_T_finalize", _)?,
                index: function!(library, c"MPI_T_cvar_get_index", _)?,
                open: function!(library, c"MPI_T_cvar_handle_alloc", _)?,
                read: function!(library, c"MPI_T_cvar_read", _)?,
                close: function!(library, c"MPI_T_cvar_handle_free", _)?,
            })
        };
        Queries {
            cuda: function!(library, c"MPIX_Query_cuda_support", _),
            gpu: function!(library, c"MPIX_GPU_query_support", _),
            tools: tools(),
        }
    }

    /// The function that was asked, and whether it said yes.
    pub fn answer(&self) -> Option<(&'static str, bool)> {
        if let Some(ask) = self.cuda {
            // SAFETY:
            // - It takes nothing and may be called at any time.
            return Some(("MPIX_Query_cuda_support", unsafe { ask() } == 1));
        }
        let (ask, mut flag) = (self.gpu?, 0);
        // SAFETY:
        // - The number is one that the function knows, the pointer is to a local.
        let code = unsafe { ask(CUDA, &mut flag) };
        (code == 0).then_some(("MPIX_GPU_query_support", flag != 0))
    }

    /// What a truth value among the library's control variables is now. `level` is `MPI_THREAD_SINGLE`.
    pub fn control(&self, name: &str, level: c_int) -> Option<bool> {
        let (tools, name) = (self.tools?, CString::new(name).ok()?);
        let mut granted = 0;
        // SAFETY:
        // - The pointer is to a local; a call that succeeds is matched by `finalize`.
        if unsafe { (tools.init)(level, &mut granted) } != 0 {
            return None;
        }
        let read = tools.read(&name);
        // SAFETY:
        // - The interface was initialised above, and counts how often.
        unsafe { (tools.finalize)() };
        read
    }
}

impl Tools {
    fn read(&self, name: &CStr) -> Option<bool> {
        let (mut index, mut count) = (0, 0);
        let mut handle = std::ptr::null_mut();
        // Libraries write a truth value as a byte or as an int.
        let mut value = [0u64; 8];
        // SAFETY:
        // - The interface is initialised; the name is a C string, the pointers are to locals.
        // - A variable bound to no object takes no object's address.
        // - What is read is one truth value, and `value` is wider than any.
        unsafe {
            if (self.index)(name.as_ptr(), &mut index) != 0
                || (self.open)(index, std::ptr::null_mut(), &mut handle, &mut count) != 0
            {
                return None;
            }
            let code = match count {
                1 => (self.read)(handle, value.as_mut_ptr().cast()),
                _ => -1,
            };
            (self.close)(&mut handle);
            (code == 0).then_some(value[0] != 0)
        }
    }
}

/// Whether a library whose file name begins with `name` is in this process, as Linux tells.
pub(super) fn is_loaded(name: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(|line| line.rsplit('/').next())
        .any(|file| file.starts_with(name))
}
