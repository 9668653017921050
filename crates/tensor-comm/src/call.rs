//! A collective call as data: which operation, on which arguments.
//!
//! The operations are rows of one table ([`CallKind`]'s methods), so that nothing is written per
//! operation that can be said once.

use crate::arg::Arg;
use crate::kernels::ReduceOp;

/// The collectives, by MPI's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are MPI's")]
pub enum CallKind {
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Reduce,
    Allreduce,
    Scan,
    Exscan,
    ReduceScatter,
    ReduceScatterBlock,
}

impl CallKind {
    /// MPI's name without the prefix, as in the Python method.
    pub const fn name(self) -> &'static str {
        use CallKind::*;
        match self {
            Barrier => "Barrier",
            Bcast => "Bcast",
            Gather => "Gather",
            Gatherv => "Gatherv",
            Scatter => "Scatter",
            Scatterv => "Scatterv",
            Allgather => "Allgather",
            Allgatherv => "Allgatherv",
            Alltoall => "Alltoall",
            Alltoallv => "Alltoallv",
            Reduce => "Reduce",
            Allreduce => "Allreduce",
            Scan => "Scan",
            Exscan => "Exscan",
            ReduceScatter => "Reduce_scatter",
            ReduceScatterBlock => "Reduce_scatter_block",
        }
    }

    /// Whether it combines elements by an operation (MPI 4.1 §6.9 to §6.11).
    pub const fn is_reduction(self) -> bool {
        use CallKind::*;
        matches!(
            self,
            Reduce | Allreduce | Scan | Exscan | ReduceScatter | ReduceScatterBlock
        )
    }

    /// Whether the mean has a meaning: each element of the result combines all ranks.
    pub const fn takes_avg(self) -> bool {
        use CallKind::*;
        matches!(
            self,
            Reduce | Allreduce | ReduceScatter | ReduceScatterBlock
        )
    }
}

/// Which collective a call is, as ranks compare it: one of ours, or one that somebody else carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    word: u64,
    name: &'static str,
}

impl Kind {
    /// One that somebody else carries out, by the name that its caller knows.
    pub const fn named(name: &'static str) -> Kind {
        // FNV-1a, apart from the numbers of ours.
        let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
        while i < bytes.len() {
            hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
            i += 1;
        }
        Kind {
            word: hash | 1 << 63,
            name,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// A number that no other collective has.
    pub(crate) const fn word(self) -> u64 {
        self.word
    }
}

impl From<CallKind> for Kind {
    fn from(kind: CallKind) -> Kind {
        Kind {
            word: kind as u64,
            name: kind.name(),
        }
    }
}

/// The operation of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// One that dlmpi knows, the same on every MPI.
    Builtin(ReduceOp),
    /// The mean over the ranks of the communicator, for floating and complex dtypes.
    Avg,
    /// Any other handle: user-defined operations, `MAXLOC`; given to MPI as it is.
    Native(mpi_runtime::Op),
}

/// One collective call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which operation.
    pub kind: CallKind,
    /// What this rank contributes.
    pub send: Arg,
    /// Where this rank's result goes; the buffer of a `Bcast`.
    pub recv: Arg,
    /// The operation of a reduction.
    pub op: Option<Op>,
    /// Root rank (on an intercommunicator also `MPI.ROOT` and `MPI.PROC_NULL`); ignored elsewhere.
    pub root: i32,
    /// `Reduce_scatter` only: elements that each rank receives; `None` asks the ranks.
    pub recvcounts: Option<Vec<i64>>,
}

impl Call {
    /// A call without arguments, to be filled.
    pub const fn new(kind: CallKind) -> Call {
        Call {
            kind,
            send: Arg::Absent,
            recv: Arg::Absent,
            op: None,
            root: 0,
            recvcounts: None,
        }
    }
}
