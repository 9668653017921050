//! One non-blocking collective as a state machine.
//!
//! ```text
//! Checking -> Placing (where the ranks run is not known yet) -> Waiting for its turn -> Flying -> settled
//!                                                            \-> Exchanging (our own algorithm) -> settled
//!                                                            \-> Sharing (memory, one step) -> settled
//!                                                            \-> Spreading (a broadcast by memory) -> settled
//! ```
//!
//! MPI matches collectives of a communicator by the order in which they are issued, so they are issued on
//! the private duplicate strictly in the order of the calls, which is the same on all ranks: those that
//! others describe to MPI, too ([`Issue`]). The comparison before it and our own algorithm are
//! point-to-point with a tag of their own and may overtake.

use std::sync::Arc;

use mpi_runtime::{CountArrays, Request, StatusPtr};

use super::operation::{Job, Step};
use crate::call::Call;
use crate::collective::plan;
use crate::comm::Comm;
use crate::direct::{Direct, Flight, Lane, Poll, Progress};
use crate::error::Result;
use crate::ground::exchange::Exchange;
use crate::ground::peers::Peers;
use crate::ground::state::State;
use crate::handover::Spreading;
use crate::plan::Plan;
use crate::trace::{self, Span, Taken};
use crate::watch::Entered;

enum Stage {
    Checking(Box<Exchange>),
    Placing,
    Turn,
    Flying(
        Request,
        #[expect(dead_code, reason = "MPI reads these until the request completes")]
        Option<CountArrays>,
    ),
    Exchanging(Box<Flight<Box<Direct>>>),
    Sharing(Poll),
    Spreading(Box<Spreading>),
    Ended,
}

/// A collective whose call to MPI somebody else makes, because only he can read its arguments.
///
/// # Safety
/// - The request that [`issue`](Issue::issue) returns has not been completed, and nobody else completes it; what MPI reads and
///   writes stays until then.
pub unsafe trait Issue: Send {
    /// Calls MPI on `comm`, once; the request is the caller's to complete. What it reads and writes must
    /// stay where it is until then.
    ///
    /// # Errors
    /// What MPI reports, or why there was no call.
    fn issue(&mut self, comm: mpi_runtime::Comm) -> Result<Request>;
}

/// What there is to do.
enum Work {
    /// Nothing but to compare, because this rank refuses the call.
    Compare,
    /// A call that is planned here.
    Planned(Box<Plan>),
    /// One that will be, when it is known where the ranks run.
    Open(Box<Open>),
    /// A call of somebody else's.
    Foreign(Box<dyn Issue>),
}

/// A call whose algorithm hangs on where the ranks run.
pub(crate) struct Open(pub Call);

// SAFETY:
// - its addresses are of tensors whose memory the operation keeps; it is used by one thread at a time.
unsafe impl Send for Open {}

/// Where a collective stands among those of its communicator.
struct Order {
    state: Arc<State>,
    /// Its place in the order of issue; `None` once it is given up.
    ticket: Option<u64>,
    /// The tag of our own algorithm's messages.
    tag: i32,
    /// Taken when the call was made: the ranks may agree on it at a later one.
    peers: Option<Arc<Peers>>,
}

/// One collective.
pub(crate) struct Collective {
    comm: Comm,
    stage: Stage,
    work: Work,
    /// `None` where MPI was called at once on the user's communicator.
    order: Option<Order>,
    /// Under watch and traced until it ends.
    seen: (Option<Entered>, Option<Span>),
}

impl Order {
    fn new(state: Arc<State>, tag: i32) -> Order {
        let (ticket, peers) = (Some(state.ticket()), state.peers());
        Order {
            state,
            ticket,
            tag,
            peers,
        }
    }

    fn forfeit(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.state.forfeit(ticket);
        }
    }
}

impl Collective {
    /// One that MPI has taken already.
    pub fn flying(
        comm: Comm,
        plan: Box<Plan>,
        (request, arrays): (Request, Option<CountArrays>),
        span: Option<Span>,
    ) -> Collective {
        Collective {
            comm,
            stage: Stage::Flying(request, arrays),
            work: Work::Planned(plan),
            order: None,
            seen: (None, span),
        }
    }

    /// One that is compared first (where `exchange` says so) and issued in its turn. `tag` is for the
    /// messages of our own algorithm.
    pub fn ordered(
        plan: Box<Plan>,
        order: (Arc<State>, i32),
        exchange: Option<Exchange>,
        span: Option<Span>,
    ) -> Collective {
        Collective::queued(Work::Planned(plan), order, exchange, (None, span))
    }

    /// The same for one that is planned again when it is known where the ranks run.
    pub fn open(
        call: Open,
        order: (Arc<State>, i32),
        exchange: Option<Exchange>,
        span: Option<Span>,
    ) -> Collective {
        Collective::queued(Work::Open(Box::new(call)), order, exchange, (None, span))
    }

    /// The same for a call that somebody else makes.
    pub fn foreign(
        issue: Box<dyn Issue>,
        state: Arc<State>,
        exchange: Option<Exchange>,
        seen: (Option<Entered>, Option<Span>),
    ) -> Collective {
        Collective::queued(Work::Foreign(issue), (state, 0), exchange, seen)
    }

    fn queued(
        work: Work,
        (state, tag): (Arc<State>, i32),
        exchange: Option<Exchange>,
        seen: (Option<Entered>, Option<Span>),
    ) -> Collective {
        Collective {
            comm: state.comm(),
            stage: exchange.map_or(Stage::Placing, |exchange| {
                Stage::Checking(Box::new(exchange))
            }),
            work,
            order: Some(Order::new(state, tag)),
            seen,
        }
    }

    /// Under watch until it ends.
    pub fn watched(&mut self, watched: Option<Entered>) {
        self.seen.0 = watched;
    }

    /// A comparison alone.
    pub fn compared(state: Arc<State>, exchange: Exchange) -> Collective {
        Collective {
            comm: state.comm(),
            stage: Stage::Checking(Box::new(exchange)),
            work: Work::Compare,
            order: Some(Order::new(state, 0)),
            seen: (None, None),
        }
    }

    /// The comparison: whether it is over.
    fn check(&mut self) -> Result<bool> {
        let (Stage::Checking(exchange), Some(Order { state, .. })) = (&mut self.stage, &self.order)
        else {
            return Ok(true);
        };
        let Some(private) = state.private(false)? else {
            return Ok(false);
        };
        match exchange.poll(private, false) {
            Ok(None) => return Ok(false),
            Ok(Some(())) => self.stage = Stage::Placing,
            Err(error) => return Err(state.report(error)),
        }
        Ok(true)
    }

    /// The choice of the algorithm, where it was open: whether it is made.
    fn place(&mut self) -> Result<bool> {
        if let (Work::Open(open), Some(order)) = (&self.work, &mut self.order) {
            if !order.state.knows_place()? {
                return Ok(false);
            }
            let standing = order.state.standing_of_engine(false);
            let mut ready = Box::new(plan(self.comm, &open.0, Some(standing))?);
            ready.in_one_call()?;
            trace::takes(&mut self.seen.1, || Taken::of(&ready));
            order.peers = order.state.peers();
            self.work = Work::Planned(ready);
        }
        self.stage = Stage::Turn;
        Ok(true)
    }

    /// The start: whether it has left.
    fn leave(&mut self) -> Result<bool> {
        let Some(order) = &mut self.order else {
            return Ok(false);
        };
        let (direct, shared, spread) = match &mut self.work {
            Work::Planned(plan) => (&mut plan.direct, &mut plan.shared, &mut plan.spread),
            _ => (&mut None, &mut None, &mut None),
        };
        if direct.is_some() || spread.is_some() {
            // It stands in nobody's way: its messages are apart.
            order.forfeit();
        } else if !order
            .ticket
            .is_some_and(|ticket| order.state.is_turn(ticket))
        {
            return Ok(false);
        }
        let Some(comm) = order.state.private(false)? else {
            return Ok(false);
        };
        if let Some(direct) = direct.take() {
            let (tag, peers) = (order.tag, order.peers.take());
            let flight = Flight::new(direct, Lane { comm, tag, peers })?;
            self.stage = Stage::Exchanging(Box::new(flight));
            return Ok(true);
        }
        if let Some(spread) = spread.take() {
            let (tag, peers) = (order.tag, order.peers.take());
            // SAFETY:
            // - the plan's side is what the spread was made for; it lives as long as the operation.
            let begun = unsafe { Spreading::begin(spread, Lane { comm, tag, peers }) };
            let begun = begun.map_err(|error| order.state.report(error))?;
            self.stage = Stage::Spreading(Box::new(begun));
            return Ok(true);
        }
        if let Some(arena) = order.state.arena()
            && let Some(shared) = shared.take()
        {
            self.stage = Stage::Sharing(Poll::new(shared, arena));
            order.ticket = None;
            order.state.pass_turn();
            return Ok(true);
        }
        let started = match &mut self.work {
            // SAFETY:
            // - the plan is boxed and dropped only with the operation, after the request completed, as is the
            //   keeper of the tensors' memory; an abandoned operation leaks both.
            Work::Planned(plan) => unsafe { plan.start_on(comm) },
            Work::Foreign(issue) => issue.issue(comm).map(|request| (request, None)),
            Work::Compare | Work::Open(_) => return Ok(false),
        };
        let (request, arrays) = started.map_err(|error| order.state.report(error))?;
        self.stage = Stage::Flying(request, arrays);
        order.ticket = None;
        order.state.pass_turn();
        Ok(true)
    }

    /// The flight: how far it came.
    fn land(&mut self) -> Result<Progress> {
        let landed = match &mut self.stage {
            Stage::Flying(request, _) => {
                // SAFETY:
                // - the request is this operation's, and completed nowhere else.
                let landed = unsafe { self.comm.mpi().test(request, StatusPtr::ignore()) };
                match landed {
                    Ok(true) => Ok(Progress::Ended),
                    Ok(false) => Ok(Progress::Idle),
                    Err(error) => Err(error.into()),
                }
            }
            // SAFETY:
            // - the plan's sides are what the exchange was made for; they live as long as the operation.
            Stage::Exchanging(flight) => unsafe { flight.advance(false) },
            Stage::Sharing(poll) => match &self.order {
                Some(Order { state, .. }) => state.with_arena(|arena, idle| {
                    // SAFETY:
                    // - as above.
                    unsafe { poll.advance(arena, idle) }
                }),
                None => Ok(Progress::Idle),
            },
            Stage::Spreading(spreading) => match (spreading.advance(), &self.order) {
                (Ok(Progress::Idle), Some(Order { state, .. })) => {
                    state.look_around().map(|()| Progress::Idle)
                }
                (went, _) => went,
            },
            _ => Ok(Progress::Idle),
        };
        landed.map_err(|error| match &self.order {
            Some(Order { state, .. }) => state.report(error),
            None => error,
        })
    }
}

impl Job for Collective {
    fn advance(&mut self) -> Result<Step> {
        let mut step = Step::Idle;
        if let Stage::Checking(_) = self.stage {
            if !self.check()? {
                return Ok(step);
            }
            step = Step::Moved;
        }
        if let Work::Compare = self.work {
            return Ok(Step::Ended);
        }
        if let Stage::Placing = self.stage {
            if !self.place()? {
                return Ok(step);
            }
            step = Step::Moved;
        }
        if let Stage::Turn = self.stage {
            if !self.leave()? {
                return Ok(step);
            }
            step = Step::Moved;
        }
        match self.land()? {
            Progress::Idle => return Ok(step),
            Progress::Moved => return Ok(Step::Moved),
            Progress::Ended => {}
        }
        let settled = match &self.work {
            Work::Planned(plan) => plan.settle(),
            Work::Foreign(_) | Work::Open(_) | Work::Compare => Ok(()),
        };
        trace::ended(&mut self.seen.1, settled).map(|()| Step::Ended)
    }

    fn ended(&mut self) -> bool {
        // One that never flew still has its turn, which every rank gives up alike.
        if let Some(order) = &mut self.order {
            order.forfeit();
        }
        let flew = matches!(
            self.stage,
            Stage::Flying(..) | Stage::Exchanging(_) | Stage::Sharing(_) | Stage::Spreading(_)
        );
        self.stage = Stage::Ended;
        self.seen = (None, None);
        flew
    }
}
