//! The short way's blocks of one array, one per rank. Knows no collective.

use super::Flat;

/// Elements of which each rank has a block.
#[derive(Debug)]
pub struct Blocks {
    flat: Flat,
    /// One count per rank, then one displacement per rank, in elements.
    numbers: Vec<i64>,
}

impl Blocks {
    /// Blocks of `numbers`: one count per rank, then one displacement per rank, in elements; `None` where one is negative
    /// or leaves the elements, or where blocks that are `received` do not follow each other.
    #[inline]
    #[must_use]
    pub fn new(flat: Flat, numbers: Vec<i64>, received: bool) -> Option<Blocks> {
        let (counts, displs) = numbers.split_at(numbers.len() / 2);
        let mut free = 0;
        for (&count, &displ) in counts.iter().zip(displs) {
            let (from, count) = (usize::try_from(displ).ok()?, usize::try_from(count).ok()?);
            if count == 0 {
                continue;
            }
            let end = from.checked_add(count)?;
            if end > flat.count || (received && from < free) {
                return None;
            }
            free = end;
        }
        (counts.len() == displs.len()).then_some(Blocks { flat, numbers })
    }

    /// All elements of the array.
    #[inline]
    pub(super) fn flat(&self) -> &Flat {
        &self.flat
    }

    /// Elements of a rank's block.
    #[inline]
    pub(super) fn of(&self, rank: usize) -> Option<usize> {
        let counts = self.numbers.get(..self.ranks())?;
        usize::try_from(*counts.get(rank)?).ok()
    }

    /// How many ranks have one.
    #[inline]
    pub(super) fn ranks(&self) -> usize {
        self.numbers.len() / 2
    }

    /// Counts and displacements in units, `units` of which are an element; `None` where one does not fit a C `int`.
    #[inline]
    pub(super) fn in_units(self, units: usize) -> Option<Vec<i64>> {
        let mut numbers = self.numbers;
        for number in &mut numbers {
            *number = number.checked_mul(units as i64)?;
            i32::try_from(*number).ok()?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use dlpack_core::DType;

    use super::*;

    fn blocks(numbers: &[i64], received: bool) -> Option<Blocks> {
        let flat = Flat {
            data: std::ptr::dangling_mut(),
            count: 10,
            dtype: DType::F64,
        };
        Blocks::new(flat, numbers.to_vec(), received)
    }

    #[test]
    fn what_leaves_the_elements_is_none() {
        assert!(blocks(&[3, 7, 0, 3], true).is_some());
        assert!(blocks(&[0, 10, 10, 0], true).is_some());
        for wrong in [
            [3, 8, 0, 3],
            [-1, 1, 0, 0],
            [1, 1, 0, -1],
            [i64::MAX, 1, 1, 0],
            [1, 1, 0, i64::MAX],
        ] {
            assert!(blocks(&wrong, false).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn blocks_may_overlap_where_they_are_sent_alone() {
        for numbers in [[3, 3, 0, 2], [3, 3, 4, 0]] {
            assert!(blocks(&numbers, false).is_some() && blocks(&numbers, true).is_none());
        }
    }

    #[test]
    fn units_that_do_not_fit_are_none() {
        let units = |units| blocks(&[3, 0, 0, 9], false)?.in_units(units);
        assert_eq!(units(2), Some(vec![6, 0, 0, 18]));
        assert_eq!(units(1 << 30), None);
    }
}
