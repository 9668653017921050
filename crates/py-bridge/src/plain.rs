//! Messages of plain arrays, read as mpi4py reads them: an array alone, or with counts, displacements and its own
//! Datatype. What is not that simple, and whatever is wrong, is `None`: `message.rs` reads it, or refuses it in words.
//! Knows no operation.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::DType;
use tensor_comm::lane::{Blocks, Flat, Typed};

use crate::framework::Intent;
use crate::mpi4py::Mpi4py;
use crate::registry;

/// An object that lives while this thread is attached and runs no Python code.
type Given<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// A message in its parts.
struct Parts<'a, 'py> {
    array: Given<'a, 'py>,
    flat: Flat,
    counts: Option<Given<'a, 'py>>,
    displs: Option<Given<'a, 'py>>,
}

/// The elements that a message names, of which there are as many for each of `blocks`, and the array that has them: to be
/// held while MPI works on it, since another thread may take it out of the message meanwhile.
#[inline]
pub fn flat<'py>(
    mpi4py: &Mpi4py,
    given: &Bound<'py, PyAny>,
    intent: Intent,
    blocks: usize,
) -> Option<(Flat, Bound<'py, PyAny>)> {
    let Parts {
        array,
        flat,
        counts,
        displs,
    } = parts(mpi4py, given, intent, false)?;
    let (count, displ) = match (counts, displs) {
        (None, None) => return Some((flat, array.to_owned())),
        (Some(count), None) => (int(&count)?, 0),
        (Some(count), Some(displ)) => (int(&count)?, int(&displ)?),
        (None, Some(_)) => return None,
    };
    let count = usize::try_from(count).ok()?.checked_mul(blocks)?;
    flat.part(usize::try_from(displ).ok()?, count)
        .map(|flat| (flat, array.to_owned()))
}

/// The block of each of `ranks` that a message names, and the array that has them, as [`flat`].
#[inline]
pub fn blocks<'py>(
    mpi4py: &Mpi4py,
    given: &Bound<'py, PyAny>,
    intent: Intent,
    ranks: usize,
) -> Option<(Blocks, Bound<'py, PyAny>)> {
    let Parts {
        array,
        flat,
        counts,
        displs,
    } = parts(mpi4py, given, intent, true)?;
    let mut numbers = Vec::with_capacity(2 * ranks);
    match counts {
        None => {
            let (each, more) = (flat.count / ranks.max(1), flat.count % ranks.max(1));
            numbers.extend((0..ranks).map(|rank| (each + usize::from(rank < more)) as i64));
        }
        Some(counts) => match int(&counts) {
            Some(count) => numbers.resize(ranks, i64::from(count)),
            None => sequence(&counts, ranks, &mut numbers)?,
        },
    }
    match displs {
        None => {
            let mut next = 0i64;
            for rank in 0..ranks {
                numbers.push(next);
                next = next.checked_add(*numbers.get(rank)?)?;
            }
        }
        Some(displs) => match int(&displs) {
            Some(stride) => numbers.extend((0..ranks as i64).map(|rank| i64::from(stride) * rank)),
            None => sequence(&displs, ranks, &mut numbers)?,
        },
    }
    let blocks = Blocks::new(flat, numbers, intent == Intent::Receive)?;
    Some((blocks, array.to_owned()))
}

/// The block of each of `ranks` that a message with a Datatype for each names, where all are the array's own, and that array,
/// as [`flat`].
#[inline]
pub fn typed<'py>(
    mpi4py: &Mpi4py,
    given: &Bound<'py, PyAny>,
    intent: Intent,
    ranks: usize,
) -> Option<(Typed, Bound<'py, PyAny>)> {
    let (items, n) = items::<4>(given.as_borrowed())?;
    let (counts, displs, types) = match n {
        3 => {
            let pair = items[1].filter(|pair| kind(pair) == Some(Kind::Tuple))?;
            let (counts, displs) = items_of_pair(pair)?;
            (counts, displs, items[2]?)
        }
        4 => (items[1]?, items[2]?, items[3]?),
        _ => return None,
    };
    let array = items[0]?;
    let flat = registry::flat(&array, intent)?;
    let own = tensor_comm::mpi_datatype(mpi4py.mpi(), flat.dtype)?;
    let is_own = |given: &Bound<'_, PyAny>| mpi4py.known_datatype(given) == Some(own);
    each(&types, ranks, |given| is_own(given).then_some(()))?;
    let mut numbers = Vec::with_capacity(2 * ranks);
    sequence(&counts, ranks, &mut numbers)?;
    sequence(&displs, ranks, &mut numbers)?;
    let typed = Typed::new(mpi4py.mpi(), flat, numbers)?;
    Some((typed, array.to_owned()))
}

/// The same parts as [`crate::message::Spec::unpack`] finds; the Datatype is the array's own.
#[inline]
fn parts<'a, 'py>(
    mpi4py: &Mpi4py,
    given: &'a Bound<'py, PyAny>,
    intent: Intent,
    vector: bool,
) -> Option<Parts<'a, 'py>> {
    let Some((items, n)) = items::<4>(given.as_borrowed()) else {
        return registry::flat(given, intent).map(|flat| Parts {
            array: given.as_borrowed(),
            flat,
            counts: None,
            displs: None,
        });
    };
    let array = items[0]?;
    let flat = registry::flat(&array, intent)?;
    let datatype = |given: Option<Given<'a, 'py>>| mpi4py.known_datatype(&*given?);
    let (counts, displs, named) = match n {
        2 => match datatype(items[1]) {
            Some(named) => (None, None, Some(named)),
            None => (items[1], None, None),
        },
        3 => match datatype(items[2]) {
            Some(named) => (items[1], None, Some(named)),
            None => (items[1], items[2], None),
        },
        4 => (items[1], items[2], Some(datatype(items[3])?)),
        _ => return None,
    };
    if let Some(named) = named
        && named != tensor_comm::mpi_datatype(mpi4py.mpi(), flat.dtype)?
    {
        return None;
    }
    let whole = Parts {
        array,
        flat,
        counts,
        displs,
    };
    let Some(counts) = counts.filter(|_| n < 4) else {
        return Some(whole);
    };
    // In a message of blocks a list is counts, and only a tuple is a pair.
    if kind(&counts)? == Kind::Other || (vector && kind(&counts)? == Kind::List) {
        return Some(whole);
    }
    match (items_of_pair(counts)?, displs) {
        ((count, displ), None) => Some(Parts {
            counts: Some(count),
            displs: Some(displ),
            ..whole
        }),
        _ => None,
    }
}

fn items_of_pair<'a, 'py>(pair: Given<'a, 'py>) -> Option<(Given<'a, 'py>, Given<'a, 'py>)> {
    match items::<2>(pair)? {
        ([Some(first), Some(second)], 2) => Some((first, second)),
        _ => None,
    }
}

/// What an object may be that has items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Tuple,
    Other,
}

/// `None` for `None` itself, and for subclasses of lists and tuples.
#[inline]
fn kind(given: &Bound<'_, PyAny>) -> Option<Kind> {
    let object = given.as_ptr();
    // SAFETY:
    // - any object may be asked for its type.
    unsafe {
        match () {
            () if ffi::PyList_CheckExact(object) != 0 => Some(Kind::List),
            () if ffi::PyTuple_CheckExact(object) != 0 => Some(Kind::Tuple),
            () if given.is_none() => None,
            () if ffi::PyList_Check(object) != 0 || ffi::PyTuple_Check(object) != 0 => None,
            () => Some(Kind::Other),
        }
    }
}

type Size = unsafe extern "C" fn(*mut ffi::PyObject) -> ffi::Py_ssize_t;
type Item = unsafe extern "C" fn(*mut ffi::PyObject, ffi::Py_ssize_t) -> *mut ffi::PyObject;

/// The functions for a list or a tuple.
#[inline]
fn access(given: &Bound<'_, PyAny>) -> Option<(Size, Item)> {
    match kind(given)? {
        Kind::List => Some((ffi::PyList_Size, ffi::PyList_GetItem)),
        Kind::Tuple => Some((ffi::PyTuple_Size, ffi::PyTuple_GetItem)),
        Kind::Other => None,
    }
}

/// The items of a list or tuple of up to `N`, and how many.
#[inline]
fn items<'a, 'py, const N: usize>(
    given: Given<'a, 'py>,
) -> Option<([Option<Given<'a, 'py>>; N], usize)> {
    let (py, (size, item)) = (given.py(), access(&given)?);
    // SAFETY:
    // - it is of the type that the function is for.
    let size = usize::try_from(unsafe { size(given.as_ptr()) }).ok()?;
    let mut items = [None; N];
    for (at, slot) in items.get_mut(..size)?.iter_mut().enumerate() {
        // SAFETY:
        // - `at` is below its size, and it is held, unchanged while this thread is attached.
        *slot =
            Some(unsafe { Borrowed::from_ptr(py, item(given.as_ptr(), at as ffi::Py_ssize_t)) });
    }
    Some((items, size))
}

/// Looks at each of `count` items of a list or tuple of as many.
#[inline]
fn each<'py>(
    given: &Bound<'py, PyAny>,
    count: usize,
    mut look: impl FnMut(&Bound<'py, PyAny>) -> Option<()>,
) -> Option<()> {
    let (size, item) = access(given)?;
    // SAFETY:
    // - it is of the type that the function is for.
    if usize::try_from(unsafe { size(given.as_ptr()) }) != Ok(count) {
        return None;
    }
    for at in 0..count {
        // SAFETY:
        // - `at` is below its size, and it is held, unchanged while this thread is attached.
        look(&*unsafe {
            Borrowed::from_ptr(given.py(), item(given.as_ptr(), at as ffi::Py_ssize_t))
        })?;
    }
    Some(())
}

/// Appends the integers of a sequence of `ranks`: a list, a tuple, or a plain array of one dimension.
#[inline]
pub fn sequence(given: &Bound<'_, PyAny>, ranks: usize, into: &mut Vec<i64>) -> Option<()> {
    if access(given).is_none() {
        return array(given, ranks, into);
    }
    each(given, ranks, |item| {
        into.push(int(item)?.into());
        Some(())
    })
}

fn array(given: &Bound<'_, PyAny>, ranks: usize, into: &mut Vec<i64>) -> Option<()> {
    let flat = registry::flat(given, Intent::Send).filter(|flat| flat.count == ranks)?;
    let dimensions = given.getattr(intern!(given.py(), "ndim")).ok()?;
    if int(&dimensions)? != 1 {
        return None;
    }
    for at in 0..ranks {
        // SAFETY:
        // - the array has as many elements of this dtype, is held, and unchanged while this thread is attached.
        let number = unsafe {
            match flat.dtype {
                DType::I32 => i64::from(flat.data.cast::<i32>().add(at).read_unaligned()),
                DType::I64 => flat.data.cast::<i64>().add(at).read_unaligned(),
                _ => return None,
            }
        };
        into.push(number);
    }
    Some(())
}

/// An integer that is one of Python's own and fits a C `int`.
#[inline]
pub fn int(given: &Bound<'_, PyAny>) -> Option<i32> {
    // SAFETY:
    // - any object may be asked for its type.
    if unsafe { ffi::PyLong_CheckExact(given.as_ptr()) } == 0 {
        return None;
    }
    let mut overflow = 0;
    // SAFETY:
    // - it is an integer, for which this raises nothing.
    let value = unsafe { ffi::PyLong_AsLongAndOverflow(given.as_ptr(), &raw mut overflow) };
    i32::try_from(value).ok().filter(|_| overflow == 0)
}
