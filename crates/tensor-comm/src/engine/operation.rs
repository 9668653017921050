//! One non-blocking collective as a state machine.
//!
//! ```text
//! Checking -> Waiting for its turn -> Flying -> settled
//! ```
//!
//! MPI matches collectives of a communicator by the order in which they are issued, so operations are
//! issued on the private duplicate strictly in the order of the calls, which is the same on all ranks.
//! The comparison before it is point-to-point with a tag of its own and may overtake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mpi_runtime::{CountArrays, Request, StatusPtr};

use super::handle::{Handle, Keep, abandoned};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::ground::exchange::Exchange;
use crate::ground::state::State;
use crate::plan::Plan;
use crate::watch::{About, Entered};

enum Stage {
    Checking(Box<Exchange>),
    Turn,
    Flying(
        Request,
        #[expect(dead_code, reason = "MPI reads these until the request completes")]
        Option<CountArrays>,
    ),
    Ended,
}

/// What a step did.
pub(crate) struct Step {
    pub moved: bool,
    pub done: bool,
}

/// One operation.
pub(crate) struct Operation {
    comm: Comm,
    stage: Stage,
    /// `None`: only compared, because this rank refuses the call or MPI does it as the caller described it.
    plan: Option<Box<Plan>>,
    /// The communicator's state and this operation's place in its order; `None` where MPI was called at
    /// once on the user's communicator.
    order: Option<(Arc<State>, u64)>,
    keep: Box<dyn Keep>,
    handle: Handle,
    /// Under watch until it ends.
    watched: Option<Entered>,
}

impl Operation {
    /// An operation that MPI has taken already.
    pub fn flying(
        comm: Comm,
        plan: Box<Plan>,
        (request, arrays): (Request, Option<CountArrays>),
        keep: Box<dyn Keep>,
        (about, watched): (About, Option<Entered>),
    ) -> Operation {
        let (stage, handle) = (Stage::Flying(request, arrays), Handle::new(about));
        Operation {
            comm,
            stage,
            plan: Some(plan),
            order: None,
            keep,
            handle,
            watched,
        }
    }

    /// An operation that is compared first (where `exchange` says so) and issued in its turn.
    pub fn ordered(
        plan: Box<Plan>,
        state: Arc<State>,
        exchange: Option<Exchange>,
        keep: Box<dyn Keep>,
        (about, watched): (About, Option<Entered>),
    ) -> Operation {
        let stage = exchange.map_or(Stage::Turn, |exchange| Stage::Checking(Box::new(exchange)));
        let (comm, ticket) = (state.comm(), state.ticket());
        Operation {
            comm,
            stage,
            plan: Some(plan),
            order: Some((state, ticket)),
            keep,
            handle: Handle::new(about),
            watched,
        }
    }

    /// A comparison alone.
    pub fn compared(state: Arc<State>, exchange: Exchange, about: About) -> Operation {
        let (comm, ticket) = (state.comm(), state.ticket());
        Operation {
            comm,
            stage: Stage::Checking(Box::new(exchange)),
            plan: None,
            order: Some((state, ticket)),
            keep: Box::new(()),
            handle: Handle::new(about),
            watched: None,
        }
    }

    /// What the caller waits for.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Goes on as far as it can without waiting.
    pub fn step(&mut self) -> Step {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.advance()));
        let result = match stepped {
            Ok(Ok(None)) => {
                return Step {
                    moved: false,
                    done: false,
                };
            }
            Ok(Ok(Some(false))) => {
                return Step {
                    moved: true,
                    done: false,
                };
            }
            Ok(Ok(Some(true))) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::State(
                "dlmpi's engine panicked in this operation; please report it".into(),
            )),
        };
        self.end(result);
        Step {
            moved: true,
            done: true,
        }
    }

    /// `None`: nothing moved; else whether it has ended.
    fn advance(&mut self) -> Result<Option<bool>> {
        let mut moved = None;
        if let Stage::Checking(exchange) = &mut self.stage {
            let Some((state, _)) = &self.order else {
                return Ok(Some(true));
            };
            let Some(private) = state.private(false)? else {
                return Ok(None);
            };
            match exchange.poll(private, false) {
                Ok(None) => return Ok(None),
                Ok(Some(())) => self.stage = Stage::Turn,
                Err(error) => return Err(state.report(error)),
            }
            moved = Some(false);
        }
        if let Stage::Turn = self.stage {
            let Some((state, ticket)) = &self.order else {
                return Ok(Some(true));
            };
            if !state.is_turn(*ticket) {
                return Ok(moved);
            }
            let Some(private) = state.private(false)? else {
                return Ok(moved);
            };
            let Some(plan) = &self.plan else {
                return Ok(Some(true));
            };
            // SAFETY:
            // - the plan is boxed and dropped only with the operation, after the request completed, as is the keeper of
            //   the tensors' memory; `abandon` leaks both.
            let started = unsafe { plan.start_on(private) }.map_err(|error| state.report(error))?;
            self.stage = Stage::Flying(started.0, started.1);
            state.pass_turn();
            moved = Some(false);
        }
        if let Stage::Flying(request, _) = &mut self.stage {
            // SAFETY:
            // - the request is this operation's, and completed nowhere else.
            let landed = unsafe { self.comm.mpi().test(request, StatusPtr::ignore()) };
            match landed {
                Ok(false) => return Ok(moved),
                Ok(true) => {}
                Err(error) => {
                    let error = Error::from(error);
                    return Err(match &self.order {
                        Some((state, _)) => state.report(error),
                        None => error,
                    });
                }
            }
            return self
                .plan
                .as_ref()
                .map_or(Ok(()), |plan| plan.settle())
                .map(|()| Some(true));
        }
        Ok(Some(true))
    }

    fn end(&mut self, result: Result<()>) {
        // One that never flew still has its turn, which every rank gives up alike.
        if let (Stage::Checking(_) | Stage::Turn, Some((state, ticket))) =
            (&self.stage, &self.order)
        {
            state.forfeit(*ticket);
        }
        let flew = matches!(self.stage, Stage::Flying(..));
        self.stage = Stage::Ended;
        self.watched = None;
        // Python code may run here; its panics must not take the engine down.
        let _ = catch_unwind(AssertUnwindSafe(|| self.keep.done(flew)));
        self.handle.complete(result);
    }

    /// Leaves everything where it is: MPI may still write it.
    pub fn abandon(self) {
        self.handle.complete(Err(abandoned()));
        std::mem::forget(self);
    }
}
