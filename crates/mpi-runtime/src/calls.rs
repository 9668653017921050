//! How a method becomes an MPI call: choose the table, convert handles and counts, check the code.
//! The methods themselves are in the modules below, grouped as MPI's chapters are.

pub(crate) mod attributes;
mod collectives;
pub(crate) mod communicators;
mod completion;
pub(crate) mod datatypes;
mod environment;
pub(crate) mod generalized;
pub(crate) mod groups;
mod immediate;
pub(crate) mod operations;
mod packing;
mod point_to_point;
mod probes;
pub(crate) mod vectors;
mod windows;

use crate::error::{Error, MpiError};
use crate::{Mpi, Request};
use libc::c_int;
use smallvec::SmallVec;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Evaluates an expression with the table of either handle width.
macro_rules! with_table {
    ($mpi:expr, |$table:ident| $body:expr) => {
        match &$mpi.table {
            $crate::mpi::AnyTable::Int($table) => $body,
            $crate::mpi::AnyTable::Pointer($table) => $body,
        }
    };
}

/// One call whose arguments are the same at every count size.
///
/// - `call!(mpi, "MPI_F", f(args))` gives `Result<()>`;
/// - `call!(mpi, "MPI_F", f(.., &mut out) => out)` gives `Result<u64>`, the bits of the new handle;
/// - `call!(mpi, "MPI_F", f(.., &mut inout) => inout from handle)` gives `(Result<()>, u64)`: what MPI
///   made of a handle counts on errors too.
macro_rules! call {
    ($mpi:expr, $name:literal, $f:ident($($arg:expr),* $(,)?)) => {{
        let code = with_table!($mpi, |table| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library: their constructors demand it.
            // - Pointers come from references here, or are valid by the contract of the enclosing unsafe fn.
            unsafe { (table.$f)($($arg),*) }
        });
        $mpi.check($name, code)
    }};
    ($mpi:expr, $name:literal, $f:ident($($arg:expr),* $(,)?) => $out:ident) => {{
        let (result, bits) = call!($mpi, $name, $f($($arg),*) => $out from Default::default());
        result.map(|()| bits)
    }};
    ($mpi:expr, $name:literal, $f:ident($($arg:expr),* $(,)?) => $inout:ident from $init:expr) => {{
        let (code, bits) = with_table!($mpi, |table| {
            let mut $inout = $init;
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library: their constructors demand it.
            // - Pointers come from references here, or are valid by the contract of the enclosing unsafe fn.
            let code = unsafe { (table.$f)($($arg),*) };
            (code, $crate::handle::NativeHandle::to_bits($inout))
        });
        ($mpi.check($name, code), bits)
    }};
}

/// A call with counts, in the three forms of [`call!`]: the plain function when all counts fit a C int (it exists
/// everywhere), else the `_c` one, else [`Error::CountTooLarge`].
macro_rules! counted {
    ($mpi:expr, $name:literal, $plain:ident / $large:ident [$($count:ident),+] ($($arg:expr),* $(,)?)) => {{
        let code = with_table!($mpi, |table| counted!(@call table, $name, $plain / $large [$($count),+] ($($arg),*)));
        $mpi.check($name, code)
    }};
    ($mpi:expr, $name:literal, $plain:ident / $large:ident [$($count:ident),+] ($($arg:expr),* $(,)?) => $out:ident) => {{
        let (result, bits) =
            counted!($mpi, $name, $plain / $large [$($count),+] ($($arg),*) => $out from Default::default());
        result.map(|()| bits)
    }};
    ($mpi:expr, $name:literal, $plain:ident / $large:ident [$($count:ident),+] ($($arg:expr),* $(,)?) => $inout:ident from $init:expr) => {{
        let (code, bits) = with_table!($mpi, |table| {
            let mut $inout = $init;
            let code = counted!(@call table, $name, $plain / $large [$($count),+] ($($arg),*));
            (code, $crate::handle::NativeHandle::to_bits($inout))
        });
        ($mpi.check($name, code), bits)
    }};
    (@call $table:ident, $name:literal, $plain:ident / $large:ident [$($count:ident),+] ($($arg:expr),*)) => {
        if $($crate::calls::fits($count))&&+ {
            $(let $count = $count as libc::c_int;)+
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library: their constructors demand it.
            // - Pointers come from references here, or are valid by the contract of the enclosing unsafe fn.
            unsafe { ($table.$plain)($($arg),*) }
        } else if let Some(large) = $table.$large {
            // SAFETY:
            // - As above; counts are MPI_Count here.
            unsafe { large($($arg),*) }
        } else {
            return Err($crate::calls::too_large($name, &[$((stringify!($count), $count)),+]));
        }
    };
}

pub(crate) use {call, counted, with_table};

#[inline]
pub(crate) fn fits(count: i64) -> bool {
    c_int::try_from(count).is_ok()
}

#[cold]
pub(crate) fn too_large(call: &'static str, arguments: &[(&'static str, i64)]) -> Error {
    let (argument, value) = arguments
        .iter()
        .copied()
        .find(|(_, value)| !fits(*value))
        .unwrap_or(("count", i64::MAX));
    Error::CountTooLarge {
        call,
        argument,
        value,
        limit: c_int::MAX as i64,
    }
}

impl Mpi {
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        // MPI_SUCCESS is 0 by the MPI standard, on every ABI.
        if code == 0 {
            Ok(())
        } else {
            Err(self.error(call, code))
        }
    }

    #[cold]
    pub(crate) fn error(&self, call: &'static str, code: c_int) -> Error {
        Error::Mpi(MpiError {
            code,
            class: self.class_of(code),
            call,
        })
    }
}

/// Most calls on several requests name few of them: no allocation up to here.
const INLINE_REQUESTS: usize = 16;

/// Lends requests as the library's array, and takes back what it made of them.
pub(crate) fn with_requests<H: crate::handle::NativeHandle, R>(
    requests: &mut [Request],
    f: impl FnOnce(*mut H) -> R,
) -> R {
    let mut native: SmallVec<[H; INLINE_REQUESTS]> =
        requests.iter().map(|request| request.native()).collect();
    let result = f(native.as_mut_ptr());
    for (request, native) in requests.iter_mut().zip(native) {
        *request = Request::from_native(native);
    }
    result
}
