//! Arrays of counts and displacements for the v-collectives: narrowed to C ints, or passed whole to the `_c` functions.

use super::fits;
use libc::c_int;
use smallvec::SmallVec;

/// The arrays of an immediate v-collective, which MPI reads until the operation completes.
#[derive(Debug)]
#[must_use = "MPI reads these arrays until the request completes"]
pub struct CountArrays {
    narrow: Vec<Box<[c_int]>>,
    wide: Vec<Box<[i64]>>,
}

impl CountArrays {
    pub(crate) fn new() -> CountArrays {
        CountArrays {
            narrow: Vec::new(),
            wide: Vec::new(),
        }
    }

    /// A copy that lives as long as this value.
    pub(crate) fn keep_narrow(&mut self, values: &[i64]) -> *const c_int {
        let copy: Box<[c_int]> = values.iter().map(|value| *value as c_int).collect();
        let pointer = copy.as_ptr();
        self.narrow.push(copy);
        pointer
    }

    /// A copy that lives as long as this value.
    pub(crate) fn keep_wide(&mut self, values: &[i64]) -> *const i64 {
        let copy: Box<[i64]> = values.into();
        let pointer = copy.as_ptr();
        self.wide.push(copy);
        pointer
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
        let mut kept = $crate::CountArrays::new();
        let (code, bits) = $crate::calls::with_table!($mpi, |table| {
            let mut $out = Default::default();
            let code = if true $(&& $crate::calls::fits($count))* $(&& $crate::calls::vectors::all_fit($array))+ {
                $(let $count = $count as libc::c_int;)*
                $(let $array = kept.keep_narrow($array);)+
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - Handles are live ones of this library: their constructors demand it.
                // - Buffers are valid and arrays long enough by the contract of the enclosing unsafe fn.
                // - The copied arrays live in `kept`, which the caller keeps until the request completes.
                unsafe { (table.$plain)($($arg),*) }
            } else if let Some(large) = table.$large {
                $(let $array = kept.keep_wide($array);)+
                // SAFETY:
                // - As above; counts are MPI_Count and displacements MPI_Aint here, both 64 bits wide.
                unsafe { large($($arg),*) }
            } else {
                return Err($crate::calls::too_large($name, &[
                    $((stringify!($count), $count),)*
                    $((stringify!($array), $crate::calls::vectors::widest($array)),)+
                ]));
            };
            (code, $crate::handle::NativeHandle::to_bits($out))
        });
        $mpi.check($name, code).map(|()| (Request::from_bits(bits), kept))
    }};
}

pub(crate) use {ivector, vector};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_arrays_stay_where_they_are() {
        let mut kept = CountArrays::new();
        let first = kept.keep_narrow(&[1, 2, 3]);
        for _ in 0..100 {
            let _ = kept.keep_narrow(&[9; 10]);
        }
        let moved = kept;
        assert_eq!(moved.narrow[0].as_ptr(), first);
        assert_eq!(&*moved.narrow[0], [1, 2, 3]);
    }

    #[test]
    fn what_does_not_fit_is_found() {
        assert!(all_fit(&[0, i64::from(c_int::MAX), i64::from(c_int::MIN)]));
        let values = [1, i64::from(c_int::MAX) + 1, 2];
        assert!(!all_fit(&values));
        assert_eq!(widest(&values), 1 << 31);
    }
}
