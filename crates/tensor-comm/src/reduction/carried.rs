//! Which sides of a reduction by our own algorithm stay in device memory, to be copied while messages travel
//! (`direct/conveyor.rs`). A local matter: what travels is the same.

use super::Significant;
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::direct::{Direct, Place};
use crate::error::Result;
use crate::host::Host;
use crate::side::may_alias;

/// Which sides of our own algorithm's are in device memory that is copied while messages travel.
#[derive(Default)]
pub(super) struct Carried {
    pub send: bool,
    pub recv: bool,
    dev: i32,
}

impl Carried {
    /// Those in a few pieces that overlap with nothing that is written before they are read.
    pub fn of(call: &Call, significant: &Significant) -> Carried {
        let dev = |arg: &Arg| arg.view().and_then(Host::copied_from);
        let aliased = match (call.send.view(), call.recv.view()) {
            (Some(send), Some(recv)) => significant.receives && may_alias(send, recv),
            _ => false,
        };
        // Results of one chunk must not come before contributions to another have left.
        let apart = significant.in_place
            && matches!(
                call.kind,
                CallKind::ReduceScatter | CallKind::ReduceScatterBlock
            );
        let from = dev(&call.send).filter(|_| significant.sends && !aliased);
        let receives = significant.receives || significant.in_place;
        let to =
            dev(&call.recv).filter(|&to| receives && !apart && from.is_none_or(|dev| dev == to));
        Carried {
            send: from.is_some(),
            recv: to.is_some(),
            dev: from.or(to).unwrap_or(0),
        }
    }

    /// Gives the sides to the algorithm, which copies them.
    pub fn carry(&self, direct: Direct, call: &Call, in_place: bool) -> Result<Direct> {
        let place = |arg: &Arg, carried: bool| match arg {
            Arg::Part(part) if carried => Some(Place {
                memory: part.view().data().addr() as u64,
                layout: part.view().layout().clone(),
                start: part.start(),
            }),
            _ => None,
        };
        let source = match in_place {
            true => place(&call.recv, self.recv),
            false => place(&call.send, self.send),
        };
        match (source, place(&call.recv, self.recv)) {
            (None, None) => Ok(direct),
            // SAFETY:
            // - the sides are such memory (`of`), waited for before the call was made, and kept by its caller.
            (source, target) => unsafe { direct.on_device(source, target, self.dev) },
        }
    }
}
