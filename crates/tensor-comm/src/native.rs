//! One MPI collective, as the arguments that MPI takes, made blocking or immediate.
//!
//! Knows which argument goes where in which MPI function, and nothing of tensors.

use mpi_runtime::{CountArrays, Datatype, Mpi, Request};

use crate::call::CallKind;
use crate::error::Result;

/// Counts of one side.
#[derive(Debug)]
pub(crate) enum Extent {
    /// One count: of the whole side, or of each rank's block.
    One(i64),
    /// One count per rank, then, where the call has them, one displacement per rank.
    Many { numbers: Vec<i64>, ranks: usize },
}

/// Address, counts and datatype of one side.
#[derive(Debug)]
pub(crate) struct Port {
    pub ptr: *mut u8,
    pub extent: Extent,
    pub datatype: Datatype,
}

impl Port {
    fn one(&self) -> i64 {
        match &self.extent {
            Extent::One(count) => *count,
            Extent::Many { .. } => 0,
        }
    }

    fn many(&self) -> (&[i64], &[i64]) {
        match &self.extent {
            Extent::One(_) => (&[], &[]),
            Extent::Many { numbers, ranks } => numbers.split_at(*ranks),
        }
    }
}

/// The arguments of one MPI collective on this rank.
#[derive(Debug)]
pub(crate) struct Native {
    pub mpi: &'static Mpi,
    pub kind: CallKind,
    pub send: Port,
    pub recv: Port,
    pub op: mpi_runtime::Op,
    pub root: i32,
}

/// Calls `$mpi.$name` or its immediate twin with the arguments that `$self` holds for its kind. One
/// table for both forms; immediate v-forms keep their arrays in `$arrays`.
macro_rules! call_mpi {
    ($self:ident, $comm:ident, $form:ident) => {{
        let Native { mpi, send, recv, op, root, .. } = $self;
        let (op, root, comm) = (*op, *root, $comm);
        let ((sc, rc), (st, rt)) = ((send.one(), recv.one()), (send.datatype, recv.datatype));
        let ((scs, sds), (rcs, rds)) = (send.many(), recv.many());
        let (s, r) = (send.ptr.cast_const(), recv.ptr);
        match $self.kind {
            CallKind::Barrier => $form!(plain mpi, barrier / ibarrier (comm)),
            CallKind::Bcast => $form!(plain mpi, bcast / ibcast (r, rc, rt, root, comm)),
            CallKind::Gather => $form!(plain mpi, gather / igather (s, sc, st, r, rc, rt, root, comm)),
            CallKind::Gatherv => $form!(vector mpi, gatherv / igatherv (s, sc, st, r, rcs, rds, rt, root, comm)),
            CallKind::Scatter => $form!(plain mpi, scatter / iscatter (s, sc, st, r, rc, rt, root, comm)),
            CallKind::Scatterv => $form!(vector mpi, scatterv / iscatterv (s, scs, sds, st, r, rc, rt, root, comm)),
            CallKind::Allgather => $form!(plain mpi, allgather / iallgather (s, sc, st, r, rc, rt, comm)),
            CallKind::Allgatherv => $form!(vector mpi, allgatherv / iallgatherv (s, sc, st, r, rcs, rds, rt, comm)),
            CallKind::Alltoall => $form!(plain mpi, alltoall / ialltoall (s, sc, st, r, rc, rt, comm)),
            CallKind::Alltoallv => $form!(vector mpi, alltoallv / ialltoallv (s, scs, sds, st, r, rcs, rds, rt, comm)),
            CallKind::Reduce => $form!(plain mpi, reduce / ireduce (s, r, rc, rt, op, root, comm)),
            CallKind::Allreduce => $form!(plain mpi, allreduce / iallreduce (s, r, rc, rt, op, comm)),
            CallKind::Scan => $form!(plain mpi, scan / iscan (s, r, rc, rt, op, comm)),
            CallKind::Exscan => $form!(plain mpi, exscan / iexscan (s, r, rc, rt, op, comm)),
            CallKind::ReduceScatter => $form!(vector mpi, reduce_scatter / ireduce_scatter (s, r, rcs, rt, op, comm)),
            CallKind::ReduceScatterBlock => {
                $form!(plain mpi, reduce_scatter_block / ireduce_scatter_block (s, r, rc, rt, op, comm))
            }
        }
    }};
}

impl Native {
    /// Makes the call and returns when it is done.
    ///
    /// # Safety
    /// - Both sides are valid for what their counts say (or are `IN_PLACE`, or not significant on this
    ///   rank), the receiving one writable and apart from the sending one, until the call returns.
    pub unsafe fn block(&self, comm: mpi_runtime::Comm) -> Result<()> {
        macro_rules! blocking {
            ($shape:ident $mpi:ident, $name:ident / $immediate:ident ($($arg:expr),*)) => {
                $mpi.$name($($arg),*)
            };
        }
        #[allow(unused_unsafe, reason = "Barrier alone is safe")]
        // SAFETY:
        // - the caller's promise is what each of these functions asks for.
        unsafe {
            Ok(call_mpi!(self, comm, blocking)?)
        }
    }

    /// Starts the call. The arrays must be kept until the request completes.
    ///
    /// # Safety
    /// - As for [`Native::block`], until the request completes.
    pub unsafe fn start(&self, comm: mpi_runtime::Comm) -> Result<(Request, Option<CountArrays>)> {
        macro_rules! immediate {
            (plain $mpi:ident, $name:ident / $immediate:ident ($($arg:expr),*)) => {
                $mpi.$immediate($($arg),*).map(|request| (request, None))
            };
            (vector $mpi:ident, $name:ident / $immediate:ident ($($arg:expr),*)) => {
                $mpi.$immediate($($arg),*).map(|(request, arrays)| (request, Some(arrays)))
            };
        }
        #[allow(unused_unsafe, reason = "Ibarrier alone is safe")]
        // SAFETY:
        // - the caller's promise is what each of these functions asks for.
        unsafe {
            Ok(call_mpi!(self, comm, immediate)?)
        }
    }
}
