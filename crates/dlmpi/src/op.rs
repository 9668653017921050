//! The operations of reductions.

use tensor_comm::ReduceOp;

/// How elements of all ranks are combined.
///
/// 16-bit floats are added up in `f32` and rounded once. `Max` and `Min` of floats give NaN when any rank has one.
/// What has no meaning for a dtype (`Max` of complex numbers, `Avg` of integers) is an error before MPI is entered.
///
/// ```
/// use dlmpi::Op;
///
/// let universe = dlmpi::initialize()?;
/// let mut loss = 0.25f64;
/// universe.world().all_reduce(&mut loss, Op::Avg)?;
/// assert_eq!(loss, 0.25); // one rank, or as many equal ones
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum; integers wrap.
    Sum,
    /// The product; integers wrap.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The mean over the ranks, of floating and complex numbers.
    Avg,
    /// Are all true, that is, not 0?
    LogicalAnd,
    /// Is any true?
    LogicalOr,
    /// Is the number of true ones odd?
    LogicalXor,
    /// Bitwise and.
    BitwiseAnd,
    /// Bitwise or.
    BitwiseOr,
    /// Bitwise exclusive or.
    BitwiseXor,
}

impl Op {
    pub(crate) fn native(self) -> tensor_comm::Op {
        tensor_comm::Op::Builtin(match self {
            Op::Avg => return tensor_comm::Op::Avg,
            Op::Sum => ReduceOp::Sum,
            Op::Prod => ReduceOp::Prod,
            Op::Max => ReduceOp::Max,
            Op::Min => ReduceOp::Min,
            Op::LogicalAnd => ReduceOp::Land,
            Op::LogicalOr => ReduceOp::Lor,
            Op::LogicalXor => ReduceOp::Lxor,
            Op::BitwiseAnd => ReduceOp::Band,
            Op::BitwiseOr => ReduceOp::Bor,
            Op::BitwiseXor => ReduceOp::Bxor,
        })
    }
}
