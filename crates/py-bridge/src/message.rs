//! mpi4py's message forms (`tensor`, `[tensor, count]`, `[tensor, (count, displ)]`, `[tensor, counts,
//! displs, datatype]`, …) as arguments of an operation. Knows the forms, not the operations.

use dlpack_core::{DType, Device, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use tensor_comm::{Arg, Blocks, Part};

use crate::buffer;
use crate::counts::{self, Numbers};
use crate::datatype::{self, Reading, Use};
use crate::errors::{self, ExportError};
use crate::framework::Intent;
use crate::loan::Held;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::registry;
use crate::request::Borrowed;

/// A message in its parts, as the caller wrote them.
pub struct Spec<'py> {
    /// The tensor, `None` or `BOTTOM`.
    pub tensor: Bound<'py, PyAny>,
    counts: Option<Bound<'py, PyAny>>,
    displs: Option<Bound<'py, PyAny>>,
    datatype: Option<Bound<'py, PyAny>>,
}

/// What a message became.
#[allow(
    clippy::large_enum_variant,
    reason = "made and taken apart on the stack, once per argument"
)]
pub enum Message {
    /// An argument of our own path; its loan is in the [`Loans`].
    Ours(Arg),
    /// Raw memory under the caller's Datatype: mpi4py's own method does that.
    Raw,
}

/// What one call borrows, until it is over.
pub struct Loans<'a> {
    /// The mpi4py that is bound.
    pub mpi4py: &'a Mpi4py,
    /// What has to be waited for.
    pub order: StreamOrder,
    sent: SmallVec<[Held; 1]>,
    received: SmallVec<[Held; 1]>,
}

impl<'a> Loans<'a> {
    /// Nothing borrowed yet.
    pub fn new(mpi4py: &'a Mpi4py) -> Loans<'a> {
        Loans {
            mpi4py,
            order: StreamOrder::default(),
            sent: SmallVec::new(),
            received: SmallVec::new(),
        }
    }

    /// The loans alone, for an operation that goes on after the call.
    pub fn into_borrowed(self) -> Borrowed {
        Borrowed {
            sent: self.sent,
            received: self.received,
        }
    }

    fn keep(&mut self, loan: Held, intent: Intent) {
        match intent {
            Intent::Send => self.sent.push(loan),
            Intent::Receive => self.received.push(loan),
        }
    }

    /// MPI may have written: tells every framework whose tensor received.
    ///
    /// # Errors
    /// The first exception that a framework raised.
    #[inline]
    pub fn wrote(&self, py: Python<'_>) -> PyResult<()> {
        self.received
            .iter()
            .map(|loan| loan.wrote(py))
            .fold(Ok(()), PyResult::and)
    }
}

/// Is this a message form rather than a tensor? Buffers come first, as in mpi4py.
fn is_form(msg: &Bound<'_, PyAny>) -> bool {
    (msg.is_instance_of::<PyList>() || msg.is_instance_of::<PyTuple>()) && !buffer::has_buffer(msg)
}

fn is_datatype(mpi4py: &Mpi4py, obj: &Bound<'_, PyAny>) -> bool {
    obj.is_instance_of::<PyString>() || mpi4py.is_datatype(obj)
}

impl<'py> Spec<'py> {
    /// Takes a message apart. In vector messages a list is counts and only a tuple is `(counts,
    /// displs)`, in simple ones both are `(count, displ)`, as in mpi4py.
    ///
    /// # Errors
    /// `ValueError` for a form that does not exist.
    pub fn unpack(
        mpi4py: &Mpi4py,
        name: &str,
        msg: &Bound<'py, PyAny>,
        vector: bool,
    ) -> PyResult<Spec<'py>> {
        let mut spec = Spec {
            tensor: msg.clone(),
            counts: None,
            displs: None,
            datatype: None,
        };
        if !is_form(msg) {
            return Ok(spec);
        }
        let items: SmallVec<[Bound<'py, PyAny>; 4]> = msg.try_iter()?.collect::<PyResult<_>>()?;
        let given = |obj: &Bound<'py, PyAny>| Some(obj.clone()).filter(|obj| !obj.is_none());
        let mut counts = None;
        match &items[..] {
            [tensor, second] => {
                spec.tensor = tensor.clone();
                match is_datatype(mpi4py, second) {
                    true => spec.datatype = given(second),
                    false => counts = given(second),
                }
            }
            [tensor, second, third] => {
                spec.tensor = tensor.clone();
                counts = given(second);
                match third.is_none() || is_datatype(mpi4py, third) {
                    true => spec.datatype = given(third),
                    false => spec.displs = given(third),
                }
            }
            [tensor, second, third, fourth] => {
                spec.tensor = tensor.clone();
                counts = given(second);
                spec.displs = given(third);
                spec.datatype = given(fourth);
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "{name}: message: expecting 2 to 4 items [tensor, count, displ, datatype], got {}",
                    items.len()
                )));
            }
        }
        let Some(counts) = counts else {
            return Ok(spec);
        };
        let is_pair =
            counts.is_instance_of::<PyTuple>() || (!vector && counts.is_instance_of::<PyList>());
        if items.len() == 4 || !is_pair {
            spec.counts = Some(counts);
            return Ok(spec);
        }
        if spec.displs.is_some() {
            return Err(PyValueError::new_err(format!(
                "{name}: message: the displacement is given twice"
            )));
        }
        let pair: SmallVec<[Bound<'py, PyAny>; 2]> = counts.try_iter()?.collect::<PyResult<_>>()?;
        match &pair[..] {
            [count, displ] => {
                spec.counts = given(count);
                spec.displs = given(displ);
                Ok(spec)
            }
            _ => Err(PyValueError::new_err(format!(
                "{name}: message: expecting (count, displ), got {} items; per-rank counts are a list",
                pair.len()
            ))),
        }
    }

    /// The tensor of the message, or that the caller means raw memory.
    fn view(
        &self,
        loans: &mut Loans<'_>,
        name: &str,
        intent: Intent,
        usage: Use,
    ) -> PyResult<Option<View>> {
        let mpi4py = loans.mpi4py;
        let py = self.tensor.py();
        let datatype = match &self.datatype {
            Some(given) => Some(datatype::resolve(mpi4py, given)?),
            None => None,
        };
        if mpi4py.is_bottom(&self.tensor) {
            return Ok(None);
        }
        if self.tensor.is_none() {
            let Some(datatype) = datatype else {
                return Err(PyTypeError::new_err(format!(
                    "{name}: expected a tensor, got None"
                )));
            };
            return match datatype::element(mpi4py, &datatype)? {
                Some(dtype) => nothing(py, name, dtype).map(Some),
                None => Ok(None),
            };
        }
        let loan = match registry::lend(name, &self.tensor, intent, &mut loans.order) {
            Ok(loan) => loan,
            // Elements that have no meaning here (foreign byte order) are still bytes under a Datatype.
            Err(_)
                if datatype.is_some() && usage == Use::Move && buffer::has_buffer(&self.tensor) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Some(datatype) = datatype {
            let dtype = loan.view().dtype();
            if datatype::reading(mpi4py, name, dtype, &datatype, usage)? == Reading::Raw {
                return Ok(None);
            }
        }
        let (view, held) = loan.split();
        loans.keep(held, intent);
        Ok(Some(view))
    }
}

/// A tensor without elements, for sides that MPI ignores and for `[None, 0, datatype]`.
///
/// # Errors
/// `BufferError` for an element type that no tensor can have.
pub fn nothing(py: Python<'_>, name: &str, dtype: DType) -> PyResult<View> {
    // SAFETY:
    // - Without elements nothing is reachable.
    let view =
        unsafe { View::from_parts(std::ptr::null_mut(), &[0], None, dtype, Device::CPU, false) };
    view.map_err(|error| ExportError::from(error).named(py, name))
}

/// A simple message: consecutive elements. With `blocks` the count is per block and the part holds
/// all of them.
///
/// # Errors
/// `TypeError`, `BufferError` or `ValueError`, naming the argument.
pub fn simple(
    loans: &mut Loans<'_>,
    name: &str,
    msg: &Bound<'_, PyAny>,
    intent: Intent,
    usage: Use,
    blocks: usize,
) -> PyResult<Message> {
    let py = msg.py();
    // The common case first: a tensor alone, of a type seen before.
    if blocks < 2
        && let Some(exporter) = registry::known(msg)
    {
        let (view, held) =
            registry::lend_by(&*exporter, name, msg, intent, &mut loans.order)?.split();
        loans.keep(held, intent);
        return Ok(Message::Ours(Arg::Part(Part::whole(view))));
    }
    let spec = Spec::unpack(loans.mpi4py, name, msg, false)?;
    let Some(view) = spec.view(loans, name, intent, usage)? else {
        return Ok(Message::Raw);
    };
    if spec.counts.is_none() && spec.displs.is_none() && blocks < 2 {
        return Ok(Message::Ours(Arg::Part(Part::whole(view))));
    }
    let displ = match &spec.displs {
        Some(displ) => counts::integer(name, "the displacement", displ)?,
        None => 0,
    };
    let numel = view.packed_numel().unwrap_or(view.numel()) as i64;
    let count = match &spec.counts {
        Some(count) => {
            let count = counts::integer(name, "the count", count)?;
            count.checked_mul(blocks.max(1) as i64).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "{name}: {count} elements for each of {blocks} ranks are too many"
                ))
            })?
        }
        None => {
            let rest = numel.saturating_sub(displ).max(0);
            if blocks >= 2 && rest % blocks as i64 != 0 {
                return Err(PyValueError::new_err(format!(
                    "{name}: cannot infer count, {rest} elements are not a multiple of the required number of blocks {blocks}"
                )));
            }
            rest
        }
    };
    if view.packed_numel().is_some() {
        return whole_packed(name, view, displ, count, numel);
    }
    Part::new(view, name, displ, count)
        .map(|part| Message::Ours(Arg::Part(part)))
        .map_err(|error| errors::operation(py, error))
}

/// Elements of less than a byte have no addresses of their own.
fn whole_packed(name: &str, view: View, displ: i64, count: i64, numel: i64) -> PyResult<Message> {
    if displ == 0 && count == numel {
        return Ok(Message::Ours(Arg::Part(Part::whole(view))));
    }
    Err(PyValueError::new_err(format!(
        "{name}: {} elements are packed, so only all {numel} of them can be moved, not {count} from {displ} on",
        view.dtype()
    )))
}

/// A vector message: one block of elements per rank.
///
/// # Errors
/// As for [`simple`].
pub fn vector(
    loans: &mut Loans<'_>,
    name: &str,
    msg: &Bound<'_, PyAny>,
    intent: Intent,
    ranks: usize,
) -> PyResult<Message> {
    let py = msg.py();
    let spec = Spec::unpack(loans.mpi4py, name, msg, true)?;
    let Some(view) = spec.view(loans, name, intent, Use::Move)? else {
        return Ok(Message::Raw);
    };
    let counts = match &spec.counts {
        None => counts::spread(view.numel(), ranks),
        Some(given) => match counts::numbers(name, "counts", given, ranks)? {
            Numbers::Each(count) => vec![count; ranks],
            Numbers::PerRank(counts) => counts,
        },
    };
    let displs = match &spec.displs {
        None => counts::contiguous(&counts),
        Some(given) => match counts::numbers(name, "displs", given, ranks)? {
            Numbers::Each(stride) => (0..ranks as i64)
                .map(|r| stride.saturating_mul(r))
                .collect(),
            Numbers::PerRank(displs) => displs,
        },
    };
    Blocks::new(view, name, counts, displs)
        .map(|blocks| Message::Ours(Arg::Blocks(blocks)))
        .map_err(|error| errors::operation(py, error))
}
