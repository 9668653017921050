//! Blocking collectives (MPI-4.1, chapter 6), each the one MPI call of its name: no algorithm of ours.

use super::vectors::{Narrow, all_fit, narrow, vector, widest};
use super::{Result, call, counted, too_large, with_table};
use crate::handle::NativeHandle;
use crate::{Comm, Datatype, Mpi, Op};
use smallvec::SmallVec;

/// Counts, displacements in bytes and Datatypes of one side: one of each per rank.
pub(crate) type TypedSide<'a> = (&'a [i64], &'a [i64], &'a [Datatype]);

/// The same as the C function takes them.
fn natives<H: NativeHandle>(
    (counts, displs, types): TypedSide<'_>,
) -> (Narrow, Narrow, SmallVec<[H; 32]>) {
    let types = types.iter().map(|datatype| datatype.native());
    (narrow(counts), narrow(displs), types.collect())
}

/// Refuses what is too large for a C int.
pub(crate) fn fit(name: &'static str, sides: [&TypedSide<'_>; 2]) -> Result<()> {
    for (counts, displs, _) in sides {
        if !all_fit(counts) || !all_fit(displs) {
            let given = [("counts", widest(counts)), ("displs", widest(displs))];
            return Err(too_large(name, &given));
        }
    }
    Ok(())
}

impl Mpi {
    /// `MPI_Barrier`
    pub fn barrier(&self, comm: Comm) -> Result<()> {
        call!(self, "MPI_Barrier", barrier(comm.native()))
    }

    /// `MPI_Bcast`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    pub unsafe fn bcast(
        &self,
        buffer: *mut u8,
        count: i64,
        datatype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Bcast",
            bcast / bcast_c[count](buffer.cast(), count, datatype.native(), root, comm.native())
        )
    }

    /// `MPI_Gather`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn gather(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        counted!(self, "MPI_Gather", gather / gather_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native()))
    }

    /// `MPI_Gatherv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn gatherv(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        displs: &[i64],
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        vector!(self, "MPI_Gatherv", gatherv / gatherv_c [sendcount] {recvcounts, displs} (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcounts, displs, recvtype.native(), root, comm.native()))
    }

    /// `MPI_Scatter`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn scatter(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        counted!(self, "MPI_Scatter", scatter / scatter_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native()))
    }

    /// `MPI_Scatterv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn scatterv(
        &self,
        sendbuf: *const u8,
        sendcounts: &[i64],
        displs: &[i64],
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        vector!(self, "MPI_Scatterv", scatterv / scatterv_c [recvcount] {sendcounts, displs} (sendbuf.cast(), sendcounts, displs, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native()))
    }

    /// `MPI_Allgather`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn allgather(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<()> {
        counted!(self, "MPI_Allgather", allgather / allgather_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), comm.native()))
    }

    /// `MPI_Allgatherv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn allgatherv(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        displs: &[i64],
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<()> {
        vector!(self, "MPI_Allgatherv", allgatherv / allgatherv_c [sendcount] {recvcounts, displs} (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcounts, displs, recvtype.native(), comm.native()))
    }

    /// `MPI_Alltoall`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn alltoall(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<()> {
        counted!(self, "MPI_Alltoall", alltoall / alltoall_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), comm.native()))
    }

    /// `MPI_Alltoallv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn alltoallv(
        &self,
        sendbuf: *const u8,
        sendcounts: &[i64],
        sdispls: &[i64],
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        rdispls: &[i64],
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<()> {
        vector!(self, "MPI_Alltoallv", alltoallv / alltoallv_c [] {sendcounts, sdispls, recvcounts, rdispls} (sendbuf.cast(), sendcounts, sdispls, sendtype.native(), recvbuf.cast(), recvcounts, rdispls, recvtype.native(), comm.native()))
    }

    /// `MPI_Alltoallw`: a Datatype for each rank, displacements in bytes.
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, from the displacements on;
    ///   nothing else writes the one or touches the other during the call.
    /// - Each array has one entry per rank of the (remote) group.
    pub unsafe fn alltoallw(
        &self,
        sendbuf: *const u8,
        sent: TypedSide<'_>,
        recvbuf: *mut u8,
        received: TypedSide<'_>,
        comm: Comm,
    ) -> Result<()> {
        fit("MPI_Alltoallw", [&sent, &received])?;
        let code = with_table!(self, |table| {
            let (sendcounts, sdispls, sendtypes) = natives(sent);
            let (recvcounts, rdispls, recvtypes) = natives(received);
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library: their constructors demand it.
            // - Buffers are valid and arrays long enough by the contract of the enclosing unsafe fn.
            unsafe {
                (table.alltoallw)(
                    sendbuf.cast(),
                    sendcounts.as_ptr(),
                    sdispls.as_ptr(),
                    sendtypes.as_ptr(),
                    recvbuf.cast(),
                    recvcounts.as_ptr(),
                    rdispls.as_ptr(),
                    recvtypes.as_ptr(),
                    comm.native(),
                )
            }
        });
        self.check("MPI_Alltoallw", code)
    }

    /// `MPI_Reduce`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn reduce(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        root: i32,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Reduce",
            reduce
                / reduce_c[count](
                    sendbuf.cast(),
                    recvbuf.cast(),
                    count,
                    datatype.native(),
                    op.native(),
                    root,
                    comm.native()
                )
        )
    }

    /// `MPI_Allreduce`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn allreduce(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Allreduce",
            allreduce
                / allreduce_c[count](
                    sendbuf.cast(),
                    recvbuf.cast(),
                    count,
                    datatype.native(),
                    op.native(),
                    comm.native()
                )
        )
    }

    /// `MPI_Scan`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn scan(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Scan",
            scan / scan_c[count](
                sendbuf.cast(),
                recvbuf.cast(),
                count,
                datatype.native(),
                op.native(),
                comm.native()
            )
        )
    }

    /// `MPI_Exscan`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn exscan(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Exscan",
            exscan
                / exscan_c[count](
                    sendbuf.cast(),
                    recvbuf.cast(),
                    count,
                    datatype.native(),
                    op.native(),
                    comm.native()
                )
        )
    }

    /// `MPI_Reduce_scatter`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    /// - `recvcounts` has one entry per rank of the group.
    pub unsafe fn reduce_scatter(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<()> {
        vector!(self, "MPI_Reduce_scatter", reduce_scatter / reduce_scatter_c [] {recvcounts} (sendbuf.cast(), recvbuf.cast(), recvcounts, datatype.native(), op.native(), comm.native()))
    }

    /// `MPI_Reduce_scatter_block`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other during the call.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn reduce_scatter_block(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        recvcount: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Reduce_scatter_block",
            reduce_scatter_block
                / reduce_scatter_block_c[recvcount](
                    sendbuf.cast(),
                    recvbuf.cast(),
                    recvcount,
                    datatype.native(),
                    op.native(),
                    comm.native()
                )
        )
    }

    /// `MPI_Reduce_local`: `inoutbuf[i] = inbuf[i] op inoutbuf[i]`, on this rank alone.
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be read at `inbuf` and read and written at `inoutbuf`; the two do not overlap.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn reduce_local(
        &self,
        inbuf: *const u8,
        inoutbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
    ) -> Result<()> {
        counted!(
            self,
            "MPI_Reduce_local",
            reduce_local
                / reduce_local_c[count](
                    inbuf.cast(),
                    inoutbuf.cast(),
                    count,
                    datatype.native(),
                    op.native()
                )
        )
    }
}
