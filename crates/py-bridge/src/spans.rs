//! The bytes that the sides of an operation reach, to tell whether what is sent is also received into. Knows no
//! operation.

use pyo3::PyResult;
use tensor_comm::View;

use crate::message::Spec;

/// From the first byte to the one after the last.
pub type Span = (usize, usize);

/// What blocks of elements reach, each from its first element on with its count; of a tensor with gaps, or whose
/// elements have no addresses of their own, all that it reaches.
pub fn of(view: &View, blocks: impl Iterator<Item = (i64, i64)>) -> Vec<Span> {
    let at = |offset: isize| view.data().wrapping_offset(offset) as usize;
    if !view.layout().is_c_contiguous() || view.packed_numel().is_some() {
        let (low, high) = view.layout().span();
        return vec![(at(low), at(high))];
    }
    let within = |index: i64| index.clamp(0, view.numel() as i64) as usize;
    let byte = |index: i64| at((within(index) * view.itemsize()) as isize);
    let mut spans: Vec<Span> = blocks
        .map(|(first, count)| (byte(first), byte(first.saturating_add(count))))
        .filter(|(start, end)| start < end)
        .collect();
    spans.sort_unstable();
    spans
}

/// The first element and the count of each block of a message of so many blocks, or with a count and a displacement
/// for each.
///
/// # Errors
/// `ValueError` or `TypeError` naming the argument.
pub fn parts(
    spec: &Spec<'_>,
    name: &str,
    numel: usize,
    (blocks, vector): (usize, bool),
) -> PyResult<Vec<(i64, i64)>> {
    if vector {
        let (counts, displs) = spec.blocks(name, numel, blocks)?;
        return Ok(displs.into_iter().zip(counts).collect());
    }
    let (count, displ) = spec.range(name)?;
    let first = displ.unwrap_or(0);
    let count = match count {
        Some(count) => count.saturating_mul(blocks.max(1) as i64),
        None => (numel as i64).saturating_sub(first),
    };
    Ok(vec![(first, count)])
}

/// Whether two sides share a byte; each is as [`of`] gives it.
pub fn meet(mut one: &[Span], mut other: &[Span]) -> bool {
    while let ([(start, end), rest @ ..], [(begin, stop), more @ ..]) = (one, other) {
        if end <= begin {
            one = rest;
        } else if stop <= start {
            other = more;
        } else {
            return start < end && begin < stop;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::meet;

    #[test]
    fn spans_meet_where_a_byte_is_common() {
        let every: Vec<Vec<(usize, usize)>> = (0u32..1 << 5)
            .map(|bits| (0..5).filter(move |i| bits >> i & 1 == 1))
            .map(|bytes| bytes.map(|i| (3 * i, 3 * i + 3)).collect())
            .collect();
        for (i, one) in every.iter().enumerate() {
            for (j, other) in every.iter().enumerate() {
                assert_eq!(meet(one, other), i & j != 0, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn blocks_of_one_side_may_share_bytes() {
        assert!(meet(&[(0, 9), (1, 2)], &[(3, 5)]));
        assert!(meet(&[(3, 5)], &[(0, 2), (0, 9), (1, 2)]));
        assert!(!meet(&[(0, 9), (1, 2), (20, 22)], &[(9, 20), (22, 30)]));
    }
}
