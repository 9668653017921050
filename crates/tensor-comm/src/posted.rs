//! One side of an operation that somebody else starts: the elements in the form in which they travel,
//! with the address, counts and datatype that MPI takes, until the operation has ended.
//!
//! Knows no operation. What arrives is not measured, so the room to receive into holds the tensor's
//! present values first, and elements that nothing came for keep them.

use mpi_runtime::{Datatype, Mpi};

use crate::arg::{Arg, Blocks, Part};
use crate::arrival;
use crate::comm::Comm;
use crate::counted::{Derived, counted, counted_blocks};
use crate::error::{Result, value_error};
use crate::fits::Capacity;
use crate::ground::awareness::{self, Way};
use crate::guard::{self, Guard};
use crate::side::{Ranges, Side};
use crate::wire::Element;
use crate::wiretype::{moving_type, receiving_type};

/// Whether MPI takes device memory in a message on a communicator to or from a rank, or from any. Where nothing is
/// known of them, that is so if the user says so.
///
/// # Errors
/// Settings that do not parse, and what MPI reports of the communicator.
pub fn takes_device_memory(mpi: &'static Mpi, with: Option<(Comm, i32)>) -> Result<bool> {
    match with {
        Some((comm, peer)) => awareness::allowed_with(comm, peer),
        None => awareness::allowed(mpi, None, Way::Message),
    }
}

/// What happens to the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They are read.
    Out,
    /// They are written.
    In,
    /// They are read, then written.
    Through,
}

/// Whether what arrives fits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// It does.
    Known,
    /// It may not.
    Unknown,
    /// It does not, as far as a look told: large rooms are guarded, too.
    Exceeded,
}

/// Counts as MPI takes them, in units of the datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counts {
    /// One count.
    One(i64),
    /// One count and displacement per peer.
    Each(Vec<i64>, Vec<i64>),
}

/// Elements of a tensor, ready for MPI.
pub struct Posted {
    side: Side,
    flow: Flow,
    counts: Counts,
    datatype: Datatype,
    bytes: usize,
    /// Freed when the operation is over.
    #[allow(dead_code, reason = "kept")]
    derived: Option<Derived>,
    /// Of room for a message that may be longer, where the library must be kept inside.
    guard: Option<Guard>,
}

// SAFETY:
// - the addresses are of memory that the owner of the tensor keeps or that the side owns, and one thread
//   at a time uses them.
unsafe impl Send for Posted {}

impl Posted {
    /// The elements of `arg`, in `blocks` blocks of equal size where that is not 0; `name` is the
    /// argument's name. `direct` says that MPI takes device memory in this message ([`takes_device_memory`]),
    /// `exceeded` that what arrives may not fit, however large the room is.
    ///
    /// # Errors
    /// Memory that cannot be reached, that is not writable or shared where it is written, or counts that
    /// this MPI library cannot take.
    ///
    /// # Safety
    /// - As long as this is there, and MPI works on it, every view of `arg` describes memory that is there; nobody writes what is
    ///   sent, and nobody else reads or writes what is received into.
    pub unsafe fn new(
        mpi: &'static Mpi,
        arg: &Arg,
        name: &str,
        blocks: usize,
        flow: Flow,
        (direct, exceeded): (bool, bool),
    ) -> Result<Posted> {
        let fit = match exceeded {
            true => Fit::Exceeded,
            false => Fit::Unknown,
        };
        match arg {
            Arg::Part(part) => Posted::part(mpi, part, blocks, flow, direct, fit),
            Arg::Blocks(each) => Posted::each(mpi, each, name, flow),
            Arg::Absent | Arg::InPlace => Err(value_error!("{name}: expected a tensor")),
        }
    }

    /// The same for an operation that starts again and again, always on a copy of the elements, which
    /// [`Posted::refresh`] brings up to date. What arrives is known to fit.
    ///
    /// # Errors
    /// As [`Posted::new`].
    ///
    /// # Safety
    /// - As for [`Posted::new`].
    pub unsafe fn copied(
        mpi: &'static Mpi,
        arg: &Arg,
        name: &str,
        blocks: usize,
        flow: Flow,
    ) -> Result<Posted> {
        let mut posted = match arg {
            Arg::Part(part) => Posted::part(mpi, part, blocks, flow, false, Fit::Known)?,
            // SAFETY:
            // - The caller's promise.
            _ => unsafe { Posted::new(mpi, arg, name, blocks, flow, (false, false)) }?,
        };
        posted.side.compact(true)?;
        if let (Arg::Blocks(each), Counts::Each(..)) = (arg, &posted.counts) {
            let view = each.view();
            let wire = moving_type(mpi, view.dtype(), view.itemsize())?;
            let displs = posted.side.displs();
            let blocks = counted_blocks(mpi, name, each.counts(), displs, wire)?;
            posted.counts = Counts::Each(blocks.counts, blocks.displs);
            posted.datatype = blocks.datatype;
            posted.derived = blocks.derived;
            posted.bytes = each.total() * view.itemsize();
        }
        Ok(posted)
    }

    fn part(
        mpi: &'static Mpi,
        part: &Part,
        blocks: usize,
        flow: Flow,
        direct: bool,
        fit: Fit,
    ) -> Result<Posted> {
        let (dtype, itemsize) = (part.view().dtype(), part.view().itemsize());
        let wire = match flow {
            Flow::In | Flow::Through if blocks == 0 => receiving_type(mpi, dtype, itemsize)?,
            _ => moving_type(mpi, dtype, itemsize)?,
        };
        let each = counted(mpi, part.count() / blocks.max(1), wire)?;
        let ranges = Ranges::part(part);
        // MPI's own copies in `Sendrecv_replace` and the like may be the host's.
        let there = direct && blocks == 0 && flow != Flow::Through && fit != Fit::Exceeded;
        let direct = match there {
            true => Side::on_device(&ranges, Element::Memory(dtype), flow == Flow::In)?,
            false => None,
        };
        // The guard would mix memory of the host with it in one message.
        let guardable = direct.is_none();
        let side = match direct {
            Some(side) => side,
            None => side(ranges, flow)?,
        };
        let bytes = part.count() * itemsize;
        let guarded = fit != Fit::Known
            && guardable
            && blocks == 0
            && arrival::overruns(mpi)
            && (!side.is_direct() || bytes < guard::LARGE || fit == Fit::Exceeded)
            && (flow == Flow::In || (flow == Flow::Through && bytes > 1));
        let guard = match guarded {
            // SAFETY:
            // - the side has room for the part, writable, and lives as long as the guard; the tensor's owner
            //   keeps the memory.
            true => Some(unsafe { Guard::new(mpi, side.ptr(), bytes) }?),
            false => None,
        };
        let (count, datatype) = match &guard {
            Some(guard) => (1, guard.datatype()),
            None => (each.count, each.datatype),
        };
        Ok(Posted {
            side,
            flow,
            counts: Counts::One(count),
            datatype,
            bytes,
            derived: each.derived,
            guard,
        })
    }

    fn each(mpi: &'static Mpi, blocks: &Blocks, name: &str, flow: Flow) -> Result<Posted> {
        if let (Flow::In, Some((a, b))) = (flow, blocks.overlap()) {
            return Err(value_error!(
                "{name}: the blocks of peers {a} and {b} share elements; give each a place of its own"
            ));
        }
        let view = blocks.view();
        let wire = moving_type(mpi, view.dtype(), view.itemsize())?;
        let side = side(Ranges::blocks(blocks), flow)?;
        let bytes = match side.is_packed() {
            true => blocks.total() * view.itemsize(),
            false => view.layout().nbytes(),
        };
        let each = counted_blocks(mpi, name, blocks.counts(), side.displs(), wire)?;
        Ok(Posted {
            side,
            flow,
            counts: Counts::Each(each.counts, each.displs),
            datatype: each.datatype,
            bytes,
            derived: each.derived,
            guard: None,
        })
    }

    /// Address of the first element; of displacement 0 where there are displacements.
    pub fn ptr(&self) -> *mut u8 {
        match self.counts {
            Counts::One(_) => self.side.ptr(),
            Counts::Each(..) => self.side.base(),
        }
    }

    /// Bytes from [`Posted::ptr`] on.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts, and displacements where there is one per peer.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The datatype of the counts.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// What there is room for, where it is one message's.
    pub fn capacity(&self) -> Capacity {
        let itemsize = self.side.itemsize();
        Capacity {
            elements: self.bytes.checked_div(itemsize).unwrap_or(0),
            dtype: self.side.dtype(),
            itemsize,
        }
    }

    /// The operation starts again: the elements as they are now, or those of one of so many equal parts.
    ///
    /// # Errors
    /// A dtype that cannot be brought into its form.
    ///
    /// # Safety
    /// - No operation that works on these elements is under way, or none on this part of them yet.
    pub unsafe fn refresh(&self, part: Option<(usize, usize)>) -> Result<()> {
        self.side.refill(part)
    }

    /// One of so many equal parts has arrived: brings it home.
    ///
    /// # Errors
    /// As [`Posted::settle`].
    ///
    /// # Safety
    /// - The operation under way is done with this part.
    pub unsafe fn settle_part(&self, part: (usize, usize)) -> Result<()> {
        match self.flow {
            Flow::Out => Ok(()),
            _ => self.side.settle_part(part),
        }
    }

    /// The operation has ended: brings home what was received.
    ///
    /// # Errors
    /// A device that cannot be copied to.
    ///
    /// # Safety
    /// - No operation that works on these elements is under way.
    pub unsafe fn settle(&self) -> Result<()> {
        if let Some(guard) = &self.guard {
            guard.settle();
        }
        if self.flow == Flow::Out || self.side.is_direct() {
            return Ok(());
        }
        self.side.settle(usize::MAX, None)
    }
}

fn side(ranges: Ranges<'_>, flow: Flow) -> Result<Side> {
    let element = Element::Memory(ranges.view().dtype());
    match flow {
        Flow::Out => Side::sending(ranges, element, false),
        Flow::In | Flow::Through => Side::receiving(ranges, element, true),
    }
}
