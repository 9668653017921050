//! Point-to-point: one MPI message each, whose other side may be any MPI program.

use mpi_runtime::{Basic, StatusBuf};
use tensor_comm::engine::Came;
use tensor_comm::{Part, SendMode};

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, TensorMut};

/// Whose message is received.
///
/// ```
/// use dlmpi::Source;
///
/// assert_eq!(Source::from(3), Source::Rank(3)); // so that `recv` takes a plain number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// That of this rank.
    Rank(i32),
    /// The first one to come.
    Any,
}

/// Which message is received.
///
/// ```
/// use dlmpi::Tag;
///
/// assert_eq!(Tag::from(7), Tag::Value(7)); // so that `recv` takes a plain number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// One with this tag.
    Value(i32),
    /// One with any tag.
    Any,
}

impl From<i32> for Source {
    fn from(rank: i32) -> Source {
        Source::Rank(rank)
    }
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Tag {
        Tag::Value(tag)
    }
}

/// What came.
///
/// ```
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let (me, mut room) = (world.rank(), [0f32; 8]);
/// let status = world.sendrecv(&[1f32; 5], me, 3, &mut room, me, dlmpi::Tag::Any)?;
/// assert_eq!(status, dlmpi::Status { source: me, tag: 3, elements: 5 });
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Who sent it.
    pub source: i32,
    /// Its tag.
    pub tag: i32,
    /// How many whole elements of the receiving tensor came; the others were left as they were.
    pub elements: usize,
}

impl From<Came> for Status {
    fn from(came: Came) -> Status {
        Status {
            source: came.source,
            tag: came.tag,
            elements: came.elements,
        }
    }
}

/// # Messages
///
/// Ranks and tags are checked here; besides, [`crate::ErrorKind::Tensor`] for a tensor that cannot be lent, and
/// what MPI reports: a message longer than the tensor, for one.
impl Comm<'_> {
    /// Sends one message. It returns when the tensor may be changed again, perhaps before it was received.
    ///
    /// ```no_run
    /// # let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut row = [0f32; 8];
    /// if world.rank() == 0 {
    ///     world.send(&row, 1, 7)?;
    /// } else {
    ///     let status = world.recv(&mut row, 0, 7)?;
    ///     assert_eq!(status.elements, 8);
    /// }
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all messages.
    pub fn send(&self, tensor: &(impl Tensor + ?Sized), dest: i32, tag: i32) -> Result<()> {
        let comm = self.enter()?;
        let (dest, tag) = (self.checked_rank("dest", dest)?, self.checked_tag(tag)?);
        let loan = tensor.lend()?;
        let part = Part::whole(loan.view().clone());
        // SAFETY:
        // - The loan keeps the memory.
        Ok(unsafe { tensor_comm::send(&comm, SendMode::Standard, &part, dest, tag) }?)
    }

    /// Receives one message; elements beyond a shorter one stay as they are.
    ///
    /// ```no_run
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut room = vec![0f64; 100];
    /// let status = world.recv(&mut room, dlmpi::Source::Any, dlmpi::Tag::Any)?;
    /// println!("{} numbers from rank {}", status.elements, status.source);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all messages.
    pub fn recv(
        &self,
        tensor: &mut (impl TensorMut + ?Sized),
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let comm = self.enter()?;
        let (source, tag) = self.matching(source.into(), tag.into())?;
        let mut status = StatusBuf::new();
        let loan = tensor.lend_mut()?;
        let part = Part::whole(loan.view().clone());
        let room = (part.view().numel(), part.view().itemsize());
        // SAFETY:
        // - The loan keeps the memory, for us alone.
        let done = unsafe { tensor_comm::recv(&comm, &part, source, tag, status.as_ptr()) };
        drop(loan);
        tensor.wrote();
        done?;
        self.status(&mut status, room)
    }

    /// Sends one message and receives another, at once, so that ranks which do so in a circle do not wait for each
    /// other.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (rank, size) = (world.rank(), world.size() as i32);
    /// let mut from_left = -1i32;
    /// world.sendrecv(&rank, (rank + 1) % size, 0, &mut from_left, (rank + size - 1) % size, 0)?;
    /// assert_eq!(from_left, (rank + size - 1) % size);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all messages.
    pub fn sendrecv(
        &self,
        send: &(impl Tensor + ?Sized),
        dest: i32,
        send_tag: i32,
        recv: &mut (impl TensorMut + ?Sized),
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let comm = self.enter()?;
        let (dest, send_tag) = (
            self.checked_rank("dest", dest)?,
            self.checked_tag(send_tag)?,
        );
        let (source, recv_tag) = self.matching(source.into(), recv_tag.into())?;
        let mut status = StatusBuf::new();
        let sending = send.lend()?;
        let loan = recv.lend_mut()?;
        let from = Part::whole(sending.view().clone());
        let into = Part::whole(loan.view().clone());
        let room = (into.view().numel(), into.view().itemsize());
        let status_at = status.as_ptr();
        // SAFETY:
        // - The loans keep the memory.
        let done = unsafe {
            tensor_comm::sendrecv(
                &comm, &from, dest, send_tag, &into, source, recv_tag, status_at,
            )
        };
        drop(loan);
        recv.wrote();
        done?;
        self.status(&mut status, room)
    }

    /// Source and tag as this MPI numbers them.
    pub(crate) fn matching(&self, source: Source, tag: Tag) -> Result<(i32, i32)> {
        let constants = self.mpi().constants();
        let source = match source {
            Source::Any => constants.any_source,
            Source::Rank(rank) => self.checked_rank("source", rank)?,
        };
        let tag = match tag {
            Tag::Any => constants.any_tag,
            Tag::Value(tag) => self.checked_tag(tag)?,
        };
        Ok((source, tag))
    }

    pub(crate) fn checked_tag(&self, tag: i32) -> Result<i32> {
        let largest = self.largest_tag();
        if (0..=largest).contains(&tag) {
            return Ok(tag);
        }
        Err(Error::argument(format!(
            "tag: {tag}, expected 0 to {largest}, the largest of this MPI"
        )))
    }

    /// What a receive into so many elements of so many bytes says.
    fn status(&self, status: &mut StatusBuf, (room, item): (usize, usize)) -> Result<Status> {
        let (mpi, status) = (self.mpi(), status.as_ptr());
        let Some(byte) = mpi.datatype(Basic::Byte) else {
            return Err(Error::state("this MPI has no MPI_BYTE"));
        };
        // SAFETY:
        // - A receive that succeeded has just filled the status in.
        let (source, tag, bytes) = unsafe {
            (
                mpi.status_source(status),
                mpi.status_tag(status),
                mpi.get_elements(status, byte)?,
            )
        };
        // A library with `int` counts says UNDEFINED for a message too large for them: it filled the room.
        let elements = bytes.map_or(room, |bytes| bytes as usize / item.max(1));
        Ok(Status {
            source,
            tag,
            elements,
        })
    }
}
