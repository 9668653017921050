//! A tensor's memory as it lies, lent to a method of mpi4py's: windows, files, persistent operations. Counts
//! and displacements are elements of the caller's Datatype, else of the tensor's dtype, and are checked.

use dlpack_core::DType;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tensor_comm::{Capacity, Counts, Flow, Moat, Part, Shaped, Shifted};

use crate::borrow::Borrowed;
use crate::bounds::Reach;
use crate::buffer;
use crate::cargo::{Cargo, Described};
use crate::datatype::{self, Reading, Use};
use crate::delegate;
use crate::elements;
use crate::errors;
use crate::framework::Intent;
use crate::loan::Loan;
use crate::message::Spec;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::raw::Bytes;
use crate::registry;
use crate::spans;
use crate::staged;
use crate::transfer::Lent;

/// How a message is divided.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// Blocks of equal size; with `vector`, peers with a count and a displacement each.
    pub blocks: usize,
    /// One count and displacement per peer.
    pub vector: bool,
    /// The elements are meant in logical order, so memory in another order is not what is meant.
    pub logical: bool,
    /// It is a message to or from one rank.
    pub message: bool,
    /// How MPI is given it.
    pub to_mpi: Given,
}

/// How MPI is given memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Where it lies.
    AsItLies,
    /// As a copy of its elements, made at each start: it is also received into.
    Copied,
    /// At an address beside it, as the other side is at its own and the library would take both for one.
    Shifted,
}

/// The message as `[buffer, count, displacement, Datatype]`.
///
/// # Errors
/// What the tensor, its counts or its dtype have to say.
pub fn lend<'py>(
    mpi4py: &Mpi4py,
    name: &str,
    msg: &Bound<'py, PyAny>,
    flow: Flow,
    usage: Use,
    division: Division,
    lent: &mut Lent,
) -> PyResult<Bound<'py, PyAny>> {
    let intent = Intent::of(flow);
    let spec = Spec::unpack(mpi4py, name, msg, division.vector)?;
    if mpi4py.is_in_place(&spec.tensor) || mpi4py.is_bottom(&spec.tensor) {
        return Ok(msg.clone());
    }
    let given = spec.datatype(mpi4py)?;
    let mut order = StreamOrder::default();
    let loan = match registry::lend(name, &spec.tensor, intent, &mut order) {
        Ok(loan) => loan,
        // Elements that have no meaning here are still bytes under a Datatype.
        Err(_) if given.is_some() && buffer::has_buffer(&spec.tensor) => {
            return delegate::memory(mpi4py, name, msg, &[intent], lent);
        }
        Err(error) => return Err(error),
    };
    if !order.is_empty() {
        lent.again.push((spec.tensor.clone().unbind(), intent));
    }
    let view = loan.view();
    let (dtype, itemsize, numel) = (view.dtype(), view.itemsize(), view.numel());
    // A Datatype that says no more than the tensor does.
    let given = match given {
        Some(given)
            if (division.logical || usage == Use::Reduce)
                && datatype::reading(mpi4py, name, dtype, &given, usage)? == Reading::Natural =>
        {
            None
        }
        given => given,
    };
    let own = given.is_none();
    // Which elements of memory under a Datatype of the caller's are meant is MPI's to know.
    if division.logical && own {
        let each = spans::parts(&spec, name, numel, (division.blocks, division.vector))?;
        lent.spans.push(spans::of(view, each.into_iter()));
    }
    let scattered = division.logical && own && !view.layout().is_c_contiguous();
    let partitions = division.message && (division.blocks != 0 || division.vector);
    if partitions && scattered && tensor_comm::overruns(mpi4py.mpi()) {
        // Open MPI 5.0.11: the first of a partitioned request's messages is lost then.
        return Err(PyBufferError::new_err(format!(
            "{name}: its elements do not lie in C order, and Open MPI's partitioned requests cannot be driven by dlmpi's \
             thread, which would bring them into it; pass a contiguous copy"
        )));
    }
    let said = Said {
        mpi4py,
        py: msg.py(),
        name,
        spec,
        given,
        flow,
        usage,
        division,
        dtype,
        itemsize,
        numel,
    };
    let brought = scattered || (division.to_mpi == Given::Copied && own);
    if !(brought && loan.view().device().is_host_addressable()) {
        return said.raw(loan, &order, scattered, lent);
    }
    if division.to_mpi == Given::AsItLies && said.undivided() && usage == Use::Move {
        return said.strided(loan, &order, lent);
    }
    drop(loan);
    staged::lend(mpi4py, name, msg, (flow, usage), division, lent)
}

/// A message that was read: what the caller said of it, and what its tensor is.
struct Said<'a, 'py> {
    mpi4py: &'a Mpi4py,
    py: Python<'py>,
    name: &'a str,
    spec: Spec<'py>,
    /// A Datatype of the caller's that says more than the tensor does.
    given: Option<Bound<'py, PyAny>>,
    flow: Flow,
    usage: Use,
    division: Division,
    dtype: DType,
    itemsize: usize,
    numel: usize,
}

/// Count and displacement, or one of each per peer: numbers, lists or `None`, as mpi4py takes them.
type Range<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

impl<'py> Said<'_, 'py> {
    /// It is one block.
    fn undivided(&self) -> bool {
        self.division.blocks == 0 && !self.division.vector
    }

    /// It is a message that MPI writes.
    fn received(&self) -> bool {
        self.division.message && self.undivided() && self.flow != Flow::Out
    }

    /// The room for a message of so many elements.
    fn room(&self, elements: usize) -> Capacity {
        Capacity {
            elements,
            dtype: self.dtype,
            itemsize: self.itemsize,
        }
    }

    /// The displacement, and the number of elements behind it if none was said.
    fn from(&self, count: Option<i64>, displ: Option<i64>) -> (i64, i64) {
        let displ = displ.unwrap_or(0);
        let rest = (self.numel as i64).saturating_sub(displ);
        (displ, count.unwrap_or(rest))
    }

    /// Elements of a strided tensor as one element of a Datatype of its own.
    fn strided(
        self,
        loan: Loan,
        order: &StreamOrder,
        lent: &mut Lent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let core = |error| errors::operation(self.py, error);
        let part = match self.spec.range(self.name)? {
            (None, None) => Part::whole(loan.view().clone()),
            (count, displ) => {
                let (displ, count) = self.from(count, displ);
                Part::new(loan.view().clone(), self.name, displ, count).map_err(core)?
            }
        };
        order.wait(self.py)?;
        if self.received() {
            lent.room = Some(self.room(part.count()));
        }
        let view = part.view();
        lent.addresses.push(view.data() as usize);
        let shape = Shaped::new(self.mpi4py.mpi(), &part, self.received()).map_err(core)?;
        let bytes = Bytes::untyped(view.data(), view.itemsize());
        // No elements are none of the Datatype: MPICH takes one of no size for a message, which nobody sends.
        let count = i64::from(part.count() != 0);
        self.described(bytes, count, loan, Described::Shaped(shape), lent)
    }

    /// Memory as it lies, in elements of the caller's Datatype or of the tensor's dtype.
    fn raw(
        self,
        loan: Loan,
        order: &StreamOrder,
        scattered: bool,
        lent: &mut Lent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (mpi4py, py) = (self.mpi4py, self.py);
        let mut bytes = Bytes::of(loan.view()).map_err(|error| error.named(py, self.name))?;
        order.wait(py)?;
        let (mut datatype, units) = match &self.given {
            Some(given) => (given.clone(), 1),
            None if self.received() => receiving(mpi4py, py, self.dtype, self.itemsize)?,
            None => natural(mpi4py, py, self.name, self.dtype, self.itemsize, self.usage)?,
        };
        if scattered {
            return Err(PyBufferError::new_err(format!(
                "{}: its elements do not lie in C order, and this operation works on memory as it lies; pass a contiguous copy",
                self.name
            )));
        }
        let handle = mpi4py.datatype(&datatype)?;
        let reach = || Reach::of(py, mpi4py.mpi(), handle);
        let (counts, displs) = match self.division.vector {
            true => self.ranges(units, bytes.len, reach)?,
            false => self.range(units, bytes.len, reach, lent)?,
        };
        if let Some(room) = lent.room.filter(|room| self.needs_moat(room)) {
            let displ = displs.extract::<Option<i64>>()?.unwrap_or(0) / units;
            // A displacement beyond the tensor is mpi4py's to refuse.
            if (0..=self.numel as i64).contains(&displ) {
                let skipped = (displ * self.itemsize as i64) as isize;
                return self.moated(bytes.start.wrapping_offset(skipped), room, loan, lent);
            }
        }
        let moved = self.division.logical && !self.division.message && self.usage == Use::Move;
        let divided = moved && bytes.len > 0;
        if divided && tensor_comm::takes_one_address_for_in_place(mpi4py.mpi()) {
            let first = displs.extract::<i64>().unwrap_or(0);
            let address = reach()?.address(bytes.start as usize, first);
            lent.addresses.push(address);
        }
        let mut cargo = Cargo::raw(loan.split().1, Intent::of(self.flow));
        if divided && self.division.to_mpi == Given::Shifted {
            let shifted = Shifted::new(mpi4py.mpi(), handle);
            let shifted = shifted.map_err(|error| errors::operation(py, error))?;
            datatype = mpi4py.datatype_object(py, shifted.datatype())?;
            // mpi4py counts elements by the length, and looks at none of them.
            bytes = Bytes::untyped(bytes.start.wrapping_add(Shifted::BY), bytes.len);
            cargo = cargo.described(Described::Shifted(shifted));
        }
        let buffer = lent.lend(py, Borrowed::lending(bytes, cargo))?;
        let items = [buffer, counts, displs, datatype];
        PyList::new(py, items).map(Bound::into_any)
    }

    /// Count and displacement in units of the Datatype, of which so many are one element, checked against
    /// `length` bytes.
    fn range(
        &self,
        units: i64,
        length: usize,
        reach: impl FnOnce() -> PyResult<Reach>,
        lent: &mut Lent,
    ) -> PyResult<Range<'py>> {
        let (count, displ) = self.spec.range(self.name)?;
        if self.received() && self.given.is_none() {
            let (_, elements) = self.from(count, displ);
            lent.room = Some(self.room(usize::try_from(elements).unwrap_or(0)));
        }
        let scaled = |value: i64| value.saturating_mul(units);
        let (count, displ) = (count.map(scaled), displ.map(scaled));
        if let Some(count) = count {
            let all = count.saturating_mul(self.division.blocks.max(1) as i64);
            reach()?.check(self.name, displ.unwrap_or(0), all, length)?;
        }
        Ok((count.into_pyobject(self.py)?, displ.into_pyobject(self.py)?))
    }

    /// The same for one count and displacement per peer.
    fn ranges(
        &self,
        units: i64,
        length: usize,
        reach: impl FnOnce() -> PyResult<Reach>,
    ) -> PyResult<Range<'py>> {
        // Counts of elements that travel as several units each are said anew.
        let blocks = match units {
            1 => self.spec.given_blocks(self.name, self.division.blocks)?,
            _ => Some(
                self.spec
                    .blocks(self.name, self.numel, self.division.blocks)?,
            ),
        };
        let Some((mut counts, mut displs)) = blocks else {
            return Ok(self.spec.raw_counts(self.py));
        };
        for number in counts.iter_mut().chain(&mut displs) {
            *number = number.saturating_mul(units);
        }
        let reach = reach()?;
        for (&count, &displ) in counts.iter().zip(&displs) {
            reach.check(self.name, if count == 0 { 0 } else { displ }, count, length)?;
        }
        if units == 1 {
            return Ok(self.spec.raw_counts(self.py));
        }
        let list = |numbers| PyList::new(self.py, numbers).map(Bound::into_any);
        Ok((list(counts)?, list(displs)?))
    }

    /// Whether the library writes beyond the end of the room: that goes nowhere then (`guard.rs`).
    fn needs_moat(&self, room: &Capacity) -> bool {
        let mpi = self.mpi4py.mpi();
        let ours = self.received() && self.given.is_none();
        ours && tensor_comm::overruns(mpi) && room.bytes() < tensor_comm::LARGE
    }

    /// Room for a message, kept apart from what lies behind it.
    fn moated(
        &self,
        start: *mut u8,
        room: Capacity,
        loan: Loan,
        lent: &mut Lent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let moat = Moat::new(self.mpi4py.mpi(), start, room.bytes());
        let moat = moat.map_err(|error| errors::operation(self.py, error))?;
        let bytes = Bytes::untyped(start, room.bytes());
        self.described(bytes, 1, loan, Described::Moat(moat), lent)
    }

    /// Memory as so many of its own Datatype.
    fn described(
        &self,
        bytes: Bytes,
        count: i64,
        loan: Loan,
        described: Described,
        lent: &mut Lent,
    ) -> PyResult<Bound<'py, PyAny>> {
        let datatype = self.mpi4py.datatype_object(self.py, described.datatype())?;
        let cargo = Cargo::raw(loan.split().1, Intent::of(self.flow)).described(described);
        let buffer = lent.lend(self.py, Borrowed::lending(bytes, cargo))?;
        elements::spec(buffer, Counts::One(count), datatype)
    }
}

/// The Datatype by which elements of a dtype are received, and how many of it are one element.
fn receiving<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    dtype: DType,
    itemsize: usize,
) -> PyResult<(Bound<'py, PyAny>, i64)> {
    let (datatype, units) = tensor_comm::receiver(mpi4py.mpi(), dtype, itemsize)
        .map_err(|error| errors::operation(py, error))?;
    Ok((mpi4py.datatype_object(py, datatype)?, units as i64))
}

/// The Datatype of a dtype, and how many of it are one element.
///
/// # Errors
/// `ValueError` where it is to be reduced and MPI has no arithmetic for it.
pub fn natural<'py>(
    mpi4py: &Mpi4py,
    py: Python<'py>,
    name: &str,
    dtype: DType,
    itemsize: usize,
    usage: Use,
) -> PyResult<(Bound<'py, PyAny>, i64)> {
    let mpi = mpi4py.mpi();
    let number = match tensor_comm::mpi_datatype(mpi, dtype) {
        Some(number) => Some(mpi4py.datatype_object(py, number)?),
        None if dtype == DType::F16 => mpi4py.half(py)?,
        None => None,
    };
    match (number, usage) {
        (Some(number), _) => Ok((number, 1)),
        (None, Use::Reduce) => Err(PyValueError::new_err(format!(
            "{name}: MPI has no arithmetic for {dtype} here; convert to float32, or use a collective of dlmpi"
        ))),
        (None, _) => {
            let (carrier, units) = tensor_comm::carrier(mpi, dtype, itemsize)
                .map_err(|error| errors::operation(py, error))?;
            Ok((mpi4py.datatype_object(py, carrier)?, units as i64))
        }
    }
}
