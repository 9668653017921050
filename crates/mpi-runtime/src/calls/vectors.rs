//! Arrays of counts and displacements for the v-collectives: narrowed to C ints, or passed whole to the `_c` functions.

use super::fits;
use libc::c_int;
use smallvec::SmallVec;

/// The arrays of an immediate v-collective, which MPI reads until the operation completes: one behind the other, each from
/// the beginning of a word on.
#[derive(Debug)]
#[must_use = "MPI reads these arrays until the request completes"]
pub struct CountArrays {
    words: Box<[u64]>,
}

/// What an array is made of: C ints, `MPI_Count`s or handles.
pub(crate) trait Entry: Copy {
    /// The bits of one in the lower half of a word, where two share one.
    fn bits(self) -> u64;
}

impl Entry for c_int {
    fn bits(self) -> u64 {
        u64::from(self as u32)
    }
}

impl Entry for i64 {
    fn bits(self) -> u64 {
        self as u64
    }
}

impl Entry for usize {
    fn bits(self) -> u64 {
        self as u64
    }
}

/// Arrays that are being laid out.
#[derive(Default)]
pub(crate) struct Laid(Vec<u64>);

impl Laid {
    /// Room for as many words.
    pub(crate) fn with_room(words: usize) -> Laid {
        Laid(Vec::with_capacity(words))
    }

    /// Adds an array; the word that it begins in.
    pub(crate) fn add<T: Entry>(&mut self, values: impl ExactSizeIterator<Item = T>) -> usize {
        let first = self.0.len();
        if size_of::<T>() == size_of::<u64>() {
            self.0.extend(values.map(T::bits));
            return first;
        }
        self.0.resize(first + values.len().div_ceil(2), 0);
        for (at, value) in values.enumerate() {
            // In memory the even one comes first.
            let half = (at % 2 == 0) == cfg!(target_endian = "little");
            self.0[first + at / 2] |= value.bits() << if half { 0 } else { 32 };
        }
        first
    }

    /// All of them, which stay where they are.
    pub(crate) fn done(self) -> CountArrays {
        CountArrays {
            words: self.0.into_boxed_slice(),
        }
    }
}

impl CountArrays {
    /// The array that begins in this word.
    pub(crate) fn array<T: Entry>(&self, first: usize) -> *const T {
        self.words.as_ptr().wrapping_add(first).cast()
    }

    /// Copies of arrays of counts, narrowed to C ints.
    pub(crate) fn narrow<const N: usize>(arrays: [&[i64]; N]) -> (CountArrays, [*const c_int; N]) {
        CountArrays::copy(arrays, |value| value as c_int)
    }

    /// Copies of arrays of counts.
    pub(crate) fn wide<const N: usize>(arrays: [&[i64]; N]) -> (CountArrays, [*const i64; N]) {
        CountArrays::copy(arrays, |value| value)
    }

    fn copy<T: Entry, const N: usize>(
        arrays: [&[i64]; N],
        convert: impl Fn(i64) -> T + Copy,
    ) -> (CountArrays, [*const T; N]) {
        let mut laid = Laid::with_room(arrays.iter().map(|array| array.len()).sum());
        let firsts = arrays.map(|array| laid.add(array.iter().map(|&value| convert(value))));
        let kept = laid.done();
        let pointers = firsts.map(|first| kept.array(first));
        (kept, pointers)
    }
}

/// Up to this many ranks a blocking v-collective allocates nothing.
pub(crate) type Narrow = SmallVec<[c_int; 32]>;

pub(crate) fn narrow(values: &[i64]) -> Narrow {
    values.iter().map(|value| *value as c_int).collect()
}

pub(crate) fn all_fit(values: &[i64]) -> bool {
    values.iter().copied().all(fits)
}

/// The first value that does not fit, or zero: for the error message.
pub(crate) fn widest(values: &[i64]) -> i64 {
    values
        .iter()
        .copied()
        .find(|value| !fits(*value))
        .unwrap_or(0)
}

/// A blocking v-collective: `[scalar counts] {arrays}`, otherwise like `counted!`.
macro_rules! vector {
    ($mpi:expr, $name:literal, $plain:ident / $large:ident [$($count:ident),*] {$($array:ident),+} ($($arg:expr),* $(,)?)) => {{
        let code = $crate::calls::with_table!($mpi, |table| {
            if true $(&& $crate::calls::fits($count))* $(&& $crate::calls::vectors::all_fit($array))+ {
                $(let $count = $count as libc::c_int;)*
                $(let $array = $crate::calls::vectors::narrow($array);)+
                $(let $array = $array.as_ptr();)+
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - Handles are live ones of this library: their constructors demand it.
                // - Buffers are valid and arrays long enough by the contract of the enclosing unsafe fn.
                unsafe { (table.$plain)($($arg),*) }
            } else if let Some(large) = table.$large {
                $(let $array = $array.as_ptr();)+
                // SAFETY:
                // - As above; counts are MPI_Count and displacements MPI_Aint here, both 64 bits wide.
                unsafe { large($($arg),*) }
            } else {
                return Err($crate::calls::too_large($name, &[
                    $((stringify!($count), $count),)*
                    $((stringify!($array), $crate::calls::vectors::widest($array)),)+
                ]));
            }
        });
        $mpi.check($name, code)
    }};
}

/// An immediate v-collective: the same, and the arrays are kept in a [`CountArrays`].
macro_rules! ivector {
    ($mpi:expr, $name:literal, $plain:ident / $large:ident [$($count:ident),*] {$($array:ident),+} ($($arg:expr),* $(,)?) => $out:ident) => {{
        let (code, bits, kept) = $crate::calls::with_table!($mpi, |table| {
            let mut $out = Default::default();
            let (code, kept) = if true $(&& $crate::calls::fits($count))* $(&& $crate::calls::vectors::all_fit($array))+ {
                $(let $count = $count as libc::c_int;)*
                let (kept, [$($array),+]) = $crate::CountArrays::narrow([$($array),+]);
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - Handles are live ones of this library: their constructors demand it.
                // - Buffers are valid and arrays long enough by the contract of the enclosing unsafe fn.
                // - The copied arrays live in `kept`, which the caller keeps until the request completes.
                (unsafe { (table.$plain)($($arg),*) }, kept)
            } else if let Some(large) = table.$large {
                let (kept, [$($array),+]) = $crate::CountArrays::wide([$($array),+]);
                // SAFETY:
                // - As above; counts are MPI_Count and displacements MPI_Aint here, both 64 bits wide.
                (unsafe { large($($arg),*) }, kept)
            } else {
                return Err($crate::calls::too_large($name, &[
                    $((stringify!($count), $count),)*
                    $((stringify!($array), $crate::calls::vectors::widest($array)),)+
                ]));
            };
            (code, $crate::handle::NativeHandle::to_bits($out), kept)
        });
        $mpi.check($name, code).map(|()| (Request::from_bits(bits), kept))
    }};
}

pub(crate) use {ivector, vector};

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// - As many are there.
    unsafe fn read<T: Copy>(array: *const T, count: usize) -> Vec<T> {
        // SAFETY:
        // - the caller's promise.
        (0..count)
            .map(|at| unsafe { array.add(at).read() })
            .collect()
    }

    #[test]
    fn kept_arrays_stay_where_they_are() {
        let (kept, [first, second]) = CountArrays::narrow([&[1, -2, 3], &[4, 5]]);
        let moved = Box::new(kept);
        // SAFETY:
        // - the arrays are of these lengths, and `moved` has them.
        let (first, second) = unsafe { (read(first, 3), read(second, 2)) };
        assert_eq!((&first[..], &second[..]), (&[1, -2, 3][..], &[4, 5][..]));
        drop(moved);
    }

    #[test]
    fn arrays_of_either_width_lie_in_one_place() {
        let wide = [1 << 40, -1];
        let mut laid = Laid::default();
        let at = (
            laid.add([7, -7, 8].into_iter()),
            laid.add(wide.into_iter()),
            laid.add([usize::MAX, 3].into_iter()),
            laid.add([9].into_iter()),
        );
        let kept = laid.done();
        // SAFETY:
        // - the arrays are of these lengths, and `kept` has them.
        unsafe {
            assert_eq!(read::<c_int>(kept.array(at.0), 3), [7, -7, 8]);
            assert_eq!(read::<i64>(kept.array(at.1), 2), wide);
            assert_eq!(read::<usize>(kept.array(at.2), 2), [usize::MAX, 3]);
            assert_eq!(read::<c_int>(kept.array(at.3), 1), [9]);
        }
        let (kept, [array]) = CountArrays::wide([&wide]);
        // SAFETY:
        // - as above.
        assert_eq!(unsafe { read(array, 2) }, wide);
        drop(kept);
    }

    #[test]
    fn what_does_not_fit_is_found() {
        assert!(all_fit(&[0, i64::from(c_int::MAX), i64::from(c_int::MIN)]));
        let values = [1, i64::from(c_int::MAX) + 1, 2];
        assert!(!all_fit(&values));
        assert_eq!(widest(&values), 1 << 31);
    }
}
