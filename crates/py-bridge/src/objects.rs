//! The lower-case methods that are native while objects are small: their table, their descriptors, and how one call of them
//! begins. What is longer, and what the program has another pickle for, is Python's (`_objects.py`).

mod messages;
mod moved;
mod pickled;
mod reduced;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{ffi, intern};
use tensor_comm::{Comm, Error, Foreign, Kind, Told};

pub use pickled::{Hooks, set_stock};

use crate::method::{self, Entry};
use crate::mpi4py::{self, Mpi4py};
use crate::params::{Default, Param, Slots, Takes, sort};
use crate::{announce, errors, interrupt, p2p};

/// What Python does for these methods, and what each is in Python, in the order of the table.
static HOOKS: OnceLock<(Hooks, Vec<Py<PyAny>>)> = OnceLock::new();

const fn pass(name: &'static str, required: bool) -> Param {
    Param {
        name,
        takes: Takes::Pass("None"),
        required,
    }
}

const fn number(name: &'static str, default: Default) -> Param {
    Param {
        name,
        takes: Takes::Int(default),
        required: matches!(default, Default::Required),
    }
}

const STATUS: Param = Param {
    name: "status",
    takes: Takes::Status,
    required: false,
};
const OP: Param = Param {
    name: "op",
    takes: Takes::Op,
    required: false,
};
/// The parameters of the methods: those of mpi4py's, with its defaults.
const OBJ: [Param; 2] = [pass("obj", true), number("root", Default::Zero)];
const TO_ALL: [Param; 1] = [pass("sendobj", true)];
const TO_ROOT: [Param; 2] = [pass("sendobj", true), number("root", Default::Zero)];
const REDUCED: [Param; 2] = [pass("sendobj", true), OP];
const REDUCED_TO_ROOT: [Param; 3] = [pass("sendobj", true), OP, number("root", Default::Zero)];
const RECEIVED: [Param; 4] = [
    pass("buf", false),
    number("source", Default::AnySource),
    number("tag", Default::AnyTag),
    STATUS,
];
const EXCHANGED: [Param; 7] = [
    pass("sendobj", true),
    number("dest", Default::Required),
    number("sendtag", Default::Zero),
    pass("recvbuf", false),
    number("source", Default::AnySource),
    number("recvtag", Default::AnyTag),
    STATUS,
];

type Body = for<'py> fn(&Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>>;

/// A method: the class that has it, its name, its parameters, and what is done.
struct Row {
    class: &'static str,
    name: &'static str,
    params: &'static [Param],
    body: Body,
}

const fn row(name: &'static str, params: &'static [Param], body: Body) -> Row {
    Row {
        class: "Comm",
        name,
        params,
        body,
    }
}

const fn prefix(name: &'static str, params: &'static [Param], body: Body) -> Row {
    Row {
        class: "Intracomm",
        ..row(name, params, body)
    }
}

const METHODS: [Row; 11] = [
    row("bcast", &OBJ, moved::bcast),
    row("scatter", &TO_ROOT, moved::scatter),
    row("gather", &TO_ROOT, moved::gather),
    row("allgather", &TO_ALL, moved::allgather),
    row("alltoall", &TO_ALL, moved::alltoall),
    row("reduce", &REDUCED_TO_ROOT, reduced::reduce),
    row("allreduce", &REDUCED, reduced::allreduce),
    prefix("scan", &REDUCED, reduced::scan),
    prefix("exscan", &REDUCED, reduced::exscan),
    row("recv", &RECEIVED, messages::recv),
    row("sendrecv", &EXCHANGED, messages::sendrecv),
];

const ENTRIES: [Entry; 11] = [
    entry::<0>,
    entry::<1>,
    entry::<2>,
    entry::<3>,
    entry::<4>,
    entry::<5>,
    entry::<6>,
    entry::<7>,
    entry::<8>,
    entry::<9>,
    entry::<10>,
];

/// The descriptors of these methods, by class and name; `python` has each as Python has it.
///
/// # Errors
/// What Python raised; `KeyError` and `AttributeError` where Python or mpi4py lacks a method.
pub fn methods<'py>(
    py: Python<'py>,
    hooks: Hooks,
    python: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let mpi4py = mpi4py::bound()?;
    let listed = METHODS.iter().map(|row| {
        let one = python.get_item(row.name)?;
        Ok(one.unbind())
    });
    let _ = HOOKS.set((hooks, listed.collect::<PyResult<_>>()?));
    let made = PyDict::new(py);
    for (row, entry) in METHODS.iter().zip(ENTRIES) {
        let class = mpi4py.module(py).getattr(row.class)?;
        let real = class.getattr(row.name)?.getattr(intern!(py, "__doc__"))?;
        let words: Option<String> = real.extract()?;
        let doc = format!(
            "{}\n--\n\n{}",
            method::signature(row.name, row.params, mpi4py),
            words
                .as_deref()
                .and_then(|words| words.lines().last())
                .unwrap_or_default()
                .trim()
        );
        let class = class.cast_into::<PyType>()?;
        let methods = match made.get_item(row.class)? {
            Some(methods) => methods.cast_into::<PyDict>()?,
            None => {
                let methods = PyDict::new(py);
                made.set_item(row.class, &methods)?;
                methods
            }
        };
        methods.set_item(row.name, method::define(&class, row.name, &doc, entry)?)?;
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
            let (mpi4py, (hooks, python)) =
                (mpi4py::bound()?, HOOKS.get().ok_or_else(errors::unbound)?);
            let row = &METHODS[N];
            // SAFETY:
            // - CPython holds `slf` and the arguments during the call.
            let slf = unsafe { Borrowed::from_ptr(py, slf) };
            let nargs = usize::try_from(nargs).unwrap_or(0);
            // SAFETY:
            // - As above; this is the contract of the calling convention.
            let slots = unsafe { sort(py, row.name, row.params, args, nargs, kwnames) }?;
            let asked = Asked {
                mpi4py,
                hooks,
                python: python[N].bind(py),
                row,
                slf: &slf,
                slots: &slots,
            };
            (row.body)(&asked).map(Bound::unbind)
        }));
        method::hand_back(py, called)
    })
}

/// A call of one of these methods.
struct Asked<'a, 'py> {
    mpi4py: &'static Mpi4py,
    hooks: &'static Hooks,
    /// The method as Python has it.
    python: &'a Bound<'py, PyAny>,
    row: &'static Row,
    slf: &'a Bound<'py, PyAny>,
    slots: &'a Slots<'a, 'py>,
}

/// A collective of objects that has its number and was compared, where due.
struct Call {
    foreign: Foreign,
    root: i32,
    /// This rank and how many there are.
    rank: usize,
    size: usize,
}

impl Call {
    fn is_root(&self) -> bool {
        usize::try_from(self.root) == Ok(self.rank)
    }
}

impl<'py> Asked<'_, 'py> {
    fn py(&self) -> Python<'py> {
        self.slf.py()
    }

    /// A parameter that must be given.
    fn required(&self, at: usize) -> PyResult<&Bound<'py, PyAny>> {
        self.slots[at].as_deref().ok_or_else(errors::unbound)
    }

    /// What was given for the parameter that takes this, if any has it.
    fn given(&self, takes: impl Fn(Takes) -> bool) -> Option<&Bound<'py, PyAny>> {
        let at = self
            .row
            .params
            .iter()
            .position(|param| takes(param.takes))?;
        self.slots[at].as_deref()
    }

    /// The call as Python carries it out.
    fn otherwise(&self) -> PyResult<Bound<'py, PyAny>> {
        let given = self.slots.iter().map_while(Option::as_deref);
        let args: Vec<_> = std::iter::once(self.slf).chain(given).collect();
        let rest = self.row.params.iter().zip(self.slots).skip(args.len());
        let mut named: Option<Bound<'py, PyDict>> = None;
        for (param, slot) in rest {
            if let Some(given) = slot {
                let named = named.get_or_insert_with(|| PyDict::new(self.py()));
                named.set_item(param.name, given)?;
            }
        }
        let args = PyTuple::new(self.py(), args)?;
        self.python.call(args, named.as_ref())
    }

    /// Numbers a collective, and lets `work` carry it out where all members come through here; else it is Python's, with
    /// mpi4py's messages on every rank.
    fn collective(
        &self,
        kind: Kind,
        work: impl FnOnce(&Call) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, raw) = (self.py(), self.mpi4py.comm(self.slf)?);
        if raw == self.mpi4py.mpi().comm_null() {
            // mpi4py raises what MPI says about it.
            return self.otherwise();
        }
        let core = |error: Error| errors::operation(py, error);
        let foreign = Comm::new(self.mpi4py.mpi(), raw)
            .and_then(|comm| Foreign::open(&comm, kind))
            .map_err(core)?;
        let has = |takes: fn(Takes) -> bool| self.row.params.iter().any(|param| takes(param.takes));
        let (is_root, is_op) = (
            |takes| matches!(takes, Takes::Int(_)),
            |takes| takes == Takes::Op,
        );
        let root = self.given(is_root);
        let root = root.map_or(Ok(0), |root| p2p::int("root", root)).ok();
        let announced = match foreign.matters() {
            true => {
                let op = || announce::operation(self.mpi4py, self.given(is_op));
                let told = Told {
                    root: root.filter(|_| has(is_root)),
                    op: if has(is_op) { op() } else { None },
                    ..Told::default()
                };
                Some(interrupt::wait(py, || foreign.pass(&told)).map_err(core)?)
            }
            false => None,
        };
        let result = match (foreign.ranks(), root) {
            (Some((rank, size)), Some(root))
                if usize::try_from(root).is_ok_and(|root| root < size) =>
            {
                work(&Call {
                    foreign,
                    root,
                    rank,
                    size,
                })
            }
            // mpi4py refuses a root that is none.
            _ => self.otherwise(),
        };
        if let (Some(mut announced), Ok(_)) = (announced, &result) {
            announced.ended_well();
        }
        result
    }

    /// Lets MPI work without the interpreter.
    fn wait<T: Send>(&self, work: impl Send + FnOnce() -> tensor_comm::Result<T>) -> PyResult<T> {
        interrupt::wait(self.py(), work).map_err(|error| errors::operation(self.py(), error))
    }
}
