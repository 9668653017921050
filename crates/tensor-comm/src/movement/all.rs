//! Movements without a root: `Allgather(v)` and `Alltoall(v)`.

use super::block::Own;
use super::{Moving, Per, joined};
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::Comm;
use crate::error::Result;
use crate::plan::Plan;

pub(super) fn plan(comm: Comm, call: &Call) -> Result<Plan> {
    let (inter, ranks) = (comm.is_inter()?, comm.blocks()?);
    let in_place = matches!(call.send, Arg::InPlace) && !inter;
    let gathering = matches!(call.kind, CallKind::Allgather | CallKind::Allgatherv);
    if !in_place && !inter {
        let rank = comm.rank()?;
        let send = match gathering {
            true => Own::whole(&call.send, "sendbuf"),
            false => Own::block(&call.send, "sendbuf", ranks, rank)?,
        };
        send.fits(call, &Own::block(&call.recv, "recvbuf", ranks, rank)?)?;
    }
    let send = match (in_place, gathering) {
        (true, true) => Moving::in_place(comm),
        // Libraries choose another algorithm for IN_PLACE here, so one rank's choice would reach the
        // wire: a copy of the buffer as send buffer means the same.
        (true, false) => Moving::sending(
            comm,
            &call.recv,
            "recvbuf",
            Per::Block(ranks),
            call.recv.view(),
        )?,
        (false, true) => Moving::sending(comm, &call.send, "sendbuf", Per::Side, call.recv.view())?,
        (false, false) => Moving::sending(
            comm,
            &call.send,
            "sendbuf",
            Per::Block(ranks),
            call.recv.view(),
        )?,
    };
    let recv = Moving::receiving(
        comm,
        &call.recv,
        "recvbuf",
        Per::Block(ranks),
        in_place && gathering,
    )?;
    Ok(joined(comm, call, send, recv))
}
