//! Which bits of its objects torch writes. The others are as they were in the memory that torch is given, whichever that
//! is: objects are made in memory that was filled before, and what follows the filling was never written.

use pyo3::prelude::*;

use crate::fields::{STORAGE_WORDS, TENSOR_WORDS, compared};

/// What memory holds before torch gets it. A number or an address follows none of them through all by chance.
const FILLINGS: [u8; 8] = [0, 0xff, 0xff, 0, 0xff, 0, 0, 0xff];

/// Those bits in the words of a tensor and in those of a storage; `None` where torch's objects are not where they say.
/// `sample` makes a tensor: it, the address of its inner object, its storage, and the address of that one's.
pub(crate) fn written(
    sample: &Bound<'_, PyAny>,
) -> PyResult<Option<([u64; TENSOR_WORDS], [u64; STORAGE_WORDS])>> {
    type Row<'py> = (Bound<'py, PyAny>, u64, Bound<'py, PyAny>, u64);
    let (mut tensor_bits, mut storage_bits) = ([0; TENSOR_WORDS], [0; STORAGE_WORDS]);
    // Memory that is in use is not given again.
    let mut kept = Vec::new();
    for filling in FILLINGS {
        fill_freed(filling);
        let row = sample.call0()?;
        let (tensor, tensor_told, storage, storage_told): Row<'_> = row.extract()?;
        let (Some(tensor), Some(storage)) = (
            compared::<TENSOR_WORDS>(&tensor, tensor_told),
            compared::<STORAGE_WORDS>(&storage, storage_told),
        ) else {
            return Ok(None);
        };
        let filled = u64::from_ne_bytes([filling; 8]);
        let bits = tensor_bits.iter_mut().chain(&mut storage_bits);
        for (bits, word) in bits.zip(tensor.iter().chain(&storage)) {
            *bits |= word ^ filled;
        }
        kept.push(row);
    }
    Ok(Some((tensor_bits, storage_bits)))
}

/// Memory that is free, and that the next objects are likely to get, holds this byte.
fn fill_freed(byte: u8) {
    let filled = |size| {
        // Memory that comes as zeros is another.
        let mut block = Vec::with_capacity(size);
        block.resize(size, byte);
        block
    };
    let sizes = (2..64).flat_map(|n| [16 * n; 8]);
    let blocks: Vec<Vec<u8>> = sizes.map(filled).collect();
    drop(std::hint::black_box(blocks));
}
