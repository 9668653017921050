//! Lower-case methods whose objects are small: `bcast` and `scatter` as one message that has the pickle and its length
//! (`tensor_comm::shares`), and `recv` of a pickle in which no tensor lies. What is longer, and what the program has another
//! pickle for, is Python's (`_objects.py`). Knows pickles as bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi_runtime::{Basic, StatusBuf};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyTuple, PyType};
use tensor_comm::shares::{Given, LONGEST};
use tensor_comm::{Comm, Error, Foreign, Kind, Told, lane};

use crate::method::{self, Entry};
use crate::mpi4py::{self, Mpi4py};
use crate::params::{Default, Param, Slots, Takes, sort};
use crate::pickles::{is_atom, is_builtin};
use crate::{errors, interrupt, p2p};

/// What Python does for these methods; `_objects.py` says what each is.
#[derive(FromPyObject)]
pub struct Hooks {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    pickled: Py<PyAny>,
    loaded: Py<PyAny>,
    listed: Py<PyAny>,
    bcast: Py<PyAny>,
    bcast_rest: Py<PyAny>,
    scatter: Py<PyAny>,
    scatter_rest: Py<PyAny>,
    recv: Py<PyAny>,
    recv_rest: Py<PyAny>,
    /// Messages of this many bytes and more may hold tensors.
    whole: usize,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();
/// Whether the program pickles by Python's own functions.
static STOCK: AtomicBool = AtomicBool::new(false);

/// Says whether it does.
pub fn set_stock(stock: bool) {
    STOCK.store(stock, Ordering::Relaxed);
}

const fn param(name: &'static str, takes: Takes, required: bool) -> Param {
    Param {
        name,
        takes,
        required,
    }
}

/// The parameters of the methods: those of mpi4py's, with its defaults.
const SHARED: [Param; 2] = [
    param("obj", Takes::Pass(""), true),
    param("root", Takes::Int(Default::Zero), false),
];
const SCATTERED: [Param; 2] = [
    param("sendobj", Takes::Pass(""), true),
    param("root", Takes::Int(Default::Zero), false),
];
const RECEIVED: [Param; 4] = [
    param("buf", Takes::Pass("None"), false),
    param("source", Takes::Int(Default::AnySource), false),
    param("tag", Takes::Int(Default::AnyTag), false),
    param("status", Takes::Status, false),
];

type Body = for<'py> fn(
    &'static Mpi4py,
    &'static Hooks,
    &Bound<'py, PyAny>,
    &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>>;

/// Name, parameters, text signature, and what is done.
const METHODS: [(&str, &[Param], &str, Body); 3] = [
    (
        "bcast",
        &SHARED,
        "($self, obj, root=0)\n--\n\nBroadcast.",
        bcast,
    ),
    (
        "scatter",
        &SCATTERED,
        "($self, sendobj, root=0)\n--\n\nScatter.",
        scatter,
    ),
    (
        "recv",
        &RECEIVED,
        "($self, buf=None, source=ANY_SOURCE, tag=ANY_TAG, status=None)\n--\n\nBlocking receive in standard mode.",
        recv,
    ),
];

const ENTRIES: [Entry; 3] = [entry::<0>, entry::<1>, entry::<2>];

/// The descriptors of these methods, by name.
///
/// # Errors
/// What Python raised; `AttributeError` where mpi4py lacks a method.
pub fn methods<'py>(py: Python<'py>, hooks: Hooks) -> PyResult<Bound<'py, PyDict>> {
    let mpi4py = mpi4py::bound()?;
    let _ = HOOKS.set(hooks);
    let class = mpi4py.module(py).getattr("Comm")?.cast_into::<PyType>()?;
    let (made, constants) = (PyDict::new(py), mpi4py.mpi().constants());
    for ((name, _, doc, _), entry) in METHODS.iter().zip(ENTRIES) {
        let (source, tag) = (constants.any_source, constants.any_tag);
        let doc = doc.replace("ANY_SOURCE", &source.to_string());
        let doc = format!("{name}{}", doc.replace("ANY_TAG", &tag.to_string()));
        made.set_item(name, method::define(&class, name, &doc, entry)?)?;
    }
    Ok(made)
}

/// What CPython calls for method `N`.
///
/// # Safety
/// - The contract of a fast method with keywords: attached, `slf` of the class that the descriptor was made
///   for, `nargs` arguments and one per name in `kwnames` alive during the call.
unsafe extern "C" fn entry<const N: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let called = catch_unwind(AssertUnwindSafe(|| {
            let (mpi4py, hooks) = (mpi4py::bound()?, HOOKS.get().ok_or_else(errors::unbound)?);
            let (name, params, _, body) = METHODS[N];
            // SAFETY:
            // - CPython holds `slf` and the arguments during the call.
            let slf = unsafe { Borrowed::from_ptr(py, slf) };
            let nargs = usize::try_from(nargs).unwrap_or(0);
            // SAFETY:
            // - As above; this is the contract of the calling convention.
            let slots = unsafe { sort(py, name, params, args, nargs, kwnames) }?;
            body(mpi4py, hooks, &slf, &slots).map(Bound::unbind)
        }));
        method::hand_back(py, called)
    })
}

/// A collective of objects that has its number and was compared, where due.
struct Call {
    foreign: Foreign,
    announced: Option<tensor_comm::Announced>,
    root: i32,
    /// This rank and how many there are.
    ranks: (usize, usize),
}

impl Call {
    /// Numbers it; `None` where it is mpi4py's messages on every rank. Then what is returned besides is kept until
    /// the call has returned.
    fn open(
        mpi4py: &Mpi4py,
        slf: &Bound<'_, PyAny>,
        kind: Kind,
        root: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Option<Call>, Option<tensor_comm::Announced>)> {
        let (py, raw) = (slf.py(), mpi4py.comm(slf)?);
        if raw == mpi4py.mpi().comm_null() {
            // mpi4py raises what MPI says about it.
            return Ok((None, None));
        }
        let core = |error: Error| errors::operation(py, error);
        let foreign = Comm::new(mpi4py.mpi(), raw)
            .and_then(|comm| Foreign::open(&comm, kind))
            .map_err(core)?;
        let root = root.map_or(Ok(0), |root| p2p::int("root", root));
        let announced = match foreign.matters() {
            true => {
                let told = Told {
                    root: root.as_ref().ok().copied(),
                    ..Told::default()
                };
                Some(interrupt::wait(py, || foreign.pass(&told)).map_err(core)?)
            }
            false => None,
        };
        match (foreign.ranks(), root) {
            (Some(ranks), Ok(root)) => {
                let call = Call {
                    foreign,
                    announced,
                    root,
                    ranks,
                };
                Ok((Some(call), None))
            }
            // mpi4py refuses a root that is none.
            _ => Ok((None, announced)),
        }
    }

    fn is_root(&self) -> bool {
        usize::try_from(self.root) == Ok(self.ranks.0)
    }
}

/// Says of a call that was mpi4py's whether it ended well.
fn ended<'py>(
    announced: Option<tensor_comm::Announced>,
    result: PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let (Some(mut announced), Ok(_)) = (announced, &result) {
        announced.ended_well();
    }
    result
}

fn bcast<'py>(
    mpi4py: &'static Mpi4py,
    hooks: &'static Hooks,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, obj) = (slf.py(), required(slots, 0)?);
    let (call, announced) = Call::open(mpi4py, slf, const { Kind::named("bcast") }, root(slots))?;
    let Some(mut call) = call else {
        return ended(
            announced,
            hooks.bcast.bind(py).call1(given(py, slf, slots)?),
        );
    };
    let announced = call.announced.take();
    let share = |given| {
        let shared = interrupt::wait(py, || call.foreign.share(given, call.root));
        shared.map_err(|error| errors::operation(py, error))
    };
    let result = if call.is_root() {
        let (pickle, size) = hooks.pickle(obj)?;
        match pickle.cast_exact::<PyBytes>() {
            Ok(bytes) if size <= LONGEST => {
                share(Some(Given::Short(bytes.as_bytes())))?;
                match is_atom(obj) {
                    true => Ok(obj.clone()),
                    false => hooks.load(bytes),
                }
            }
            _ => {
                share(Some(Given::Follows(size as u64)))?;
                let rest = hooks.bcast_rest.bind(py);
                rest.call1((slf, pickle, size, call.root))
            }
        }
    } else {
        match share(None)?.value() {
            Ok(value) => hooks.load(&PyBytes::new(py, value)),
            Err(size) => {
                let rest = hooks.bcast_rest.bind(py);
                rest.call1((slf, py.None(), size, call.root))
            }
        }
    };
    ended(announced, result)
}

fn scatter<'py>(
    mpi4py: &'static Mpi4py,
    hooks: &'static Hooks,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, obj) = (slf.py(), required(slots, 0)?);
    let kind = const { Kind::named("scatter") };
    let (call, announced) = Call::open(mpi4py, slf, kind, root(slots))?;
    let Some(mut call) = call else {
        let real = hooks.scatter.bind(py);
        return ended(announced, real.call1(given(py, slf, slots)?));
    };
    let announced = call.announced.take();
    let share = |given: Option<&[Given<'_>]>| {
        let shared = interrupt::wait(py, || call.foreign.share_out(given, call.root));
        shared.map_err(|error| errors::operation(py, error))
    };
    let (pickles, came) = if call.is_root() {
        let pickles = hooks.list(obj, call.ranks.1)?;
        let short = pickles.iter().all(|one| one.as_bytes().len() <= LONGEST);
        let given: Vec<Given<'_>> = (pickles.iter())
            .map(|one| match short {
                true => Given::Short(one.as_bytes()),
                false => Given::Follows(one.as_bytes().len() as u64),
            })
            .collect();
        let came = share(Some(&given))?;
        (Some(pickles), came)
    } else {
        (None, share(None)?)
    };
    let result = match came.value() {
        Ok(value) => hooks.load(&PyBytes::new(py, value)),
        Err(size) => {
            let rest = hooks.scatter_rest.bind(py);
            rest.call1((slf, pickles, size, call.root))
        }
    };
    ended(announced, result)
}

fn recv<'py>(
    mpi4py: &'static Mpi4py,
    hooks: &'static Hooks,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, mpi) = (slf.py(), mpi4py.mpi());
    let [buf, from, with, status, ..] = slots;
    let number = |slot: &Option<Borrowed<'_, 'py, PyAny>>, any| match slot {
        Some(given) if !given.is_none() => given.cast_exact::<PyInt>().ok()?.extract().ok(),
        _ => Some(any),
    };
    let constants = mpi.constants();
    let (source, tag) = (
        number(from, constants.any_source),
        number(with, constants.any_tag),
    );
    let raw = mpi4py.comm(slf)?;
    let simple = buf.as_ref().is_none_or(|buf| buf.is_none())
        && source != Some(constants.proc_null)
        && raw != mpi.comm_null()
        && STOCK.load(Ordering::Relaxed)
        && lane::is_open();
    let (true, Some(source), Some(tag)) = (simple, source, tag) else {
        let mut all: Vec<Bound<'py, PyAny>> = vec![slf.clone()];
        for slot in slots.iter().take(RECEIVED.len()) {
            all.push(
                (*slot).map_or_else(|| py.None().into_bound(py), |given| Bound::clone(&given)),
            );
        }
        return hooks.recv.bind(py).call1(PyTuple::new(py, all)?);
    };
    let comm = Comm::new(mpi, raw).map_err(|error| errors::operation(py, error))?;
    let (given, mut own) = (mpi4py.status(status.as_deref())?, StatusBuf::new());
    let filled = p2p::Shared::new(match given.is_ignore() {
        true => own.as_ptr(),
        false => given,
    });
    let failed = |error: mpi_runtime::Error| errors::mpi(py, &error);
    // SAFETY:
    // - the status is the caller's, who has it during the call, or our own.
    let found = interrupt::wait(py, || unsafe {
        mpi.mprobe(source, tag, comm.raw(), filled.get())
    });
    let mut message = found.map_err(failed)?;
    let byte = mpi
        .datatype(Basic::Byte)
        .unwrap_or_else(|| mpi.datatype_null());
    // SAFETY:
    // - MPI_Mprobe has just filled it.
    let size = unsafe { mpi.get_elements(filled.get(), byte) }.map_err(failed)?;
    let size = size.and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size < hooks.whole) else {
        let class = mpi4py.module(py).getattr(intern!(py, "Message"))?;
        let message = class.call_method1(intern!(py, "fromhandle"), (message.raw(),))?;
        let status = status.as_deref().cloned();
        return hooks.recv_rest.bind(py).call1((message, size, status));
    };
    let bytes = PyBytes::new_with(py, size, |room| {
        // SAFETY:
        // - the room is of as many bytes, and nobody else has it; the message was matched here. The status is as above.
        let received = interrupt::wait(py, || unsafe {
            let status = filled.get();
            mpi.mrecv(room.as_mut_ptr(), size as i64, byte, &mut message, status)
        });
        received.map_err(failed)
    })?;
    match size {
        // A message without a pickle, as mpi4py has it.
        0 => Ok(py.None().into_bound(py)),
        _ => hooks.load(&bytes),
    }
}

/// A parameter that must be given.
fn required<'a, 'py>(slots: &'a Slots<'_, 'py>, at: usize) -> PyResult<&'a Bound<'py, PyAny>> {
    slots[at].as_deref().ok_or_else(errors::unbound)
}

fn root<'a, 'py>(slots: &'a Slots<'_, 'py>) -> Option<&'a Bound<'py, PyAny>> {
    slots[1].as_deref()
}

/// The arguments of a `bcast` or `scatter`, for Python's function.
fn given<'py>(
    py: Python<'py>,
    slf: &Bound<'py, PyAny>,
    slots: &Slots<'_, 'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let given = slots.iter().flatten().map(|given| Bound::clone(given));
    PyTuple::new(
        py,
        std::iter::once(slf.clone())
            .chain(given)
            .collect::<Vec<_>>(),
    )
}

impl Hooks {
    /// The pickle of an object, as bytes or in parts, and its size.
    fn pickle<'py>(&self, obj: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let py = obj.py();
        if STOCK.load(Ordering::Relaxed) && is_builtin(obj) {
            let bytes = self
                .dumps
                .bind(py)
                .call1((obj, 5))?
                .cast_into::<PyBytes>()?;
            let size = bytes.as_bytes().len();
            return Ok((bytes.into_any(), size));
        }
        self.pickled.bind(py).call1((obj,))?.extract()
    }

    /// The pickles of one object for each of `ranks`.
    fn list<'py>(
        &self,
        obj: &Bound<'py, PyAny>,
        ranks: usize,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let py = obj.py();
        if let Ok(list) = obj.cast_exact::<PyList>()
            && STOCK.load(Ordering::Relaxed)
            && list.len() == ranks
            && is_builtin(obj)
        {
            let dumps = self.dumps.bind(py);
            return (list.iter())
                .map(|item| Ok(dumps.call1((item, 5))?.cast_into::<PyBytes>()?))
                .collect();
        }
        let pickles: Vec<Bound<'py, PyBytes>> =
            self.listed.bind(py).call1((obj, ranks))?.extract()?;
        match pickles.len() == ranks {
            true => Ok(pickles),
            false => Err(PyValueError::new_err("one pickle for each rank")),
        }
    }

    fn load<'py>(&self, bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        let loads = match STOCK.load(Ordering::Relaxed) {
            true => &self.loads,
            false => &self.loaded,
        };
        loads.bind(bytes.py()).call1((bytes,))
    }
}
