//! The door of the non-blocking collectives. What the engine need not carry is in `at_once.rs`.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::brief::Brief;
use crate::call::{Call, CallKind, Kind};
use crate::collective::plan;
use crate::comm::Comm;
use crate::engine::{self, Collective, Handle, Issue, Job, Keep, Open, Step};
use crate::error::{Error, Result};
use crate::ground::awareness::Way;
use crate::ground::exchange::Exchange;
use crate::ground::gate::Gate;
use crate::ground::private;
use crate::ground::state::State;
use crate::plan::Plan;
use crate::trace::{self, Taken};
use crate::watch::About;

mod at_once;

pub use at_once::{Begun, Flight, ForeignBegun, Keeps, begin_here};

/// Steps of a collective before whoever waits for it has it kept: a small one ends within them.
const ATTEMPTS: u32 = 64;

/// Begins a collective. Everything that can be refused on this rank is refused here; the rest comes with
/// the [`Handle`]. `keep` holds the tensors' memory and is asked to let go when the operation has ended.
///
/// Calls on one communicator match by their order, as in MPI; they need not be waited for in that order,
/// and groups that overlap may start them in any order. The caller waits for it or gives it to
/// [`engine::carry`]: nobody else carries it on.
///
/// # Errors
/// As [`crate::run`]; besides [`Error::State`] below `MPI_THREAD_MULTIPLE`. Nothing was started then.
///
/// # Safety
/// - Until the operation has ended, every view of `call` describes memory that is there, for which `keep` may answer. Nobody
///   writes what is sent; nobody else reads or writes what is received into.
pub unsafe fn begin(comm: &Comm, call: &Call, keep: Box<dyn Keep>) -> Result<Handle> {
    let gate = open(comm, call)?;
    let (collective, brief) = make(&gate, call, ready(&gate, call)?)?;
    Ok(Rest::of(&gate, collective, brief).keep(keep))
}

/// The same for a thread that waits for it: what is small is done when this returns, if the other ranks are there.
/// Else the caller goes on with what is left, which nobody else does while others wait for this rank.
///
/// # Errors
/// As [`begin`], and what the operation found.
///
/// # Safety
/// - The memory that the call describes is there until this returns `None` or an error, or until the operation that
///   [`Rest::keep`] makes of the rest has ended.
pub unsafe fn attempt(comm: &Comm, call: &Call) -> Result<Option<Rest>> {
    let gate = open(comm, call)?;
    let (collective, brief) = make(&gate, call, ready(&gate, call)?)?;
    // A panic of ours leaves it where it is: MPI may still use what it was given.
    let mut collective = ManuallyDrop::new(collective);
    for _ in 0..ATTEMPTS {
        match collective.advance() {
            Ok(Step::Ended) => {
                ManuallyDrop::into_inner(collective).ended();
                return Ok(None);
            }
            Ok(Step::Moved | Step::Idle) => std::hint::spin_loop(),
            Err(why) => {
                ManuallyDrop::into_inner(collective).ended();
                return Err(why);
            }
        }
    }
    let collective = ManuallyDrop::into_inner(collective);
    Ok(Some(Rest::of(&gate, collective, brief)))
}

/// A collective under way that nobody carries on yet.
pub struct Rest(Option<(Collective, About)>);

impl Drop for Rest {
    fn drop(&mut self) {
        // MPI may still use what it was given, and nobody carries it on.
        std::mem::forget(self.0.take());
    }
}

impl Rest {
    fn of(gate: &Gate, mut collective: Collective, brief: Brief) -> Rest {
        collective.watched(gate.watch(|| brief));
        Rest(Some((collective, gate.about(brief))))
    }

    /// Goes on as an operation that keeps the tensors' memory, for whoever waits or [`engine::carry`].
    pub fn keep(mut self, keep: Box<dyn Keep>) -> Handle {
        let (collective, about) = self.0.take().expect("kept once");
        engine::begin(collective, keep, about)
    }
}

/// The call has its number.
fn open(comm: &Comm, call: &Call) -> Result<Gate> {
    engine::allowed(comm.mpi())?;
    Gate::open(*comm, call.kind)
}

/// Whether the ranks are asked for their counts, which waits for them, as in mpi4py.
fn asks(call: &Call) -> bool {
    call.kind == CallKind::ReduceScatter && call.recvcounts.is_none()
}

/// Everything that can be refused is refused.
fn ready(gate: &Gate, call: &Call) -> Result<Box<Plan>> {
    let comm = gate.comm_for(Way::NonBlocking)?;
    if asks(call) {
        // The check comes before that.
        gate.pass(Some(call))?;
    }
    let ready = plan(comm, call, Some(gate.standing_of_engine()))
        .and_then(|mut plan| plan.in_one_call().map(|()| Box::new(plan)));
    ready.map_err(|why| match asks(call) {
        true => why,
        false => tell(gate, why),
    })
}

/// The call has its turn.
fn make(gate: &Gate, call: &Call, plan: Box<Plan>) -> Result<(Collective, Brief)> {
    let comm = &gate.comm_for(Way::NonBlocking)?;
    let brief = Brief::of(call);
    let mut span = gate.trace_flight(brief);
    trace::takes(&mut span, || Taken::of(&plan));
    let Some(state) = gate.state() else {
        // SAFETY:
        // - the plan is boxed and lives in the operation until the request has completed, and so does
        //   the keeper of the tensors' memory.
        let flight = unsafe { plan.start_on(comm.raw()) }?;
        return Ok((Collective::flying(*comm, plan, flight, span), brief));
    };
    state.begin()?;
    let asks = asks(call);
    let exchange = match asks {
        true => None,
        false => gate.exchange(Some(call)).map(Exchange::noting_the_site),
    };
    let order = (Arc::clone(state), gate.tag());
    let collective = if plan.open && !asks {
        // What it is planned for is not known yet; the others have come to this call, too.
        drop(plan);
        state.ask_place();
        Collective::open(Open(call.clone()), order, exchange, span)
    } else {
        Collective::ordered(plan, order, exchange, span)
    };
    Ok((collective, brief))
}

/// Makes a communicator ready for operations of the engine: its private duplicate is there, and the ranks
/// know where they run, so that large reductions take our own way, share memory for small ones, and know who takes
/// device memory. Collective over the communicator. From then on large messages and broadcasts go by memory
/// (`handover.rs`) where that can be, so messages on it are begun by [`crate::begin_send`] and [`crate::begin_recv`] alone, and
/// broadcasts with the tensors' own Datatypes.
///
/// # Errors
/// What MPI reports.
pub fn prepare(comm: &Comm) -> Result<()> {
    engine::allowed(comm.mpi())?;
    let gate = Gate::open(*comm, CallKind::Barrier)?;
    if let Some(state) = gate.state() {
        gate.agree_place()?;
        gate.agree_arena_of_engine()?;
        state.agree_reach()?;
        state.begin()?;
        state.private(true)?;
        // As the first call of any other communicator: settings are compared, and it gets its number.
        gate.pass(Some(&Call::new(CallKind::Barrier)))?;
        state.hand_over()?;
    }
    Ok(())
}

/// Starts a non-blocking collective whose call to MPI `issue` makes, in its turn among the others of the
/// communicator and on the private duplicate, as theirs are: a rank that describes its memory to MPI itself
/// meets ranks that do not. `small`: MPI and whoever waits for it may carry it, where its turn has come.
///
/// # Errors
/// What `issue` says, when its turn has come at once; else that comes with the [`Handle`].
pub fn begin_foreign(
    comm: &Comm,
    (kind, name): (Kind, &'static str),
    mut issue: Box<dyn Issue>,
    keep: Box<dyn Keep>,
    small: bool,
) -> Result<ForeignBegun> {
    let brief = Brief::named(name);
    let gate = Gate::open(*comm, kind)?;
    let Some(state) = gate.state() else {
        return Ok(ForeignBegun::Yours);
    };
    if engine::allowed(comm.mpi()).is_err() {
        // Nothing of ours is under way there, nor can be.
        return Ok(ForeignBegun::Yours);
    }
    if small && let Some(turn) = at_once::turn(&gate)? {
        let request = turn.take(|comm| issue.issue(comm))?;
        return Ok(ForeignBegun::Mpi(Flight::new(
            (request, None),
            Some(Arc::clone(state)),
        )));
    }
    let exchange = gate.exchange(None).map(Exchange::noting_the_site);
    let mut span = gate.trace_flight(brief);
    trace::takes(&mut span, || Taken::RAW);
    let seen = (gate.watch(|| brief), span);
    state.begin()?;
    let about = gate.about(brief);
    let collective = Collective::foreign(issue, Arc::clone(state), exchange, seen);
    let handle = engine::begin(collective, keep, about);
    match handle.result() {
        Some(Err(why)) => Err(why),
        _ => Ok(ForeignBegun::Carried(handle)),
    }
}

/// Waits until a private duplicate that is under way is there, before a call of the user's that makes a
/// communicator, a window or a persistent collective of this one: Open MPI (5.0.11) makes duplicates of
/// non-blocking collectives on the parent, which meet those inside such calls and hang or fail. Every rank
/// has begun the duplicate before that call, so it waits for nobody who does not come.
///
/// # Errors
/// What MPI reports.
pub fn undisturbed(comm: &Comm) -> Result<()> {
    if !private::must_wait(comm.mpi()) {
        return Ok(());
    }
    match State::existing(*comm)? {
        Some(state) => state.await_pending(),
        None => Ok(()),
    }
}

/// As [`crate::refuse`], for a non-blocking collective: the others learn of it while this rank goes on.
pub fn refuse_start(comm: &Comm, kind: impl Into<Kind>, why: Error) -> Error {
    match Gate::open(*comm, kind) {
        Ok(gate) => tell(&gate, why),
        Err(_) => why,
    }
}

/// Tells the other ranks, where the call is due, that this one refuses it; the error that it then raises.
fn tell(gate: &Gate, why: Error) -> Error {
    match gate.refusal(&why) {
        None => why,
        // The caller raises `why` whatever happens here.
        Some(exchange) => match compare(Some(exchange), gate) {
            Ok(()) => why.told(),
            Err(_) => why,
        },
    }
}

/// Compares in the background, so that this rank waits for nobody.
fn compare(exchange: Option<Exchange>, gate: &Gate) -> Result<()> {
    let (Some(exchange), Some(state)) = (exchange, gate.state()) else {
        return Ok(());
    };
    engine::allowed(state.comm().mpi())?;
    state.begin()?;
    let collective = Collective::compared(Arc::clone(state), exchange.noting_the_site());
    let about = gate.about(Brief::named(gate.kind().name()));
    engine::carry(&engine::begin(collective, Box::new(()), about))
}
