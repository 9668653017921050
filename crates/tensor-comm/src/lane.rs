//! The short way of collectives and messages whose elements lie one behind the other in host memory and travel as
//! they lie: the MPI call, and what is asked of it in any case (number, check, algorithm, length of what came).
//!
//! Everything else, all that is refused included, is left to [`crate::run`] and its like, which do the same work for
//! any tensor. Whether a rank comes here is its own business: on the wire is what it would be there.

mod blocks;
mod local;
mod messages;
mod moving;
mod pairs;
mod reducing;
mod typed;

use std::sync::Arc;

use dlpack_core::DType;
use mpi_runtime::Mpi;

use crate::call::{CallKind, Op};
use crate::comm::Comm;
use crate::engine;
use crate::error::{Error, Result};
use crate::ground::process;
use crate::ground::settings::Settings;
use crate::ground::state::State;
use crate::immediate::Flight;
use crate::native::Native;
use crate::{trace, watch};
pub use blocks::Blocks;
pub use local::reduce_local;
pub use messages::{Carried, Replacing, is_open, matched, probe, recv, send, sendrecv};
pub use pairs::isendrecv;
use reducing::Work;
pub use typed::Typed;

/// Collectives from which on it is known whether ranks share memory for small ones.
const KNOWN: u64 = 64;

/// Bytes up to which a non-blocking collective is left to MPI and to who waits for it: the engine carries larger ones on
/// while the caller computes.
pub const SMALL: usize = 16 << 10;

/// Whether elements are so few that working on them takes no time worth naming.
#[inline]
#[must_use]
pub fn is_small(flat: &Flat) -> bool {
    flat.bytes() <= SMALL
}

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

    /// Whether the two share a byte.
    #[inline]
    #[must_use]
    pub fn meets(&self, other: &Flat) -> bool {
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
    mpi: &'static Mpi,
    state: Option<Arc<State>>,
    settings: &'static Settings,
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
    work: Work,
    on: mpi_runtime::Comm,
    state: Option<Arc<State>>,
    /// Whether others wait until it is issued.
    has_turn: bool,
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
        Lane::look(mpi, raw, false)
    }

    /// The same for non-blocking collectives: `None` also where the private duplicate is not there yet.
    #[inline]
    pub fn open_immediate(mpi: &'static Mpi, raw: mpi_runtime::Comm) -> Option<Lane> {
        engine::allowed(mpi).ok()?;
        Lane::look(mpi, raw, true)
    }

    #[inline]
    fn look(mpi: &'static Mpi, raw: mpi_runtime::Comm, immediate: bool) -> Option<Lane> {
        if trace::is_on() || watch::is_on() {
            return None;
        }
        let settings = Settings::known().filter(|settings| !settings.plain)?;
        let alone = || Lane {
            mpi,
            state: None,
            settings,
            sequence: 0,
            on: raw,
            immediate,
            size: 1,
            rank: 0,
        };
        process::attend(mpi).ok()?;
        if raw == mpi.comm_self() {
            return Some(alone());
        }
        let state = match State::known(raw) {
            Some(state) => Some(state),
            None => State::existing(Comm::new(mpi, raw).ok()?).ok()?,
        };
        let Some(state) = state.filter(|state| state.size() > 1) else {
            // Without one a communicator of several is to get it, and an intercommunicator never does.
            let comm = Comm::new(mpi, raw).ok()?;
            let one = comm.size().ok()? == 1 && !comm.is_inter().ok()?;
            return one.then(alone);
        };
        let sequence = state.reached() + 1;
        if state.is_plain() || sequence <= KNOWN || settings.check.due(sequence) {
            return None;
        }
        let on = match immediate {
            true => state.private(false).ok()??,
            false => raw,
        };
        Some(Lane {
            mpi,
            settings,
            sequence,
            on,
            immediate,
            size: state.size(),
            rank: state.rank() as i32,
            state: Some(state),
        })
    }

    /// A barrier, which has its number then; `None`, and nothing is done, where another thread has taken that, or its turn has
    /// not come.
    #[inline]
    pub fn barrier(self) -> Option<Ready> {
        let numbered = self.takes_number();
        let work = Work::Barrier(self.mpi);
        numbered.then(|| self.with(work))
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
        let mpi = self.mpi;
        let takes = |end: &End| end.flat().is_none_or(|flat| self.takes(flat));
        if !(takes(&send) && takes(&recv)) {
            return None;
        }
        let work = match kind.is_reduction() {
            true => self.reduction(kind, (send, recv), counts, op?, root)?,
            false => {
                let (send, recv) = self.movement(kind, send, recv)?;
                let op = mpi.op_null();
                Work::Native(Native {
                    mpi,
                    kind,
                    send,
                    recv,
                    op,
                    root,
                })
            }
        };
        if !self.takes_number() {
            return None;
        }
        Some(self.with(work))
    }

    /// Takes the number of this call, and its turn where it goes on: whether they were there to be taken.
    #[inline]
    fn takes_number(&self) -> bool {
        match &self.state {
            None => true,
            Some(state) if self.immediate => state.takes_its_turn(self.sequence),
            Some(state) => state.takes(self.sequence),
        }
    }

    /// The call, once it has its number.
    #[inline(always)]
    fn with(self, work: Work) -> Ready {
        Ready {
            work,
            on: self.on,
            has_turn: self.immediate && self.state.is_some(),
            state: self.state,
        }
    }

    /// Whether a call may be made on so many elements.
    #[inline]
    fn takes(&self, flat: &Flat) -> bool {
        !self.immediate || is_small(flat)
    }
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
        // - both sides hold what their counts say, and are one place or apart (`ready`); the caller's promise for the
        //   rest.
        unsafe {
            match (&self.work, &self.state) {
                (Work::Barrier(mpi), _) => Ok(mpi.barrier(self.on)?),
                (Work::Native(native), _) => native.block(self.on),
                (Work::Typed(exchange), _) => exchange.block(self.on),
                (Work::Shared(shared), Some(state)) => state
                    .with_arena(|arena, idle| shared.run(arena, idle))
                    .map_err(|error| state.report(error)),
                (Work::Shared(_), None) => Err(nowhere()),
            }
        }
    }

    /// Starts the call, in its turn among those of its communicator. Once.
    ///
    /// # Errors
    /// What MPI reports.
    ///
    /// # Safety
    /// - As for [`Ready::run`], until the request has completed.
    #[inline]
    pub unsafe fn start(&mut self) -> Result<Flight> {
        // SAFETY:
        // - as in `run`, and the caller's promise lasts until the request completes.
        let started = unsafe {
            match &self.work {
                Work::Barrier(mpi) => (mpi.ibarrier(self.on))
                    .map(|request| (request, None))
                    .map_err(Error::from),
                Work::Native(native) => native.start(self.on),
                Work::Typed(exchange) => exchange.start(self.on),
                Work::Shared(_) => Err(nowhere()),
            }
        };
        self.pass();
        match (started, self.state.take()) {
            (Ok(started), state) => Ok(Flight::new(started, state)),
            (Err(error), Some(state)) => Err(state.report(error)),
            (Err(error), None) => Err(error),
        }
    }

    fn pass(&mut self) {
        if let Some(state) = &self.state
            && std::mem::take(&mut self.has_turn)
        {
            state.pass_turn();
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Of a call that was never started.
        self.pass();
    }
}

/// A barrier, which has its number then; `None`, and nothing is done, where [`Lane::open`] says so, and where another thread
/// has taken that.
#[inline]
pub fn barrier(
    mpi: &'static Mpi,
    raw: mpi_runtime::Comm,
) -> Option<impl FnOnce() -> Result<()> + Send> {
    if trace::is_on() || watch::is_on() {
        return None;
    }
    let settings = Settings::known().filter(|settings| !settings.plain)?;
    process::alive().ok()?;
    let taken = State::look(raw, |state| {
        if state.size() == 1 {
            return true;
        }
        let sequence = state.reached() + 1;
        let short = !state.is_plain() && sequence > KNOWN && !settings.check.due(sequence);
        short && state.takes(sequence)
    });
    // Where this thread has used another one last, it knows this one from then on.
    let taken = taken.or_else(|| {
        let lane = Lane::open(mpi, raw)?;
        Some(lane.state.is_none_or(|state| state.takes(lane.sequence)))
    })?;
    taken.then_some(move || Ok(mpi.barrier(raw)?))
}

/// The error of a way that `ready` never takes.
#[cold]
fn nowhere() -> Error {
    Error::State("dlmpi: this call shares no memory".into())
}
