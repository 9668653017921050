//! Immediate collectives (MPI-4.1, chapter 6), each the one MPI call of its name: no algorithm of ours.

use super::collectives::{TypedSide, fit};
use super::vectors::{Entry, Laid, ivector};
use super::{Result, call, counted, with_table};
use crate::handle::NativeHandle;
use libc::c_int;

use crate::{Comm, CountArrays, Datatype, Mpi, Op, Request};

/// Copies of the arrays of both sides, and where they are.
#[allow(clippy::type_complexity, reason = "six pointers")]
fn sides<H: NativeHandle + Entry>(
    both: [TypedSide<'_>; 2],
) -> (CountArrays, [(*const c_int, *const c_int, *const H); 2]) {
    let mut laid = Laid::with_room(both.iter().map(|side| 3 * side.0.len() + 2).sum());
    let places = both.map(|(counts, displs, types)| {
        let types = types.iter().map(|datatype| datatype.native::<H>());
        let counts = laid.add(counts.iter().map(|&count| count as c_int));
        let displs = laid.add(displs.iter().map(|&displ| displ as c_int));
        (counts, displs, laid.add(types))
    });
    let kept = laid.done();
    let pointers = places.map(|at| (kept.array(at.0), kept.array(at.1), kept.array(at.2)));
    (kept, pointers)
}

impl Mpi {
    /// `MPI_Ibarrier`
    pub fn ibarrier(&self, comm: Comm) -> Result<Request> {
        call!(self, "MPI_Ibarrier", ibarrier(comm.native(), &mut request) => request)
            .map(Request::from_bits)
    }

    /// `MPI_Ibcast`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    pub unsafe fn ibcast(
        &self,
        buffer: *mut u8,
        count: i64,
        datatype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Ibcast", ibcast / ibcast_c [count] (buffer.cast(), count, datatype.native(), root, comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Igather`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn igather(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Igather", igather / igather_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Igatherv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    /// - The [`CountArrays`] is kept until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn igatherv(
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
    ) -> Result<(Request, CountArrays)> {
        ivector!(self, "MPI_Igatherv", igatherv / igatherv_c [sendcount] {recvcounts, displs} (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcounts, displs, recvtype.native(), root, comm.native(), &mut request) => request)
    }

    /// `MPI_Iscatter`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn iscatter(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        root: i32,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Iscatter", iscatter / iscatter_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Iscatterv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    /// - The [`CountArrays`] is kept until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn iscatterv(
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
    ) -> Result<(Request, CountArrays)> {
        ivector!(self, "MPI_Iscatterv", iscatterv / iscatterv_c [recvcount] {sendcounts, displs} (sendbuf.cast(), sendcounts, displs, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), root, comm.native(), &mut request) => request)
    }

    /// `MPI_Iallgather`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn iallgather(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Iallgather", iallgather / iallgather_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Iallgatherv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    /// - The [`CountArrays`] is kept until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn iallgatherv(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        displs: &[i64],
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<(Request, CountArrays)> {
        ivector!(self, "MPI_Iallgatherv", iallgatherv / iallgatherv_c [sendcount] {recvcounts, displs} (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcounts, displs, recvtype.native(), comm.native(), &mut request) => request)
    }

    /// `MPI_Ialltoall`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn ialltoall(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Ialltoall", ialltoall / ialltoall_c [sendcount, recvcount] (sendbuf.cast(), sendcount, sendtype.native(), recvbuf.cast(), recvcount, recvtype.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Ialltoallv`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - Arrays that are significant on this rank have one entry per rank of the (remote) group.
    /// - The [`CountArrays`] is kept until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn ialltoallv(
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
    ) -> Result<(Request, CountArrays)> {
        ivector!(self, "MPI_Ialltoallv", ialltoallv / ialltoallv_c [] {sendcounts, sdispls, recvcounts, rdispls} (sendbuf.cast(), sendcounts, sdispls, sendtype.native(), recvbuf.cast(), recvcounts, rdispls, recvtype.native(), comm.native(), &mut request) => request)
    }

    /// `MPI_Ialltoallw`: a Datatype for each rank, displacements in bytes.
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, from the displacements on;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - Each array has one entry per rank of the (remote) group.
    /// - The [`CountArrays`] is kept until the request completes.
    pub unsafe fn ialltoallw(
        &self,
        sendbuf: *const u8,
        sent: TypedSide<'_>,
        recvbuf: *mut u8,
        received: TypedSide<'_>,
        comm: Comm,
    ) -> Result<(Request, CountArrays)> {
        fit("MPI_Ialltoallw", [&sent, &received])?;
        let (code, bits, kept) = with_table!(self, |table| {
            let mut request = Default::default();
            let (kept, [(scounts, sdispls, stypes), (rcounts, rdispls, rtypes)]) =
                sides([sent, received]);
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library: their constructors demand it.
            // - Buffers are valid and arrays long enough by the contract of the enclosing unsafe fn.
            // - The copied arrays live in `kept`, which the caller keeps until the request completes.
            let code = unsafe {
                (table.ialltoallw)(
                    sendbuf.cast(),
                    scounts,
                    sdispls,
                    stypes,
                    recvbuf.cast(),
                    rcounts,
                    rdispls,
                    rtypes,
                    comm.native(),
                    &mut request,
                )
            };
            (code, NativeHandle::to_bits(request), kept)
        });
        self.check("MPI_Ialltoallw", code)
            .map(|()| (Request::from_bits(bits), kept))
    }

    /// `MPI_Ireduce`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn ireduce(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        root: i32,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Ireduce", ireduce / ireduce_c [count] (sendbuf.cast(), recvbuf.cast(), count, datatype.native(), op.native(), root, comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Iallreduce`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn iallreduce(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Iallreduce", iallreduce / iallreduce_c [count] (sendbuf.cast(), recvbuf.cast(), count, datatype.native(), op.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Iscan`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn iscan(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Iscan", iscan / iscan_c [count] (sendbuf.cast(), recvbuf.cast(), count, datatype.native(), op.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Iexscan`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn iexscan(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        count: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Iexscan", iexscan / iexscan_c [count] (sendbuf.cast(), recvbuf.cast(), count, datatype.native(), op.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }

    /// `MPI_Ireduce_scatter`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    /// - `recvcounts` has one entry per rank of the group.
    /// - The [`CountArrays`] is kept until the request completes.
    pub unsafe fn ireduce_scatter(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        recvcounts: &[i64],
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<(Request, CountArrays)> {
        ivector!(self, "MPI_Ireduce_scatter", ireduce_scatter / ireduce_scatter_c [] {recvcounts} (sendbuf.cast(), recvbuf.cast(), recvcounts, datatype.native(), op.native(), comm.native(), &mut request) => request)
    }

    /// `MPI_Ireduce_scatter_block`
    ///
    /// # Safety
    /// - What MPI reads and writes on this rank is valid for as many elements as the counts say, or is [`in_place`](Mpi::in_place) where MPI allows it;
    ///   nothing else writes the one or touches the other until the request completes.
    /// - `op` is defined for `datatype`; an own one keeps to the contract of [`UserOp`](crate::UserOp).
    pub unsafe fn ireduce_scatter_block(
        &self,
        sendbuf: *const u8,
        recvbuf: *mut u8,
        recvcount: i64,
        datatype: Datatype,
        op: Op,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Ireduce_scatter_block", ireduce_scatter_block / ireduce_scatter_block_c [recvcount] (sendbuf.cast(), recvbuf.cast(), recvcount, datatype.native(), op.native(), comm.native(), &mut request) => request).map(Request::from_bits)
    }
}
