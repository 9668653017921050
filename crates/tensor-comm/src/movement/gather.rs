//! `Gather` and `Gatherv`.

use super::{Moving, NOTHING, block_count, elements, same_block};
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::{Comm, Role};
use crate::error::Result;
use crate::wiretype::byte;

pub(super) fn gather(comm: Comm, call: &Call) -> Result<()> {
    let (mpi, raw, role) = (comm.mpi(), comm.raw(), comm.role(call.root)?);
    let in_place = role == Role::Root && matches!(call.send, Arg::InPlace);
    let sends = role == Role::Leaf || (role == Role::Root && !comm.is_inter()? && !in_place);
    let receives = role == Role::Root;
    let ranks = comm.blocks()?;
    if sends && receives {
        same_block(
            call,
            &call.send,
            "sendbuf",
            &call.recv,
            "recvbuf",
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
        Some(Moving::receiving(comm, &call.recv, "recvbuf", in_place)?)
    } else {
        None
    };
    let out = send
        .as_ref()
        .map(|s| s.count(comm, elements(&call.send)))
        .transpose()?;
    let (send_ptr, send_count, send_type) = match (&send, &out) {
        (Some(send), Some(out)) => (send.side.ptr().cast_const(), out.count, out.datatype),
        _ if in_place => (mpi.in_place(), 0, byte(mpi)),
        _ => (NOTHING.cast_const(), 0, byte(mpi)),
    };
    match (&recv, &call.recv) {
        (Some(recv), Arg::Blocks(blocks)) => {
            let into = recv.blocks(comm, "recvbuf", blocks.counts())?;
            let (counts, displs) = (&into.counts, &into.displs);
            // SAFETY:
            // - both sides hold what their counts say, in this form; the receiving one is writable.
            unsafe {
                mpi.gatherv(
                    send_ptr,
                    send_count,
                    send_type,
                    recv.side.base(),
                    counts,
                    displs,
                    into.datatype,
                    call.root,
                    raw,
                )
            }?;
        }
        (Some(recv), _) => {
            let into = recv.count(comm, block_count(&call.recv, "recvbuf", ranks)?)?;
            // SAFETY:
            // - as above; the receiving side holds one block per rank.
            unsafe {
                mpi.gather(
                    send_ptr,
                    send_count,
                    send_type,
                    recv.side.ptr(),
                    into.count,
                    into.datatype,
                    call.root,
                    raw,
                )
            }?;
        }
        (None, _) if call.kind == CallKind::Gatherv => {
            // SAFETY:
            // - the receiving arguments are not significant on this rank (MPI 4.1 §6.5).
            unsafe {
                mpi.gatherv(
                    send_ptr,
                    send_count,
                    send_type,
                    NOTHING,
                    &[],
                    &[],
                    byte(mpi),
                    call.root,
                    raw,
                )
            }?;
        }
        (None, _) => {
            // SAFETY:
            // - the receiving arguments are not significant on this rank (MPI 4.1 §6.5).
            unsafe {
                mpi.gather(
                    send_ptr,
                    send_count,
                    send_type,
                    NOTHING,
                    0,
                    byte(mpi),
                    call.root,
                    raw,
                )
            }?;
        }
    }
    recv.map_or(Ok(()), |recv| recv.side.settle(usize::MAX, None))
}
