//! Movements without a root: `Allgather(v)` and `Alltoall(v)`.

use super::{Moving, block_count, elements, same_block, same_block_both};
use crate::arg::Arg;
use crate::call::Call;
use crate::comm::Comm;
use crate::error::Result;
use crate::wiretype::byte;

pub(super) fn allgather(comm: Comm, call: &Call) -> Result<()> {
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let (inter, ranks) = (comm.is_inter()?, comm.blocks()?);
    let in_place = matches!(call.send, Arg::InPlace) && !inter;
    if !in_place && !inter {
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
    let send = if in_place {
        None
    } else {
        Some(Moving::sending(
            comm,
            &call.send,
            "sendbuf",
            call.recv.view(),
        )?)
    };
    let recv = Moving::receiving(comm, &call.recv, "recvbuf", in_place)?;
    let out = send
        .as_ref()
        .map(|s| s.count(comm, elements(&call.send)))
        .transpose()?;
    let (send_ptr, send_count, send_type) = match (&send, &out) {
        (Some(send), Some(out)) => (send.side.ptr().cast_const(), out.count, out.datatype),
        _ => (mpi.in_place(), 0, byte(mpi)),
    };
    if let Arg::Blocks(blocks) = &call.recv {
        let into = recv.blocks(comm, "recvbuf", blocks.counts())?;
        let (counts, displs) = (&into.counts, &into.displs);
        // SAFETY:
        // - both sides hold what their counts say, in this form; the receiving one is writable.
        unsafe {
            mpi.allgatherv(
                send_ptr,
                send_count,
                send_type,
                recv.side.base(),
                counts,
                displs,
                into.datatype,
                raw,
            )
        }?;
    } else {
        let into = recv.count(comm, block_count(&call.recv, "recvbuf", ranks)?)?;
        // SAFETY:
        // - as above; the receiving side holds one block per rank.
        unsafe {
            mpi.allgather(
                send_ptr,
                send_count,
                send_type,
                recv.side.ptr(),
                into.count,
                into.datatype,
                raw,
            )
        }?;
    }
    recv.side.settle(usize::MAX, None)
}

pub(super) fn alltoall(comm: Comm, call: &Call) -> Result<()> {
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let (inter, ranks) = (comm.is_inter()?, comm.blocks()?);
    // Libraries choose another algorithm for IN_PLACE, so one rank's choice would reach the wire: a copy
    // of the buffer as send buffer means the same.
    let in_place = matches!(call.send, Arg::InPlace) && !inter;
    let send_arg = if in_place { &call.recv } else { &call.send };
    if !in_place && !inter {
        same_block_both(call, ranks, comm.rank()?)?;
    }
    let send = Moving::sending(comm, send_arg, "sendbuf", call.recv.view())?;
    let recv = Moving::receiving(comm, &call.recv, "recvbuf", false)?;
    match (send_arg, &call.recv) {
        (Arg::Blocks(from), Arg::Blocks(to)) => {
            let out = send.blocks(comm, "sendbuf", from.counts())?;
            let into = recv.blocks(comm, "recvbuf", to.counts())?;
            let (s, r) = (send.side.base(), recv.side.base());
            // SAFETY:
            // - both sides hold what their counts say, in this form; the receiving one is writable and apart.
            unsafe {
                mpi.alltoallv(
                    s,
                    &out.counts,
                    &out.displs,
                    out.datatype,
                    r,
                    &into.counts,
                    &into.displs,
                    into.datatype,
                    raw,
                )
            }?;
        }
        _ => {
            let out = send.count(comm, block_count(send_arg, "sendbuf", ranks)?)?;
            let into = recv.count(comm, block_count(&call.recv, "recvbuf", ranks)?)?;
            let (s, r) = (send.side.ptr(), recv.side.ptr());
            // SAFETY:
            // - as above; both sides hold one block per rank.
            unsafe {
                mpi.alltoall(
                    s,
                    out.count,
                    out.datatype,
                    r,
                    into.count,
                    into.datatype,
                    raw,
                )
            }?;
        }
    }
    recv.side.settle(usize::MAX, None)
}
