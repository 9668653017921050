//! A call made ready: the MPI call, the sides that it works on, and what is left to do afterwards.

use mpi_runtime::{CountArrays, Request};

use crate::call::CallKind;
use crate::comm::Comm;
use crate::copying::copy;
use crate::counted::Derived;
use crate::direct::{Direct, Shared};
use crate::error::{Result, value_error};
use crate::ground::gate::Gate;
use crate::handover::Spread;
use crate::native::{Extent, Native, Port};
use crate::scratch::Scratch;
use crate::side::Side;

/// What is left to do with what was received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settle {
    /// At most this many elements of each range were received; 0 leaves the tensor as it was.
    pub limit: usize,
    /// Divide by this, for the mean.
    pub mean: Option<u64>,
}

impl Settle {
    /// Everything was received.
    pub const ALL: Settle = Settle {
        limit: usize::MAX,
        mean: None,
    };
}

/// Repetition of a reduction over slices, where the library's counts are `int`.
#[derive(Debug, Clone)]
pub(crate) struct Slicing {
    /// Elements of one call at most.
    pub slice: usize,
    /// Whether one call would not do.
    pub needed: bool,
    /// Bytes of an element on the wire.
    pub bytes: usize,
    /// Elements of each rank's block, where each block is a reduction of its own.
    pub by_root: Option<Vec<usize>>,
    /// This rank.
    pub rank: usize,
}

/// A collective call, ready.
pub(crate) struct Plan {
    pub native: Native,
    /// Our own algorithm, instead of the MPI call: by messages, or through shared memory.
    pub direct: Option<Box<Direct>>,
    pub shared: Option<Box<Shared>>,
    /// A broadcast by memory that ranks use of each other, instead of the MPI call.
    pub spread: Option<Spread>,
    /// Whether the ranks must agree on more before the algorithm can be chosen.
    pub open: bool,
    pub send: Option<Side>,
    pub recv: Option<Side>,
    pub settle: Settle,
    pub slicing: Option<Slicing>,
    /// Arithmetic is ours, for the trace.
    pub software: bool,
    /// Datatypes made for this call, freed when it is over.
    pub derived: [Option<Derived>; 2],
}

// SAFETY:
// - a plan's addresses are of memory that its owner keeps (the tensors') or that it owns (scratch), and
//   it is used by one thread at a time.
unsafe impl Send for Plan {}

impl Plan {
    /// Makes the call on `comm`, or takes our own way behind its gate, and settles.
    pub fn run(&mut self, comm: Comm, gate: &Gate) -> Result<()> {
        if let Some(shared) = &self.shared {
            // SAFETY:
            // - as below.
            gate.with_arena(|arena, idle| unsafe { shared.run(arena, idle) })?;
            return self.settle();
        }
        if self.sides().any(|side| side.is_sliced()) {
            return self.in_slices(comm);
        }
        match (&self.direct, &self.slicing) {
            // SAFETY:
            // - the sides hold what the counts say in the travelling form, the receiving one is writable
            //   (side.rs) and apart, and both live as long as the plan.
            (None, None) => unsafe { self.native.block(comm.raw()) }?,
            // SAFETY:
            // - as above.
            (Some(direct), _) => gate.with_lane(|lane| unsafe { direct.run(lane) })?,
            (None, Some(slicing)) => self.sliced(comm, slicing)?,
        }
        self.settle()
    }

    /// Makes one MPI call of it, as an immediate operation needs.
    pub fn in_one_call(&mut self) -> Result<()> {
        if self.slicing.as_ref().is_some_and(|slicing| slicing.needed) {
            return Err(value_error!(
                "{}: more than 2^31 elements need several calls with this MPI library; use the blocking form",
                self.native.kind.name()
            ));
        }
        self.slicing = None;
        self.turn_to(None)
    }

    /// Whether it is one MPI call, in whatever form the elements travel.
    pub fn is_one_call(&self) -> bool {
        let own = self.direct.is_some() || self.shared.is_some() || self.spread.is_some();
        !own && !self.open && self.slicing.is_none()
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        [&mut self.send, &mut self.recv].into_iter().flatten()
    }

    /// Goes on to this slice, or to all, of the sides that are made of slices.
    fn turn_to(&mut self, part: Option<(usize, usize)>) -> Result<()> {
        let Plan {
            native, send, recv, ..
        } = self;
        for (side, port) in [(send, &mut native.send), (recv, &mut native.recv)] {
            if let Some(side) = side.as_mut().filter(|side| side.is_sliced()) {
                side.turn_to(part)?;
                port.ptr = side.ptr();
            }
        }
        Ok(())
    }

    /// Slice by slice, where elements are widened: all at once they would take as much memory again and more.
    fn in_slices(&mut self, comm: Comm) -> Result<()> {
        let Extent::One(total) = self.native.recv.extent else {
            return Ok(());
        };
        let slicing = self.slicing.take();
        let most = slicing.as_ref().map_or(usize::MAX, |slicing| slicing.slice);
        let fixed = |side: &Option<Side>| side.as_ref().is_some_and(|side| !side.is_sliced());
        let (send_lies, recv_lies) = (fixed(&self.send), fixed(&self.recv));
        // The others go on to the next call, whatever becomes of a result here.
        let mut settled = Ok(());
        for (first, n) in slices(total as usize, most) {
            self.turn_to(Some((first, n)))?;
            let bytes = slicing.as_ref().map_or(0, |slicing| first * slicing.bytes);
            let past = |ptr: *mut u8, lies| if lies { ptr.wrapping_add(bytes) } else { ptr };
            let send = past(self.native.send.ptr, send_lies);
            let recv = past(self.native.recv.ptr, recv_lies);
            let piece = self.piece(self.native.kind, self.native.root, send, recv, n);
            // SAFETY:
            // - as in `run`, for the slice.
            unsafe { piece.block(comm.raw()) }?;
            if !recv_lies {
                settled = settled.and(self.settle());
            }
        }
        match recv_lies {
            true => self.settle(),
            false => settled,
        }
    }

    /// Starts the MPI call on `comm`; [`Plan::settle`] follows when the request has completed.
    ///
    /// # Safety
    /// - The plan stays where it is, and the tensors' memory is held, until the request completes.
    pub unsafe fn start_on(
        &self,
        comm: mpi_runtime::Comm,
    ) -> Result<(Request, Option<CountArrays>)> {
        // SAFETY:
        // - as in `run`, and the caller keeps the plan until the request completes.
        unsafe { self.native.start(comm) }
    }

    /// Brings home what was received.
    pub fn settle(&self) -> Result<()> {
        match &self.recv {
            Some(side) if self.settle.limit > 0 => side.settle(self.settle.limit, self.settle.mean),
            _ => Ok(()),
        }
    }

    fn sliced(&self, comm: Comm, slicing: &Slicing) -> Result<()> {
        match &slicing.by_root {
            None => {
                let Extent::One(total) = self.native.recv.extent else {
                    return Ok(());
                };
                for (first, n) in slices(total as usize, slicing.slice) {
                    let (send, recv) = self.at(first * slicing.bytes);
                    // SAFETY:
                    // - as in `run`, for the slice.
                    unsafe {
                        self.piece(self.native.kind, self.native.root, send, recv, n)
                            .block(comm.raw())
                    }?;
                }
                Ok(())
            }
            Some(counts) => self.by_root(comm, slicing, counts),
        }
    }

    /// A reduce-scatter as one sliced `MPI_Reduce` per rank's block, since a slice of all blocks is not
    /// one piece of memory.
    fn by_root(&self, comm: Comm, slicing: &Slicing, counts: &[usize]) -> Result<()> {
        let (bytes, rank) = (slicing.bytes, slicing.rank);
        let in_place = self.send.is_none();
        let input = if in_place {
            self.native.recv.ptr
        } else {
            self.native.send.ptr
        };
        // The result may overlap blocks that are still to be sent, so it lands apart first.
        let own = counts.get(rank).copied().unwrap_or(0) * bytes;
        let result = Scratch::new(own)?;
        let mut start = 0usize;
        for (root, &count) in counts.iter().enumerate() {
            for (first, n) in slices(count, slicing.slice) {
                let send = input.wrapping_add((start + first) * bytes);
                let recv = if root == rank {
                    result.ptr().wrapping_add(first * bytes)
                } else {
                    std::ptr::null_mut()
                };
                // SAFETY:
                // - `send` is within the contributed elements, `recv` within the result's scratch memory.
                unsafe {
                    self.piece(CallKind::Reduce, root as i32, send, recv, n)
                        .block(comm.raw())
                }?;
            }
            start += count;
        }
        // SAFETY:
        // - both hold this rank's result, and scratch memory is never the tensor's.
        unsafe { copy(result.ptr(), self.native.recv.ptr, own) };
        Ok(())
    }

    /// Send and receive address `offset` bytes further on.
    fn at(&self, offset: usize) -> (*mut u8, *mut u8) {
        let moved = |ptr: *mut u8, side: &Option<Side>| {
            if side.is_some() {
                ptr.wrapping_add(offset)
            } else {
                ptr
            }
        };
        (
            moved(self.native.send.ptr, &self.send),
            moved(self.native.recv.ptr, &self.recv),
        )
    }

    fn piece(&self, kind: CallKind, root: i32, send: *mut u8, recv: *mut u8, n: usize) -> Native {
        let port = |ptr, datatype| Port {
            ptr,
            extent: Extent::One(n as i64),
            datatype,
        };
        let Native { mpi, op, .. } = self.native;
        let (send, recv) = (
            port(send, self.native.send.datatype),
            port(recv, self.native.recv.datatype),
        );
        Native {
            mpi,
            kind,
            send,
            recv,
            op,
            root,
        }
    }
}

/// Slices of at most `slice` elements; nothing still makes one (empty) call, as every rank must enter.
fn slices(total: usize, slice: usize) -> impl Iterator<Item = (usize, usize)> {
    let calls = total.div_ceil(slice).max(1);
    (0..calls).map(move |i| (i * slice, slice.min(total - i * slice)))
}

#[cfg(test)]
mod tests {
    use super::slices;

    #[test]
    fn slices_cover_everything_once() {
        assert_eq!(slices(0, 4).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(slices(8, 4).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
        assert_eq!(slices(9, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 1)]);
        assert_eq!(slices(9, usize::MAX).collect::<Vec<_>>(), [(0, 9)]);
    }
}
