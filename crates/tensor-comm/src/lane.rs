//! The short way of collectives and messages whose elements lie one behind the other in host memory and travel as
//! they lie: the MPI call, and what is asked of it in any case (number, check, algorithm, length of what came).
//!
//! Everything else, all that is refused included, is left to [`crate::run`] and its like, which do the same work for
//! any tensor. Whether a rank comes here is its own business: on the wire is what it would be there.

mod blocks;
mod messages;

use std::sync::Arc;

use dlpack_core::DType;
use mpi_runtime::Mpi;

use crate::agreed::{Agreed, AgreedOp, CommFacts, Standing};
use crate::algorithm::Algorithm;
use crate::call::{CallKind, Op};
use crate::comm::Comm;
use crate::engine;
use crate::error::Result;
use crate::ground::settings::Settings;
use crate::ground::state::State;
use crate::immediate::Flight;
use crate::native::{Extent, Native, Port};
use crate::own_op;
use crate::wire::{Combine, Element, wire};
use crate::wiretype::{self, byte, moving_type, wire_type};
use crate::{trace, watch};
pub use blocks::Blocks;
pub use messages::{Carried, is_open, recv, send, sendrecv};

/// Collectives from which on it is known whether ranks share memory for small ones.
const KNOWN: u64 = 64;

/// Bytes up to which a non-blocking collective is left to MPI and to who waits for it: the engine carries larger ones on
/// while the caller computes.
pub const SMALL: usize = 16 << 10;

/// Elements of one dtype, one behind the other in host memory.
#[derive(Debug, Clone, Copy)]
pub struct Flat {
    /// The first one.
    pub data: *mut u8,
    /// How many.
    pub count: usize,
    /// What they are: of whole bytes each.
    pub dtype: DType,
}

impl Flat {
    /// Bytes of one element.
    #[inline]
    pub fn itemsize(&self) -> usize {
        usize::from(self.dtype.bits).div_ceil(8) * usize::from(self.dtype.lanes)
    }

    /// Bytes of all.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.count * self.itemsize()
    }

    /// `count` of them, from `first` on; `None` where there are fewer.
    #[inline]
    #[must_use]
    pub fn part(self, first: usize, count: usize) -> Option<Flat> {
        let inside = first.checked_add(count)? <= self.count;
        let data = self.data.wrapping_add(first * self.itemsize());
        inside.then_some(Flat {
            data,
            count,
            ..self
        })
    }

    fn meets(&self, other: &Flat) -> bool {
        let (a, b) = (self.data.addr(), other.data.addr());
        a < b.wrapping_add(other.bytes()) && b < a.wrapping_add(self.bytes())
    }
}

/// One side of a collective on this rank.
#[derive(Debug)]
pub enum End {
    /// It has no meaning here.
    Absent,
    /// `IN_PLACE`.
    InPlace,
    /// These elements.
    Flat(Flat),
    /// A block of its own for each rank.
    Blocks(Blocks),
}

impl End {
    /// All elements that may be meant.
    #[inline]
    fn flat(&self) -> Option<&Flat> {
        match self {
            End::Absent | End::InPlace => None,
            End::Flat(flat) => Some(flat),
            End::Blocks(blocks) => Some(blocks.flat()),
        }
    }

    /// Elements of a rank's block, where there is one in each of `blocks` equal ones or one of its own.
    #[inline]
    fn of(&self, rank: usize, blocks: usize) -> Option<usize> {
        match self {
            End::Absent | End::InPlace => None,
            End::Flat(flat) => flat
                .count
                .is_multiple_of(blocks)
                .then(|| flat.count / blocks),
            End::Blocks(blocks) => blocks.of(rank),
        }
    }
}

/// A communicator on which the short way is open.
pub struct Lane {
    comm: Comm,
    state: Option<Arc<State>>,
    settings: Settings,
    /// The number that the next call has.
    sequence: u64,
    /// Where MPI is called.
    on: mpi_runtime::Comm,
    /// For calls that go on.
    immediate: bool,
    /// Its ranks.
    pub size: usize,
    /// This one.
    pub rank: i32,
}

/// A call that can be made.
pub struct Ready {
    native: Native,
    on: mpi_runtime::Comm,
    state: Option<Arc<State>>,
}

// SAFETY:
// - its addresses only go to MPI, within one call of the caller's, who keeps the memory.
unsafe impl Send for Ready {}
// SAFETY:
// - as above.
unsafe impl Sync for Ready {}

impl Lane {
    /// Looks at a communicator: `None` where the next collective is to be compared, seen or made in another way.
    #[inline]
    pub fn open(mpi: &'static Mpi, raw: mpi_runtime::Comm) -> Option<Lane> {
        if trace::is_on() || watch::is_on() {
            return None;
        }
        let settings = Settings::get().ok().filter(|settings| !settings.plain)?;
        let comm = Comm::new(mpi, raw).ok()?;
        let alone = Lane {
            comm,
            state: None,
            settings,
            sequence: 0,
            on: raw,
            immediate: false,
            size: 1,
            rank: 0,
        };
        if raw == mpi.comm_self() {
            return Some(alone);
        }
        let state = State::existing(comm).ok()?;
        let Some(state) = state.filter(|state| state.size() > 1) else {
            // Without one a communicator of several is to get it, and an intercommunicator never does.
            let one = comm.size().ok()? == 1 && !comm.is_inter().ok()?;
            return one.then_some(alone);
        };
        let sequence = state.reached() + 1;
        if state.is_plain() || sequence <= KNOWN || settings.check.due(sequence) {
            return None;
        }
        let (size, rank) = (state.size(), state.rank() as i32);
        Some(Lane {
            comm,
            state: Some(state),
            settings,
            sequence,
            on: raw,
            immediate: false,
            size,
            rank,
        })
    }

    /// The same for non-blocking collectives: `None` also where others of this communicator are still to be issued
    /// before it, or its private duplicate is not there yet.
    pub fn open_immediate(mpi: &'static Mpi, raw: mpi_runtime::Comm) -> Option<Lane> {
        engine::allowed(mpi).ok()?;
        let lane = Lane::open(mpi, raw)?;
        let on = match &lane.state {
            None => raw,
            Some(state) if state.is_idle() => state.private(false).ok()??,
            Some(_) => return None,
        };
        Some(Lane {
            on,
            immediate: true,
            ..lane
        })
    }

    /// The call that these arguments make, which has its number then; `None`, and nothing is done, where it takes
    /// more than a call of MPI's. `counts`: what each rank receives of a `Reduce_scatter`.
    #[inline]
    pub fn ready(
        self,
        kind: CallKind,
        send: End,
        recv: End,
        counts: Vec<i64>,
        op: Option<Op>,
        root: i32,
    ) -> Option<Ready> {
        let mpi = self.comm.mpi();
        let small = |end: &End| end.flat().is_none_or(|flat| flat.bytes() <= SMALL);
        if self.immediate && !(small(&send) && small(&recv)) {
            return None;
        }
        let native = match kind.is_reduction() {
            true => self.reduction(kind, send, recv, counts, op?)?,
            false => self.movement(kind, send, recv)?,
        };
        if let Some(state) = &self.state
            && !state.takes(self.sequence)
        {
            return None;
        }
        let (send, recv, op) = native;
        let native = Native {
            mpi,
            kind,
            send,
            recv,
            op,
            root,
        };
        Some(Ready {
            native,
            on: self.on,
            state: self.state,
        })
    }

    fn movement(
        &self,
        kind: CallKind,
        send: End,
        recv: End,
    ) -> Option<(Port, Port, mpi_runtime::Op)> {
        let mpi = self.comm.mpi();
        // How many equal blocks each side has; both sides meet in this rank's own.
        let (sent, received) = match kind {
            CallKind::Barrier | CallKind::Bcast | CallKind::Alltoallv => (1, 1),
            CallKind::Gather | CallKind::Allgather => (1, self.size),
            CallKind::Gatherv | CallKind::Allgatherv | CallKind::Scatterv => (1, 1),
            CallKind::Scatter => (self.size, 1),
            CallKind::Alltoall => (self.size, self.size),
            _ => return None,
        };
        if let (Some(from), Some(into)) = (send.flat(), recv.flat()) {
            let rank = self.rank as usize;
            let own = (send.of(rank, sent)?, recv.of(rank, received)?);
            if from.dtype != into.dtype || own.0 != own.1 || from.meets(into) {
                return None;
            }
        }
        let port = |end, blocks| self.port(end, blocks);
        Some((port(send, sent)?, port(recv, received)?, mpi.op_null()))
    }

    fn port(&self, end: End, blocks: usize) -> Option<Port> {
        let mpi = self.comm.mpi();
        match end {
            End::Absent => Some(Port {
                ptr: std::ptr::null_mut(),
                extent: Extent::One(0),
                datatype: byte(mpi),
            }),
            End::InPlace => None,
            End::Flat(flat) => {
                let wire = moving_type(mpi, flat.dtype, flat.itemsize()).ok()?;
                let count = (flat.count / blocks) * wire.units;
                let whole = flat.count.is_multiple_of(blocks) && i32::try_from(count).is_ok();
                whole.then_some(Port {
                    ptr: flat.data,
                    extent: Extent::One(count as i64),
                    datatype: wire.datatype,
                })
            }
            End::Blocks(blocks) => {
                let flat = *blocks.flat();
                let wire = moving_type(mpi, flat.dtype, flat.itemsize()).ok()?;
                let ranks = blocks.ranks();
                if ranks != self.size {
                    return None;
                }
                let numbers = blocks.in_units(wire.units)?;
                Some(Port {
                    ptr: flat.data,
                    extent: Extent::Many { numbers, ranks },
                    datatype: wire.datatype,
                })
            }
        }
    }

    fn reduction(
        &self,
        kind: CallKind,
        send: End,
        recv: End,
        counts: Vec<i64>,
        op: Op,
    ) -> Option<(Port, Port, mpi_runtime::Op)> {
        let mpi = self.comm.mpi();
        let uneven = kind == CallKind::ReduceScatter;
        if uneven && (counts.len() != self.size || counts.iter().any(|&count| count < 0)) {
            return None;
        }
        let (input, output, flat) = match (send, recv) {
            (End::Flat(send), End::Flat(recv)) => {
                let wanted = match kind {
                    CallKind::ReduceScatter => total(&counts)?,
                    CallKind::ReduceScatterBlock => recv.count.checked_mul(self.size)?,
                    _ => recv.count,
                };
                let own = counts.get(self.rank as usize);
                let fits = own.is_none_or(|&own| own == recv.count as i64);
                let alike = send.dtype == recv.dtype && send.count == wanted && fits;
                if !alike || send.meets(&recv) {
                    return None;
                }
                (send.data, recv.data, recv)
            }
            (End::InPlace, End::Flat(recv)) if !uneven && kind != CallKind::ReduceScatterBlock => {
                (mpi.in_place().cast_mut(), recv.data, recv)
            }
            (End::Flat(send), End::Absent) => (send.data, std::ptr::null_mut(), send),
            _ => return None,
        };
        // What all ranks know alike: of uneven blocks the largest one.
        let most = counts.iter().copied().max();
        let elements = most.map_or(flat.count, |most| most as usize);
        wiretype::basic(flat.dtype)?;
        i32::try_from(elements).ok()?;
        let (choice, standing) = match &self.state {
            Some(state) if self.immediate => (state.choice(), state.standing_of_engine(true)),
            Some(state) => (state.choice(), state.standing(true)),
            None if self.immediate => (None, Standing::NONE.by_messages()),
            None => (None, Standing::NONE),
        };
        let agreed = Agreed {
            kind,
            dtype: Some(flat.dtype),
            elements,
            op: Some(AgreedOp::from(op)),
            facts: CommFacts {
                size: self.size as u32,
                large_counts: mpi.has_large_counts(),
                one_call: false,
                choice: choice.unwrap_or(self.settings.allreduce),
                standing,
                family: mpi.family(),
            },
        };
        let wire = wire(&agreed).ok()?;
        let simple = wire.algorithm == Algorithm::Library
            && !wire.open
            && !wire.mean
            && wire.slice.is_none()
            && matches!(wire.element, Element::Memory(_));
        let op = match wire.combine {
            _ if !simple => return None,
            Combine::Library(op) => mpi.op(own_op::library(op)),
            Combine::Own(op) => own_op::handle(mpi, op, flat.dtype).ok()?,
            Combine::Caller => return None,
        };
        let datatype = wire_type(mpi, flat.dtype, flat.itemsize()).ok()?.datatype;
        let port = |ptr, extent| Port {
            ptr,
            extent,
            datatype,
        };
        let received = match uneven {
            true => Extent::Many {
                ranks: counts.len(),
                numbers: counts,
            },
            false => Extent::One(flat.count as i64),
        };
        Some((port(input, Extent::One(0)), port(output, received), op))
    }
}

/// All elements of these counts, none of which is negative.
fn total(counts: &[i64]) -> Option<usize> {
    let add = |sum: i64, &count: &i64| sum.checked_add(count);
    usize::try_from(counts.iter().try_fold(0, add)?).ok()
}

impl Ready {
    /// Makes the call and returns when this rank's part of it is done. Needs no interpreter.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - The memory of both sides is there until this returns. Nobody writes what is sent; nobody else reads or writes
    ///   what is received into.
    #[inline]
    pub unsafe fn run(&self) -> Result<()> {
        // SAFETY:
        // - both sides hold what their counts say, and are apart (`ready`); the caller's promise for the rest.
        unsafe { self.native.block(self.on) }
    }

    /// Starts the call, in its turn among those of its communicator.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - As for [`Ready::run`], until the request has completed.
    pub unsafe fn start(&self) -> Result<Flight> {
        // SAFETY:
        // - as in `run`, and the caller's promise lasts until the request completes.
        let start = || unsafe { self.native.start(self.on) };
        let Some(state) = &self.state else {
            return start();
        };
        let _its_turn = state.ticket();
        let started = start();
        state.pass_turn();
        started.map_err(|error| state.report(error))
    }
}
