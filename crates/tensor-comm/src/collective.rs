//! The door of the collectives.

use crate::agreed::Standing;
use crate::brief::Brief;
use crate::call::{Call, CallKind, Kind};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::ground::awareness::Way;
use crate::ground::gate::Gate;
use crate::ground::settings::{Choice, Settings};
use crate::ground::state::State;
use crate::plan::Plan;
use crate::trace::{self, Span, Taken};
use crate::{movement, reduction};

/// Runs a collective and returns when this rank's part of it is done. Needs no interpreter.
///
/// # Errors
/// Everything that can be found on this rank is found before MPI is entered. Where the call is checked
/// ([`crate::Check`]) a refusal travels in the check, so that every rank raises; elsewhere the other ranks
/// are then still waiting for this one. What MPI reports comes as [`Error::Mpi`].
///
/// # Safety
/// - Until this returns, every view of `call` describes memory that is there. Nobody writes what is sent; nobody else reads or
///   writes what is received into.
pub unsafe fn run(comm: &Comm, call: &Call) -> Result<()> {
    let gate = Gate::open(*comm, call.kind)?;
    let _watched = gate.watch(|| Brief::of(call));
    let mut span = gate.trace(|| Brief::of(call));
    let done = pass_and_run(&gate, call, &mut span);
    trace::ended(&mut span, done)
}

fn pass_and_run(gate: &Gate, call: &Call, span: &mut Option<Span>) -> Result<()> {
    let comm = &gate.comm_for(Way::Blocking)?;
    // Asking the ranks for their counts is a collective itself, so the check comes before it.
    let asks = call.kind == CallKind::ReduceScatter && call.recvcounts.is_none();
    if asks {
        gate.pass(Some(call))?;
    }
    let standing = gate.standing();
    let made = |standing| plan(*comm, call, Some(standing));
    match made(standing) {
        Ok(mut ready) => {
            if !asks {
                gate.pass(Some(call))?;
            }
            if ready.open {
                drop(ready);
                ready = gate.settle(standing, |plan| plan.open, made)?;
            }
            trace::takes(span, || Taken::of(&ready));
            ready.run(*comm, gate)
        }
        Err(why) if asks => Err(why),
        Err(why) => Err(gate.refuse(why)),
    }
}

/// Makes collectives on this communicator exactly one plain MPI call each, so that its members need not all
/// be dlmpi; what needs more (a `bfloat16` sum, the mean) is then refused. Local: every rank that is dlmpi
/// says so for itself. It belongs to the communicator and goes with it.
///
/// # Errors
/// What MPI reports when it cannot keep the mark.
pub fn set_plain(comm: &Comm, plain: bool) -> Result<()> {
    if !comm.is_inter()? {
        State::of(*comm)?.set_plain(plain);
    }
    Ok(())
}

/// Says whose algorithms the reductions on this communicator use, instead of `DLMPI_ALLREDUCE`. Local: every rank
/// says so for itself, all alike and between the same collectives; the check compares it. It belongs to the
/// communicator and goes with it.
///
/// # Errors
/// What MPI reports when it cannot keep the mark.
pub fn set_choice(comm: &Comm, choice: Choice) -> Result<()> {
    if !comm.is_inter()? {
        State::of(*comm)?.set_choice(choice);
    }
    Ok(())
}

/// Revokes what dlmpi keeps besides this communicator, which is about to be revoked itself. Local; the ranks
/// that wait in there get MPI's error.
///
/// # Errors
/// What MPI reports.
pub fn revoke(comm: &Comm) -> Result<()> {
    if !comm.is_inter()? && comm.size()? > 1 {
        State::of(*comm)?.revoke()?;
    }
    Ok(())
}

/// Whether collectives on this communicator are exactly one plain MPI call each.
///
/// # Errors
/// Settings that do not parse, and what MPI reports.
pub fn is_plain(comm: &Comm) -> Result<bool> {
    let plain = Settings::get()?.plain || comm.is_plain() || comm.is_inter()?;
    Ok(plain || State::of(*comm)?.is_plain())
}

/// Numbers a collective that this rank refuses before it could become a [`Call`], and tells the other
/// ranks where the call is checked. Gives the error to raise.
pub fn refuse(comm: &Comm, kind: impl Into<Kind>, why: Error) -> Error {
    let kind = kind.into();
    match Gate::open(*comm, kind) {
        Ok(gate) => {
            let _watched = gate.watch(|| Brief::named(kind.name()));
            let _traced = gate.trace(|| Brief::named(kind.name()));
            gate.refuse(why)
        }
        Err(_) => why,
    }
}

/// Makes a call ready: everything that can be refused on this rank is refused here. `standing` is
/// what the ranks have agreed on so far, `None` for a non-blocking call.
pub(crate) fn plan(comm: Comm, call: &Call, standing: Option<Standing>) -> Result<Plan> {
    if call.kind.is_reduction() {
        reduction::plan(comm, call, comm.facts(standing)?)
    } else {
        movement::plan(comm, call)
    }
}
