//! Non-blocking collectives that need no engine: one call of MPI's on memory as it lies, small, with nothing to compare and
//! nobody before them. MPI's own request is the caller's, as the short way's is (`lane.rs`): on the wire is what the
//! engine would have put there, so each rank takes this way or not by itself.
//!
//! Knows plans and turns, no tensor.

use std::sync::Arc;

use mpi_runtime::{CountArrays, Request};

use super::{Rest, asks, make, open, ready};
use crate::call::{Call, Op};
use crate::comm::Comm;
use crate::engine::Handle;
use crate::error::Result;
use crate::ground::awareness::Way;
use crate::ground::gate::Gate;
use crate::ground::state::State;
use crate::lane::SMALL;
use crate::plan::Plan;
use crate::side::Side;
use crate::{trace, watch};

/// A collective that MPI carries.
#[derive(Debug)]
pub struct Flight {
    /// MPI's own.
    pub request: Request,
    /// What must stay until it has completed, besides the tensors' memory.
    pub keeps: Keeps,
}

/// What MPI uses of ours until a request has completed: counts that it reads, and the private duplicate on which the call was
/// made. The communicator may be freed before.
#[derive(Debug, Default)]
pub struct Keeps {
    _arrays: Option<CountArrays>,
    _state: Option<Arc<State>>,
}

impl Flight {
    pub(crate) fn new(
        (request, arrays): (Request, Option<CountArrays>),
        state: Option<Arc<State>>,
    ) -> Flight {
        let keeps = Keeps {
            _arrays: arrays,
            _state: state,
        };
        Flight { request, keeps }
    }
}

/// A collective that has begun.
#[allow(
    clippy::large_enum_variant,
    reason = "made and taken apart on the stack, once per call"
)]
pub enum Begun {
    /// MPI carries it.
    Mpi(Flight),
    /// Whoever waits for it, or the engine.
    Rest(Rest),
}

/// A collective of somebody else's that has begun.
pub enum ForeignBegun {
    /// Nothing was begun: the caller calls MPI at once, on the user's communicator.
    Yours,
    /// Its turn had come: the request of the call that was made.
    Mpi(Flight),
    /// It waits for its turn. The caller gives it to [`crate::engine::carry`].
    Carried(Handle),
}

/// As [`crate::begin`], but left to MPI where that can be and nothing is left to do at the end: `lets_go` says so of
/// the caller, who has the memory to let go.
///
/// # Errors
/// As [`crate::begin`].
///
/// # Safety
/// - As for [`crate::begin`], until the request has completed or the operation that [`Rest::keep`] makes has ended.
pub unsafe fn begin_here(comm: &Comm, call: &Call, lets_go: bool) -> Result<Begun> {
    let gate = open(comm, call)?;
    let plan = ready(&gate, call)?;
    // The callback of an operation of the caller's is not left to whoever happens to wait.
    let simple = lets_go && is_small(&plan) && !matches!(call.op, Some(Op::Native(_)));
    if simple && !is_seen() {
        let Some(state) = gate.state() else {
            let comm = gate.comm_for(Way::NonBlocking)?;
            // SAFETY:
            // - the caller's promise; the plan works on the tensors' own memory.
            let started = unsafe { plan.start_on(comm.raw()) }?;
            return Ok(Begun::Mpi(Flight::new(started, None)));
        };
        // What asks was compared before.
        let turn = match asks(call) {
            true => Turn::of(state)?,
            false => turn(&gate)?,
        };
        if let Some(turn) = turn {
            // SAFETY:
            // - as above.
            let start = |comm| unsafe { plan.start_on(comm) };
            let started = turn.take(start)?;
            return Ok(Begun::Mpi(Flight::new(started, Some(Arc::clone(state)))));
        }
    }
    let (collective, brief) = make(&gate, call, plan)?;
    Ok(Begun::Rest(Rest::of(&gate, collective, brief)))
}

/// Whether it is one MPI call on memory as it lies, and small.
fn is_small(plan: &Plan) -> bool {
    let lies = |side: &Side| side.is_direct() && !side.is_packed() && side.bytes() <= SMALL;
    let small = |side: &Option<Side>| side.as_ref().is_none_or(lies);
    plan.is_one_call() && plan.settle.mean.is_none() && small(&plan.send) && small(&plan.recv)
}

/// Whether somebody wants to see when operations end.
fn is_seen() -> bool {
    trace::is_on() || watch::is_on()
}

/// The turn of a call that is not to be compared or seen: `None` where it has to wait.
pub(super) fn turn(gate: &Gate) -> Result<Option<Turn<'_>>> {
    match gate.state() {
        Some(state) if !gate.is_due() && !is_seen() => Turn::of(state),
        _ => Ok(None),
    }
}

/// The turn that has come.
pub(super) struct Turn<'a> {
    state: &'a State,
    comm: mpi_runtime::Comm,
}

impl Turn<'_> {
    fn of(state: &State) -> Result<Option<Turn<'_>>> {
        if !state.is_idle() {
            return Ok(None);
        }
        let comm = state.private(false)?;
        Ok(comm.map(|comm| Turn { state, comm }))
    }

    /// Makes the call on the private duplicate.
    pub fn take<T>(self, call: impl FnOnce(mpi_runtime::Comm) -> Result<T>) -> Result<T> {
        let _its_turn = self.state.ticket();
        let made = call(self.comm);
        self.state.pass_turn();
        made.map_err(|error| self.state.report(error))
    }
}
