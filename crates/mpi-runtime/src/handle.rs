//! MPI handles as native numbers. Knows their two widths, not what they name.

use libc::c_int;

/// A handle as the library's C prototypes have it: `int` on MPICH, a pointer elsewhere.
pub(crate) trait NativeHandle: Copy + Default + 'static {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

impl NativeHandle for c_int {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits as u32 as c_int
    }
    #[inline]
    fn to_bits(self) -> u64 {
        self as u32 as u64
    }
}

impl NativeHandle for usize {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits as usize
    }
    #[inline]
    fn to_bits(self) -> u64 {
        self as u64
    }
}

macro_rules! handles {
    ($($name:ident = $mpi:literal;)*) => { $(
        #[doc = concat!("An `", $mpi, "` of the loaded library, as a number.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Takes a native handle, as C code, mpi4py's `handle` or rsmpi's `as_raw` give it.
            ///
            /// # Safety
            /// - `raw` is a handle of this kind of the MPI library that is loaded in this process
            ///   (null handles and predefined ones included).
            /// - Whoever passes the result on keeps to the life of the handle: nothing uses it after it is freed.
            pub const unsafe fn from_raw(raw: u64) -> Self {
                Self(normalize(raw))
            }

            /// The native handle: what mpi4py's `fromhandle` takes.
            pub const fn raw(self) -> u64 {
                self.0
            }

            #[inline]
            #[allow(dead_code, reason = "one macro for all kinds; not every kind is an input")]
            pub(crate) fn native<H: NativeHandle>(self) -> H {
                H::from_bits(self.0)
            }

            #[inline]
            #[allow(dead_code, reason = "one macro for all kinds; not every kind is an output")]
            pub(crate) fn from_native<H: NativeHandle>(native: H) -> Self {
                Self(native.to_bits())
            }

            #[allow(dead_code, reason = "as above")]
            pub(crate) const fn from_bits(bits: u64) -> Self {
                Self(normalize(bits))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($mpi, "({:#x})"), self.0)
            }
        }
    )* };
}

handles! {
    Comm = "MPI_Comm";
    Datatype = "MPI_Datatype";
    Op = "MPI_Op";
    Request = "MPI_Request";
    Group = "MPI_Group";
    Errhandler = "MPI_Errhandler";
    Message = "MPI_Message";
    Win = "MPI_Win";
}

/// MPICH's handles are C ints and some are negative; whoever widened one with its sign must get
/// the number that we make of it. No user-space pointer has its upper half full of ones.
const fn normalize(raw: u64) -> u64 {
    if raw >> 32 == 0xffff_ffff {
        raw & 0xffff_ffff
    } else {
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_extended_int_handle_is_the_same_handle() {
        let signed = 0x8c00_0000_u32 as c_int as i64 as u64;
        assert_eq!(
            Datatype::from_bits(signed),
            Datatype::from_native(0x8c00_0000_u32 as c_int)
        );
        assert_eq!(
            Datatype::from_bits(signed).native::<c_int>(),
            0x8c00_0000_u32 as c_int
        );
    }

    #[test]
    fn a_pointer_handle_survives() {
        let p = 0x7f08_6b0a_1820_u64;
        assert_eq!(Comm::from_bits(p).native::<usize>() as u64, p);
    }
}
