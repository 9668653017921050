//! mpi4py's message forms (`tensor`, `[tensor, count]`, `[tensor, (count, displ)]`, `[tensor, counts,
//! displs, datatype]`, …) as arguments of an operation. Knows the forms, not the operations.

use dlpack_core::{DType, Device, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use tensor_comm::{Arg, Blocks, Part};

use crate::bounds::{self, Reach};
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

    /// The Datatype that the caller gave.
    ///
    /// # Errors
    /// As for [`datatype::resolve`].
    pub fn datatype(&self, mpi4py: &Mpi4py) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.datatype {
            Some(given) => datatype::resolve(mpi4py, given).map(Some),
            None => Ok(None),
        }
    }

    /// Count and displacement of a simple message, where they are given.
    ///
    /// # Errors
    /// `TypeError` or `OverflowError` when one is no integer.
    pub fn range(&self, name: &str) -> PyResult<(Option<i64>, Option<i64>)> {
        let read = |what: &str, given: &Option<Bound<'py, PyAny>>| {
            let read = |obj| counts::integer(name, what, obj);
            given.as_ref().map(read).transpose()
        };
        Ok((
            read("the count", &self.counts)?,
            read("the displacement", &self.displs)?,
        ))
    }

    /// Counts and displacements of a vector message over `ranks` peers, for a tensor of `numel` elements.
    ///
    /// # Errors
    /// `ValueError` or `TypeError` naming the argument.
    pub fn blocks(&self, name: &str, numel: usize, ranks: usize) -> PyResult<(Vec<i64>, Vec<i64>)> {
        let counts = match &self.counts {
            None => counts::spread(numel, ranks),
            Some(given) => match counts::numbers(name, "counts", given, ranks)? {
                Numbers::Each(count) => vec![count; ranks],
                Numbers::PerRank(counts) => counts,
            },
        };
        let displs = match &self.displs {
            None => counts::contiguous(&counts),
            Some(given) => match counts::numbers(name, "displs", given, ranks)? {
                Numbers::Each(stride) => (0..ranks as i64)
                    .map(|r| stride.saturating_mul(r))
                    .collect(),
                Numbers::PerRank(displs) => displs,
            },
        };
        Ok((counts, displs))
    }

    /// Counts and displacements of a vector message over `ranks` peers, where counts are given.
    ///
    /// # Errors
    /// As for [`vector`].
    pub fn given_blocks(&self, name: &str, ranks: usize) -> PyResult<Option<(Vec<i64>, Vec<i64>)>> {
        match self.counts {
            Some(_) => self.blocks(name, 0, ranks).map(Some),
            None => Ok(None),
        }
    }

    /// Counts and displacements as they were given, `None` where they were not.
    pub fn raw_counts(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>) {
        let given = |part: &Option<Bound<'py, PyAny>>| match part {
            Some(part) => part.clone(),
            None => py.None().into_bound(py),
        };
        (given(&self.counts), given(&self.displs))
    }

    /// Checks what explicit counts of a simple message reach in `length` bytes of raw memory.
    ///
    /// # Errors
    /// `ValueError` naming the argument.
    pub fn check_raw(
        &self,
        mpi4py: &Mpi4py,
        name: &str,
        blocks: usize,
        length: usize,
    ) -> PyResult<()> {
        let (Some(count), displ) = self.range(name)? else {
            return Ok(());
        };
        let Some(reach) = self.reach(mpi4py)? else {
            return Ok(());
        };
        let all = count.saturating_mul(blocks.max(1) as i64);
        reach.check(name, displ.unwrap_or(0), all, length)
    }

    fn check_raw_blocks(
        &self,
        mpi4py: &Mpi4py,
        name: &str,
        ranks: usize,
        length: usize,
    ) -> PyResult<()> {
        let (true, Some(reach)) = (self.counts.is_some(), self.reach(mpi4py)?) else {
            return Ok(());
        };
        let (counts, displs) = self.blocks(name, 0, ranks)?;
        for (rank, (&count, displ)) in counts.iter().zip(displs).enumerate() {
            if count != 0 {
                let name = format!("{name}: block of rank {rank}");
                reach.check(&name, displ, count, length)?;
            }
        }
        Ok(())
    }

    fn reach(&self, mpi4py: &Mpi4py) -> PyResult<Option<Reach>> {
        let Some(datatype) = self.datatype(mpi4py)? else {
            return Ok(None);
        };
        let handle = mpi4py.datatype(&datatype)?;
        // mpi4py raises what MPI says about the null handle.
        if handle == mpi4py.mpi().datatype_null() {
            return Ok(None);
        }
        Reach::of(self.tensor.py(), mpi4py.mpi(), handle).map(Some)
    }

    /// The tensor of the message, or that the caller means raw memory.
    fn view(
        &self,
        loans: &mut Loans<'_>,
        name: &str,
        intent: Intent,
        usage: Use,
    ) -> PyResult<Content> {
        let mpi4py = loans.mpi4py;
        let py = self.tensor.py();
        let datatype = self.datatype(mpi4py)?;
        if mpi4py.is_bottom(&self.tensor) {
            return Ok(Content::Raw(None));
        }
        if self.tensor.is_none() {
            let Some(datatype) = datatype else {
                return Err(PyTypeError::new_err(format!(
                    "{name}: expected a tensor, got None"
                )));
            };
            return match datatype::element(mpi4py, &datatype)? {
                Some(dtype) => nothing(py, name, dtype).map(Content::Elements),
                None => Ok(Content::Raw(None)),
            };
        }
        let loan = match registry::lend_once(name, &self.tensor, intent, &mut loans.order) {
            Ok(loan) => loan,
            // Elements that have no meaning here (foreign byte order) are still bytes under a Datatype.
            Err(_)
                if datatype.is_some() && usage == Use::Move && buffer::has_buffer(&self.tensor) =>
            {
                return Ok(Content::Raw(bounds::length(&self.tensor).ok()));
            }
            Err(error) => return Err(error),
        };
        if let Some(datatype) = datatype {
            let dtype = loan.view().dtype();
            if datatype::reading(mpi4py, name, dtype, &datatype, usage)? == Reading::Raw {
                return Ok(Content::Raw(Some(loan.view().layout().nbytes())));
            }
        }
        let (view, held) = loan.split();
        loans.keep(held, intent);
        Ok(Content::Elements(view))
    }
}

/// What a message is about.
#[allow(
    clippy::large_enum_variant,
    reason = "made and taken apart on the stack, once per argument"
)]
enum Content {
    /// Elements of a tensor.
    Elements(View),
    /// Raw memory of so many bytes, where that is known.
    Raw(Option<usize>),
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

/// The common case of a simple message, a tensor alone of a type seen before: puts it where it is wanted, since copies
/// of what describes it cost as much as all else.
///
/// # Errors
/// As for [`simple`].
#[inline]
pub fn alone(
    loans: &mut Loans<'_>,
    name: &str,
    msg: &Bound<'_, PyAny>,
    intent: Intent,
    into: &mut Arg,
) -> PyResult<bool> {
    let Some(exporter) = registry::known(msg) else {
        return Ok(false);
    };
    let loan = registry::lend_once_by(&*exporter, name, msg, intent, &mut loans.order)?;
    let (view, held) = loan.split();
    *into = Arg::Part(Part::whole(view));
    loans.keep(held, intent);
    Ok(true)
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
    if blocks < 2 {
        let mut arg = Arg::Absent;
        if alone(loans, name, msg, intent, &mut arg)? {
            return Ok(Message::Ours(arg));
        }
    }
    let spec = Spec::unpack(loans.mpi4py, name, msg, false)?;
    let view = match spec.view(loans, name, intent, usage)? {
        Content::Elements(view) => view,
        Content::Raw(length) => {
            if let Some(length) = length {
                spec.check_raw(loans.mpi4py, name, blocks, length)?;
            }
            return Ok(Message::Raw);
        }
    };
    if spec.counts.is_none() && spec.displs.is_none() && blocks < 2 {
        return Ok(Message::Ours(Arg::Part(Part::whole(view))));
    }
    let (count, displ) = spec.range(name)?;
    let displ = displ.unwrap_or(0);
    let numel = view.packed_numel().unwrap_or(view.numel()) as i64;
    let count = match count {
        Some(count) => count.checked_mul(blocks.max(1) as i64).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{name}: {count} elements for each of {blocks} ranks are too many"
            ))
        })?,
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
    let view = match spec.view(loans, name, intent, Use::Move)? {
        Content::Elements(view) => view,
        Content::Raw(length) => {
            if let Some(length) = length {
                spec.check_raw_blocks(loans.mpi4py, name, ranks, length)?;
            }
            return Ok(Message::Raw);
        }
    };
    let (counts, displs) = spec.blocks(name, view.numel(), ranks)?;
    Blocks::new(view, name, counts, displs)
        .map(|blocks| Message::Ours(Arg::Blocks(blocks)))
        .map_err(|error| errors::operation(py, error))
}
