//! Raw memory of a tensor: its bytes in memory order, and mpi4py's name for their type. Knows no Python
//! object.

use std::ffi::CStr;

use dlpack_core::{DType, View};

use crate::errors::{ExportError, ExportResult};

/// Formats that mpi4py maps to a number type. Anything else is lent as [`BYTES`].
const FORMATS: [(DType, &CStr); 16] = [
    (DType::BOOL, c"?"),
    (DType::I8, c"b"),
    (DType::I16, c"h"),
    (DType::I32, c"i"),
    (DType::I64, c"q"),
    (DType::U8, c"B"),
    (DType::U16, c"H"),
    (DType::U32, c"I"),
    (DType::U64, c"Q"),
    (DType::F16, c"e"),
    (DType::F32, c"f"),
    (DType::F64, c"d"),
    (DType::LONG_DOUBLE, c"g"),
    (DType::C64, c"Zf"),
    (DType::C128, c"Zd"),
    (DType::COMPLEX_LONG_DOUBLE, c"Zg"),
];

/// Bytes that every stock call moves and none adds up: of mpi4py's one-byte types only the truth value
/// is refused by SUM and its like on every MPI (MPICH adds `CHAR`, Open MPI even `BYTE`).
const BYTES: &CStr = c"?";

/// The bytes of a dense tensor.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The lowest byte.
    pub start: *mut u8,
    /// How many.
    pub len: usize,
    /// Bytes of one item of `format`.
    pub itemsize: usize,
    /// The PEP 3118 format.
    pub format: &'static CStr,
}

impl Bytes {
    /// `len` bytes from `start` on, for whoever says what they are.
    pub fn untyped(start: *mut u8, len: usize) -> Bytes {
        Bytes {
            start,
            len,
            itemsize: 1,
            format: BYTES,
        }
    }

    /// The bytes of `view`, in memory order.
    ///
    /// # Errors
    /// [`ExportError::Buffer`] in words: memory with gaps, shared elements, device memory.
    pub fn of(view: &View) -> ExportResult<Bytes> {
        if !view.device().is_host_addressable() {
            return Err(ExportError::Buffer(format!(
                "its memory is on {}, which no buffer can show; use dlmpi's own methods, or copy it to the CPU",
                view.device()
            )));
        }
        let layout = view.layout();
        let (low, high) = layout.span();
        let reach = high.wrapping_sub(low);
        if layout.numel() > 0 && (reach as usize != layout.nbytes() || layout.overlaps()) {
            return Err(ExportError::Buffer(format!(
                "its memory has gaps or shared elements (shape {:?}, byte strides {:?}), so it is no block of bytes; make it contiguous first",
                layout.shape(),
                layout.strides()
            )));
        }
        let row = FORMATS.iter().find(|row| row.0 == view.dtype());
        let (format, itemsize) = row.map_or((BYTES, 1), |row| (row.1, view.itemsize()));
        let start = if layout.numel() > 0 {
            view.data().wrapping_offset(low)
        } else {
            view.data()
        };
        Ok(Bytes {
            start,
            len: layout.nbytes(),
            itemsize,
            format,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlpack_core::Device;

    fn view(data: &mut [u8], shape: &[i64], strides: &[i64], dtype: DType) -> View {
        let first = strides
            .iter()
            .zip(shape)
            .map(|(&s, &n)| if s < 0 { -s * (n - 1) } else { 0 })
            .sum::<i64>();
        // SAFETY:
        // - The tests give shapes and strides inside `data`.
        unsafe {
            View::from_parts(
                data.as_mut_ptr().wrapping_offset(first as isize),
                shape,
                Some(strides),
                dtype,
                Device::CPU,
                false,
            )
        }
        .expect("a lawful view")
    }

    #[test]
    fn dense_memory_in_any_order_is_a_block() {
        let mut data = [0u8; 24];
        let start = data.as_mut_ptr();
        for strides in [[12, 4], [4, 8], [-12, 4], [12, -4]] {
            let bytes = Bytes::of(&view(&mut data, &[2, 3], &strides, DType::F32));
            let bytes = bytes.expect("dense");
            assert_eq!(
                (bytes.start, bytes.len, bytes.itemsize),
                (start, 24, 4),
                "{strides:?}"
            );
            assert_eq!(bytes.format, c"f");
        }
    }

    #[test]
    fn gaps_and_shared_elements_are_refused() {
        let mut data = [0u8; 64];
        assert!(Bytes::of(&view(&mut data, &[3], &[8], DType::F32)).is_err());
        assert!(Bytes::of(&view(&mut data, &[2, 2], &[0, 4], DType::F32)).is_err());
        assert!(Bytes::of(&view(&mut data, &[3, 3], &[4, 4], DType::F32)).is_err());
    }

    #[test]
    fn what_mpi4py_has_no_number_for_is_bytes() {
        let mut data = [0u8; 8];
        let bytes = Bytes::of(&view(&mut data, &[4], &[2], DType::BF16)).expect("dense");
        assert_eq!((bytes.format, bytes.itemsize, bytes.len), (BYTES, 1, 8));
    }
}
