//! Which Rust types are elements, and of which dtype. Knows no container of them.

use crate::DType;

/// A Rust type whose values are the elements of a tensor.
///
/// `bool` is none: another process may send any byte, and only two bytes are a `bool`. Send `u8` instead.
///
/// ```
/// use dlpack_core::{DType, Element};
///
/// assert_eq!(<f32 as Element>::DTYPE, DType::F32);
/// ```
///
/// # Safety
/// - Every pattern of `size_of::<Self>()` bytes is a value of the type, and none of its bytes is padding.
/// - `DTYPE` has the same size, and its numbers are laid out as the type's.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// Its element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($(#[$attribute:meta])* $type:ty = $dtype:ident;)+) => {$(
        $(#[$attribute])*
        // SAFETY:
        // - A number, or a pair of them, of which every bit pattern is a value, laid out as DLPack lays it out.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
        $(#[$attribute])*
        const _: () = assert!(size_of::<$type>() * 8 == DType::$dtype.bits_total());
    )+};
}

elements! {
    i8 = I8;
    i16 = I16;
    i32 = I32;
    i64 = I64;
    u8 = U8;
    u16 = U16;
    u32 = U32;
    u64 = U64;
    f32 = F32;
    f64 = F64;
    #[cfg(feature = "half")]
    half::f16 = F16;
    #[cfg(feature = "half")]
    half::bf16 = BF16;
    #[cfg(feature = "complex")]
    num_complex::Complex<f32> = C64;
    #[cfg(feature = "complex")]
    num_complex::Complex<f64> = C128;
}

// As wide as a pointer, so that their dtype is the machine's.
// SAFETY:
// - An integer, of which every bit pattern is a value.
#[cfg(target_pointer_width = "64")]
unsafe impl Element for usize {
    const DTYPE: DType = DType::U64;
}
// SAFETY:
// - An integer, of which every bit pattern is a value.
#[cfg(target_pointer_width = "64")]
unsafe impl Element for isize {
    const DTYPE: DType = DType::I64;
}
