//! Counts and displacements from Python: one integer, or one per rank. Knows no tensor.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// One integer, or one per rank.
pub enum Numbers {
    /// The same for all ranks.
    Each(i64),
    /// One per rank.
    PerRank(Vec<i64>),
}

/// Reads an integer, as Python's index protocol has it.
///
/// # Errors
/// `TypeError` or `OverflowError` naming the argument.
pub fn integer(name: &str, what: &str, obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    obj.extract::<i64>().map_err(|error| {
        let py = obj.py();
        let words = format!("{name}: {what} must be an integer ({})", error.value(py));
        let wrapped = match error.is_instance_of::<PyTypeError>(py) {
            true => PyTypeError::new_err(words),
            false => pyo3::exceptions::PyOverflowError::new_err(words),
        };
        wrapped.set_cause(py, Some(error));
        wrapped
    })
}

/// Reads an integer or a sequence of `ranks` integers.
///
/// # Errors
/// `ValueError` when the sequence has another length, `TypeError` when an item is no integer.
pub fn numbers(name: &str, what: &str, obj: &Bound<'_, PyAny>, ranks: usize) -> PyResult<Numbers> {
    // An array of NumPy's is both an index and a sequence: having a length decides.
    let single = obj.is_instance_of::<PyInt>() || obj.len().is_err();
    if single {
        return integer(name, what, obj).map(Numbers::Each);
    }
    sequence(name, what, obj, ranks).map(Numbers::PerRank)
}

/// Reads a sequence of `ranks` integers.
///
/// # Errors
/// As for [`numbers`].
pub fn sequence(
    name: &str,
    what: &str,
    obj: &Bound<'_, PyAny>,
    ranks: usize,
) -> PyResult<Vec<i64>> {
    let found = obj.len()?;
    if found != ranks {
        return Err(PyValueError::new_err(format!(
            "{name}: {what}: expecting {ranks} items, got {found}"
        )));
    }
    (0..ranks)
        .map(|rank| integer(name, what, &obj.get_item(rank)?))
        .collect()
}

/// `total` elements over `ranks`, the first ranks taking one more where it does not divide.
pub fn spread(total: usize, ranks: usize) -> Vec<i64> {
    let (each, more) = (total / ranks.max(1), total % ranks.max(1));
    (0..ranks)
        .map(|rank| (each + usize::from(rank < more)) as i64)
        .collect()
}

/// Displacements of blocks that follow each other. Saturates: bounds are checked where the tensor is known.
pub fn contiguous(counts: &[i64]) -> Vec<i64> {
    let start = counts.iter().scan(0i64, |next, &count| {
        let start = *next;
        *next = start.saturating_add(count);
        Some(start)
    });
    start.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_gives_every_element_once() {
        for total in 0..20 {
            for ranks in 1..6 {
                let counts = spread(total, ranks);
                assert_eq!(counts.iter().sum::<i64>(), total as i64);
                assert!(counts.windows(2).all(|w| w[0] == w[1] || w[0] == w[1] + 1));
            }
        }
    }

    #[test]
    fn contiguous_blocks_start_where_the_last_one_ended() {
        assert_eq!(contiguous(&[3, 0, 2]), [0, 3, 3]);
        assert_eq!(contiguous(&[i64::MAX, 1, 1]), [0, i64::MAX, i64::MAX]);
        assert!(contiguous(&[]).is_empty());
    }
}
