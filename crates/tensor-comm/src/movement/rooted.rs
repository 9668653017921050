//! Movements with a root: `Bcast`, `Gather(v)`, `Scatter(v)`.

use super::block::Own;
use super::{Moving, Per, elements, joined};
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::{Comm, Role};
use crate::counted::{Counted, Derived, counted};
use crate::error::Result;
use crate::handover::{Spread, wanted};
use crate::plan::Plan;
use crate::wiretype::{WireType, byte};

pub(super) fn bcast(comm: Comm, call: &Call) -> Result<Plan> {
    let buffer = if matches!(call.send, Arg::Absent) {
        &call.recv
    } else {
        &call.send
    };
    let moving = match comm.role(call.root)? {
        Role::Root => Moving::sending(comm, buffer, "buf", Per::Side, None)?,
        Role::Leaf => Moving::receiving(comm, buffer, "buf", Per::Side, false)?,
        Role::Idle => Moving::nothing(comm),
    };
    // MPI_Bcast has one buffer; whether it is a side to settle is this rank's role.
    let received = comm.role(call.root)? == Role::Leaf;
    let spread = spread(comm, call, buffer, &moving)?;
    let mut plan = joined(comm, call, Moving::nothing(comm), moving);
    if let Some((spread, derived)) = spread {
        plan.spread = Some(spread);
        plan.derived = [None, derived];
    }
    if !received {
        plan.send = plan.recv.take();
    }
    Ok(plan)
}

/// The broadcast by memory that ranks use of each other, where it is one, with its Datatype.
fn spread(
    comm: Comm,
    call: &Call,
    buffer: &Arg,
    moving: &Moving,
) -> Result<Option<(Spread, Option<Derived>)>> {
    let bytes = elements(buffer) * buffer.view().map_or(0, |view| view.itemsize());
    if !wanted(comm, bytes)? {
        return Ok(None);
    }
    let mpi = comm.mpi();
    let as_bytes = WireType {
        datatype: byte(mpi),
        units: 1,
        bytes: 1,
    };
    let Counted {
        count,
        datatype,
        derived,
    } = counted(mpi, bytes, as_bytes)?;
    let spread = Spread {
        mpi,
        rank: comm.rank()? as usize,
        ranks: comm.size()?,
        root: call.root as usize,
        ptr: moving.port.ptr,
        count,
        datatype,
        bytes,
    };
    Ok(Some((spread, derived)))
}

/// The root has one block per rank, every rank has one block. Gathering moves them to the root,
/// scattering away from it.
pub(super) fn gather_or_scatter(comm: Comm, call: &Call) -> Result<Plan> {
    let gathering = matches!(call.kind, CallKind::Gather | CallKind::Gatherv);
    let (one, one_name, many, many_name) = match gathering {
        true => (&call.send, "sendbuf", &call.recv, "recvbuf"),
        false => (&call.recv, "recvbuf", &call.send, "sendbuf"),
    };
    let role = comm.role(call.root)?;
    let in_place = role == Role::Root && matches!(one, Arg::InPlace);
    let has_one = role == Role::Leaf || (role == Role::Root && !comm.is_inter()? && !in_place);
    let has_many = role == Role::Root;
    let ranks = comm.blocks()?;
    if has_one && has_many {
        Own::whole(one, one_name).fits(call, &Own::block(many, many_name, ranks, comm.rank()?)?)?;
    }
    let per = Per::Block(ranks);
    let bare = || {
        if in_place {
            Moving::in_place(comm)
        } else {
            Moving::nothing(comm)
        }
    };
    let (send, recv) = match gathering {
        true => {
            let aliases = if has_many { many.view() } else { None };
            let send = if has_one {
                Moving::sending(comm, one, one_name, Per::Side, aliases)?
            } else {
                bare()
            };
            let recv = if has_many {
                Moving::receiving(comm, many, many_name, per, in_place)?
            } else {
                Moving::nothing(comm)
            };
            (send, recv)
        }
        false => {
            let aliases = if has_one { one.view() } else { None };
            let send = if has_many {
                Moving::sending(comm, many, many_name, per, aliases)?
            } else {
                Moving::nothing(comm)
            };
            let recv = if has_one {
                Moving::receiving(comm, one, one_name, Per::Side, false)?
            } else {
                bare()
            };
            (send, recv)
        }
    };
    Ok(joined(comm, call, send, recv))
}
