//! Collectives that mpi4py's own methods carry out, as Python announces them: numbered, compared with the other
//! ranks', watched and traced. Knows no method by name.

use std::sync::Mutex;

use mpi_runtime::BuiltinOp;
use pyo3::intern;
use pyo3::prelude::*;
use tensor_comm::{Comm, Error, Foreign, Op, Told};

use crate::lend::{self, Gives, Lend};
use crate::mpi4py::{self, Mpi4py};
use crate::table::{Class, Row};
use crate::{collective, errors, interrupt};

/// Which collective: made once per method, and kept for ever.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Kind {
    kind: tensor_comm::Kind,
    /// What `same` is, in the words of an error.
    label: String,
}

#[pymethods]
impl Kind {
    #[new]
    #[pyo3(signature = (name, label="", /))]
    fn new(name: &str, label: &str) -> Kind {
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        Kind {
            kind: tensor_comm::Kind::named(name),
            label: label.to_owned(),
        }
    }
}

/// Where the collectives of a window or a file are numbered.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Seat(tensor_comm::Seat);

/// A collective under way: a context, left when the call has returned.
#[pyclass(frozen, module = "dlmpi._native")]
pub struct Announced {
    announced: Mutex<Option<tensor_comm::Announced>>,
    seat: Option<tensor_comm::Seat>,
}

#[pymethods]
impl Announced {
    /// The place of the window or file that the call makes.
    fn seat(&self) -> Option<Seat> {
        self.seat.clone().map(Seat)
    }

    fn __enter__(slf: Py<Announced>) -> Py<Announced> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>)) {
        let taken = self.announced.lock().map(|mut slot| slot.take());
        if let (Ok(Some(mut announced)), true) = (taken, exception.0.is_none()) {
            announced.ended_well();
        }
    }
}

/// Root, operation, and what else MPI wants equal, where there are such.
type Arguments<'a, 'py> = (
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
);

/// Numbers a collective on a communicator and compares it, where due. `None` where nobody need know when the call
/// has returned; always something where `keep` says so.
///
/// # Errors
/// `MismatchError` on every rank alike; what MPI reports; `RuntimeError` where this process may not communicate.
pub fn announce<'py>(
    comm: &Bound<'py, PyAny>,
    kind: &Kind,
    arguments: Arguments<'_, 'py>,
    keep: bool,
) -> PyResult<Option<Announced>> {
    let (py, mpi4py) = (comm.py(), mpi4py::bound()?);
    let raw = mpi4py.comm(comm)?;
    if raw == mpi4py.mpi().comm_null() {
        // mpi4py raises what MPI says about it.
        return Ok(None);
    }
    let foreign = Comm::new(mpi4py.mpi(), raw)
        .and_then(|comm| Foreign::open(&comm, kind.kind))
        .map_err(|error| errors::operation(py, error))?;
    if !foreign.matters() && !keep {
        return Ok(None);
    }
    let told = told(mpi4py, kind, arguments, None)?;
    let seat = if keep { foreign.seat() } else { None };
    pass(py, &foreign, &told).map(|announced| {
        Some(Announced {
            announced: Mutex::new(Some(announced)),
            seat,
        })
    })
}

/// The same on a window or a file.
///
/// # Errors
/// As for [`announce`].
pub fn announce_at<'py>(
    py: Python<'py>,
    seat: Option<&Bound<'py, Seat>>,
    kind: &Kind,
    same: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Announced>> {
    let mpi4py = mpi4py::bound()?;
    let (foreign, seat) = at(py, mpi4py, seat, kind.kind)?;
    if !foreign.matters() {
        return Ok(None);
    }
    let told = told(mpi4py, kind, (None, None, same), seat)?;
    pass(py, &foreign, &told).map(|announced| {
        Some(Announced {
            announced: Mutex::new(Some(announced)),
            seat: None,
        })
    })
}

/// Numbers a call on a window or a file. Without a seat, and on other threads than the main one, it is not numbered:
/// calls of such threads may overlap with collectives on the communicator, which MPI allows.
fn at<'a>(
    py: Python<'_>,
    mpi4py: &Mpi4py,
    seat: Option<&'a Bound<'_, Seat>>,
    kind: tensor_comm::Kind,
) -> PyResult<(Foreign, Option<&'a tensor_comm::Seat>)> {
    let seat = seat
        .map(|seat| &seat.get().0)
        .filter(|_| interrupt::on_main_thread());
    let foreign = match seat {
        Some(seat) => Foreign::at(seat, kind),
        None => Foreign::apart(mpi4py.mpi(), kind),
    };
    let foreign = foreign.map_err(|error| errors::operation(py, error))?;
    Ok((foreign, seat))
}

/// Compares without the interpreter.
fn pass(py: Python<'_>, foreign: &Foreign, told: &Told) -> PyResult<tensor_comm::Announced> {
    let passed = interrupt::wait(py, || foreign.pass(told));
    passed.map_err(|error| errors::operation(py, error))
}

/// What the ranks compare. An argument that says nothing is mpi4py's to refuse.
fn told<'py>(
    mpi4py: &Mpi4py,
    kind: &Kind,
    (root, op, same): Arguments<'_, 'py>,
    seat: Option<&tensor_comm::Seat>,
) -> PyResult<Told> {
    let op = op.and_then(|op| operation(mpi4py, Some(op)));
    let same = match same {
        Some(value) => Some(format!("{} {}", kind.label, value.str()?)),
        None => None,
    };
    let words: Vec<String> = seat.map(place).into_iter().chain(same).collect();
    Ok(Told {
        root: root.and_then(|root| root.extract().ok()),
        op,
        same: (!words.is_empty()).then(|| words.join(", ")),
    })
}

/// The operation of a reduction of objects, `SUM` where none is given.
pub(crate) fn operation(mpi4py: &Mpi4py, given: Option<&Bound<'_, PyAny>>) -> Option<Op> {
    match collective::operation(mpi4py, "op", given) {
        // mpi4py takes any callable: an operation of the caller's, whatever its handle.
        Err(_) if given.is_some_and(|op| op.is_callable()) => {
            Some(Op::Native(mpi4py.mpi().op(BuiltinOp::Sum)))
        }
        found => found.ok(),
    }
}

/// What window or file it is, alike on all ranks.
fn place(seat: &tensor_comm::Seat) -> String {
    format!("made by collective number {}", seat.number())
}

/// How the call of a row concerns other ranks.
pub(crate) enum Together {
    /// Not at all, or by MPI's own rules.
    Alone,
    /// A blocking collective.
    Here(Foreign, Told),
    /// A non-blocking one, which is numbered when it is carried.
    Started(Comm, tensor_comm::Kind),
}

impl Together {
    /// That of a method that lends its tensors to mpi4py's. Persistent ones are not compared: MPI lets ranks start them
    /// in any order. Nor are non-blocking ones on files, which may overlap with collectives on the communicator.
    ///
    /// # Errors
    /// As for [`announce`].
    pub fn of(
        mpi4py: &Mpi4py,
        row: &'static Row,
        lend: &Lend,
        slf: &Bound<'_, PyAny>,
    ) -> PyResult<Together> {
        let core = |error| errors::operation(slf.py(), error);
        let kind = || tensor_comm::Kind::named(row.name);
        match (row.class, lend.gives) {
            (_, Gives::Persistent) | (Class::File, Gives::Request) => Ok(Together::Alone),
            (Class::File, _) if row.name.contains("_all") || row.name.contains("_ordered") => {
                let held = slf.getattr(intern!(slf.py(), "_seat")).ok();
                let held = held.as_ref().and_then(|seat| seat.cast::<Seat>().ok());
                let (foreign, seat) = at(slf.py(), mpi4py, held, kind())?;
                let told = Told {
                    same: seat.map(place),
                    ..Told::default()
                };
                Ok(Together::Here(foreign, told))
            }
            (_, gives) if lend::is_collective(row) => {
                let raw = mpi4py.comm(slf)?;
                if raw == mpi4py.mpi().comm_null() {
                    return Ok(Together::Alone);
                }
                let comm = Comm::new(mpi4py.mpi(), raw).map_err(core)?;
                match gives {
                    Gives::Request => Ok(Together::Started(comm, kind())),
                    _ => Foreign::open(&comm, kind())
                        .map(|foreign| Together::Here(foreign, Told::default()))
                        .map_err(core),
                }
            }
            _ => Ok(Together::Alone),
        }
    }

    /// Compares, where due; what is returned is kept until the call has returned.
    ///
    /// # Errors
    /// As for [`announce`].
    pub fn announce(&self, py: Python<'_>) -> PyResult<Option<tensor_comm::Announced>> {
        match self {
            Together::Here(foreign, told) if foreign.matters() => pass(py, foreign, told).map(Some),
            _ => Ok(None),
        }
    }

    /// Tells the other ranks that this one refuses the call.
    pub fn refuse(self, py: Python<'_>, why: &PyErr) {
        let words = Error::Value(why.value(py).to_string());
        match self {
            Together::Alone => {}
            Together::Here(foreign, _) => drop(interrupt::wait(py, || foreign.refuse(words))),
            Together::Started(comm, kind) => collective::refuse_start(py, comm, kind, why),
        }
    }
}
