//! `Scatter` and `Scatterv`: the mirror image of gathering.

use super::{Moving, NOTHING, block_count, elements, same_block};
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::{Comm, Role};
use crate::error::Result;
use crate::wiretype::byte;

pub(super) fn scatter(comm: Comm, call: &Call) -> Result<()> {
    let (mpi, raw, role) = (comm.mpi(), comm.raw(), comm.role(call.root)?);
    let in_place = role == Role::Root && matches!(call.recv, Arg::InPlace);
    let sends = role == Role::Root;
    let receives = role == Role::Leaf || (role == Role::Root && !comm.is_inter()? && !in_place);
    let ranks = comm.blocks()?;
    if sends && receives {
        same_block(
            call,
            &call.recv,
            "recvbuf",
            &call.send,
            "sendbuf",
            ranks,
            comm.rank()?,
        )?;
    }
    let aliases = if receives { call.recv.view() } else { None };
    let send = if sends {
        Some(Moving::sending(comm, &call.send, "sendbuf", aliases)?)
    } else {
        None
    };
    let recv = if receives {
        Some(Moving::receiving(comm, &call.recv, "recvbuf", false)?)
    } else {
        None
    };
    let into = recv
        .as_ref()
        .map(|r| r.count(comm, elements(&call.recv)))
        .transpose()?;
    let (recv_ptr, recv_count, recv_type) = match (&recv, &into) {
        (Some(recv), Some(into)) => (recv.side.ptr(), into.count, into.datatype),
        _ if in_place => (mpi.in_place().cast_mut(), 0, byte(mpi)),
        _ => (NOTHING, 0, byte(mpi)),
    };
    match (&send, &call.send) {
        (Some(send), Arg::Blocks(blocks)) => {
            let out = send.blocks(comm, "sendbuf", blocks.counts())?;
            let (counts, displs) = (&out.counts, &out.displs);
            // SAFETY:
            // - both sides hold what their counts say, in this form; the receiving one is writable.
            unsafe {
                mpi.scatterv(
                    send.side.base(),
                    counts,
                    displs,
                    out.datatype,
                    recv_ptr,
                    recv_count,
                    recv_type,
                    call.root,
                    raw,
                )
            }?;
        }
        (Some(send), _) => {
            let out = send.count(comm, block_count(&call.send, "sendbuf", ranks)?)?;
            // SAFETY:
            // - as above; the sending side holds one block per rank.
            unsafe {
                mpi.scatter(
                    send.side.ptr(),
                    out.count,
                    out.datatype,
                    recv_ptr,
                    recv_count,
                    recv_type,
                    call.root,
                    raw,
                )
            }?;
        }
        (None, _) if call.kind == CallKind::Scatterv => {
            // SAFETY:
            // - the sending arguments are not significant on this rank (MPI 4.1 §6.6).
            unsafe {
                mpi.scatterv(
                    NOTHING,
                    &[],
                    &[],
                    byte(mpi),
                    recv_ptr,
                    recv_count,
                    recv_type,
                    call.root,
                    raw,
                )
            }?;
        }
        (None, _) => {
            // SAFETY:
            // - the sending arguments are not significant on this rank (MPI 4.1 §6.6).
            unsafe {
                mpi.scatter(
                    NOTHING,
                    0,
                    byte(mpi),
                    recv_ptr,
                    recv_count,
                    recv_type,
                    call.root,
                    raw,
                )
            }?;
        }
    }
    recv.map_or(Ok(()), |recv| recv.side.settle(usize::MAX, None))
}
