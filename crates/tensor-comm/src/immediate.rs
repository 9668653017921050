//! The door of the non-blocking collectives.

use std::sync::Arc;

use crate::brief::Brief;
use crate::call::{Call, CallKind};
use crate::collective::plan;
use crate::comm::Comm;
use crate::engine::{self, Handle, Keep, Operation};
use crate::error::{Error, Result, value_error};
use crate::ground::exchange::Exchange;
use crate::ground::gate::Gate;

/// Starts a collective. Everything that can be refused on this rank is refused here; the rest comes with
/// the [`Handle`]. `keep` holds the tensors' memory and is asked to let go when the operation has ended.
///
/// Calls on one communicator match by their order, as in MPI; they need not be waited for in that order,
/// and groups that overlap may start them in any order.
///
/// # Errors
/// As [`crate::run`]; besides [`Error::State`] below `MPI_THREAD_MULTIPLE`. Nothing was started then.
pub fn start(comm: &Comm, call: &Call, keep: Box<dyn Keep>) -> Result<Handle> {
    engine::allowed(comm.mpi())?;
    if call.kind == CallKind::ReduceScatter && call.recvcounts.is_none() {
        return Err(value_error!(
            "recvcounts: None, but asking the ranks for their counts would block; give one count per rank"
        ));
    }
    let gate = Gate::open(*comm, call.kind)?;
    let comm = &gate.comm();
    let ready = plan(*comm, call, None).and_then(|plan| plan.can_start().map(|()| Box::new(plan)));
    let brief = Brief::of(call);
    let watched = (gate.about(brief), gate.watch(|| brief));
    let mut operation = match (ready, gate.state()) {
        (Ok(plan), None) => {
            // SAFETY:
            // - the plan is boxed and lives in the operation until the request has completed, and so does
            //   the keeper of the tensors' memory.
            let flight = unsafe { plan.start_on(comm.raw()) }?;
            Operation::flying(*comm, plan, flight, keep, watched)
        }
        (Ok(plan), Some(state)) => {
            state.begin()?;
            Operation::ordered(
                plan,
                Arc::clone(state),
                gate.exchange(Some(call)),
                keep,
                watched,
            )
        }
        (Err(why), _) => {
            compare(gate.refusal(&why), &gate)?;
            return Err(why);
        }
    };
    let handle = operation.handle();
    // What can be issued at once is not left to the engine.
    if !operation.step().done {
        engine::submit(operation)?;
    }
    Ok(handle)
}

/// Numbers and compares a non-blocking collective that goes to MPI as the caller described it, as
/// [`crate::announce`] does for a blocking one. A disagreement shows on the ranks whose call came through
/// [`start`].
///
/// # Errors
/// As for [`start`].
pub fn announce_start(comm: &Comm, kind: CallKind) -> Result<()> {
    let gate = Gate::open(*comm, kind)?;
    compare(gate.exchange(None), &gate)
}

/// As [`crate::refuse`], for a non-blocking collective: the others learn of it while this rank goes on.
pub fn refuse_start(comm: &Comm, kind: CallKind, why: &Error) {
    // The caller raises `why` whatever happens here.
    let _ = Gate::open(*comm, kind).and_then(|gate| compare(gate.refusal(why), &gate));
}

/// Compares in the background, so that this rank waits for nobody.
fn compare(exchange: Option<Exchange>, gate: &Gate) -> Result<()> {
    let (Some(exchange), Some(state)) = (exchange, gate.state()) else {
        return Ok(());
    };
    engine::allowed(state.comm().mpi())?;
    state.begin()?;
    let about = gate.about(Brief::named(gate.kind().name()));
    let mut operation = Operation::compared(Arc::clone(state), exchange, about);
    if operation.step().done {
        Ok(())
    } else {
        engine::submit(operation)
    }
}
