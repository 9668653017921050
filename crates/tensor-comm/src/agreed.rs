//! What every rank of a communicator knows alike about a call.
//!
//! [`Agreed`] is the only argument of [`crate::wire`]. Nothing that may differ between ranks in a
//! lawful program may become a field here: layout, memory order, device, framework, `IN_PLACE`,
//! aliasing, v-counts, what only the root gives.

use dlpack_core::DType;
use mpi_runtime::Family;

use crate::call::{Call, CallKind, Op};
use crate::ground::settings::Choice;
use crate::kernels::ReduceOp;

/// The reduce operation as ranks agree on it: handles are local numbers, so they are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgreedOp {
    /// One that dlmpi knows.
    Builtin(ReduceOp),
    /// The mean.
    Avg,
    /// Somebody else's.
    Native,
}

impl From<Op> for AgreedOp {
    fn from(op: Op) -> AgreedOp {
        match op {
            Op::Builtin(op) => AgreedOp::Builtin(op),
            Op::Avg => AgreedOp::Avg,
            Op::Native(_) => AgreedOp::Native,
        }
    }
}

/// Where the ranks of a communicator run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// They have not agreed on it yet.
    Unknown,
    /// On one node, with a core for each.
    Together,
    /// On one node with fewer cores than ranks.
    Crowded,
    /// On several nodes.
    Apart,
}

/// Whether the ranks of a communicator share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shares {
    /// They have not agreed on it yet.
    Unknown,
    /// They don't, or this call may not use it.
    No,
    /// They do, and this call may use it for what is one step there.
    OneStep,
    /// They do.
    Yes,
}

/// How far the ranks of a communicator have come to know each other, for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Where they run.
    pub place: Place,
    /// Whether they share memory.
    pub shares: Shares,
    /// Whether they can read each other's.
    pub reads: bool,
    /// So many collectives were made that a set-up is worth its time for small ones.
    pub settled: bool,
}

impl Standing {
    /// Nothing is known.
    pub const NONE: Standing = Standing {
        place: Place::Unknown,
        shares: Shares::Unknown,
        reads: false,
        settled: false,
    };

    /// The same for a call that may not use shared memory.
    #[must_use]
    pub fn by_messages(self) -> Standing {
        Standing {
            shares: Shares::No,
            ..self
        }
    }
}

/// State of a communicator that is the same on all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommFacts {
    /// Ranks of the group that contributes to a reduction (of an intercommunicator: the remote one
    /// differs, which is why the mean is refused there).
    pub size: u32,
    /// Whether the library has the `_c` entry points of MPI 4.0.
    pub large_counts: bool,
    /// Exactly one MPI call of the same name per operation: intercommunicators, and
    /// `DLMPI_COLLECTIVES=mpi`, where the peer need not be dlmpi.
    pub one_call: bool,
    /// Whose algorithms are used. Where a call is non-blocking, the library's: all ranks make that form,
    /// since MPI doesn't match the two (MPI 4.1 §6.12).
    pub choice: Choice,
    /// What the ranks know of each other.
    pub standing: Standing,
    /// The MPI library, which all ranks of a job have in common.
    pub family: Family,
}

/// A call, reduced to what all ranks know alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Agreed {
    /// Which operation.
    pub kind: CallKind,
    /// The dtype of a reduction's elements; movements need none.
    pub dtype: Option<DType>,
    /// Largest element count of one block of a reduction, which MPI makes equal on all ranks.
    pub elements: usize,
    /// The reduce operation.
    pub op: Option<AgreedOp>,
    /// The communicator.
    pub facts: CommFacts,
}

impl Agreed {
    /// The agreed half of a call. `elements` is what MPI makes equal on all ranks for this operation,
    /// see [`Agreed::elements`].
    pub fn of(call: &Call, elements: usize, facts: CommFacts) -> Agreed {
        let reduction = call.kind.is_reduction();
        let dtype = call
            .send
            .view()
            .or(call.recv.view())
            .map(|view| view.dtype());
        Agreed {
            kind: call.kind,
            dtype: if reduction { dtype } else { None },
            elements: if reduction { elements } else { 0 },
            op: call.op.map(AgreedOp::from),
            facts,
        }
    }
}
