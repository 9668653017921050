//! Which algorithm a reduction takes: a rule on agreed facts alone.
//!
//! The numbers are measured, see `docs/scaling.md`.

use dlpack_core::DType;

use crate::agreed::{Agreed, Place};
use crate::call::CallKind;
use crate::ground::settings::Choice;
use crate::kernels::{self, ReduceOp};

/// How a reduction is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The library's call of the same name.
    Library,
    /// Direct exchange over point-to-point messages (`direct.rs`).
    Direct,
}

/// The algorithm for a reduction by `op`.
pub(crate) fn algorithm(agreed: &Agreed, dtype: DType, op: ReduceOp) -> Algorithm {
    if possible(agreed, dtype, op) && wanted(agreed, dtype) {
        Algorithm::Direct
    } else {
        Algorithm::Library
    }
}

/// Whether the choice hangs on facts that the ranks have not agreed on yet.
pub(crate) fn open(agreed: &Agreed, dtype: DType, op: ReduceOp) -> bool {
    let on = |place| {
        let mut agreed = *agreed;
        agreed.facts.place = place;
        algorithm(&agreed, dtype, op)
    };
    agreed.facts.place == Place::Unknown
        && (on(Place::Together) == Algorithm::Direct || on(Place::Crowded) == Algorithm::Direct)
}

fn possible(agreed: &Agreed, dtype: DType, op: ReduceOp) -> bool {
    use CallKind::{Allreduce, Reduce, ReduceScatter, ReduceScatterBlock};
    matches!(
        agreed.kind,
        Allreduce | Reduce | ReduceScatter | ReduceScatterBlock
    ) && !agreed.facts.one_call
        && agreed.facts.size > 1
        && agreed.elements > 0
        && kernels::kernel(op, dtype).is_some()
}

fn wanted(agreed: &Agreed, dtype: DType) -> bool {
    let ranks = agreed.facts.size as usize;
    let blocks = match agreed.kind {
        CallKind::ReduceScatter | CallKind::ReduceScatterBlock => ranks,
        _ => 1,
    };
    let item = dtype.itemsize().unwrap_or(1);
    let bytes = agreed.elements.saturating_mul(item).saturating_mul(blocks);
    let narrow = kernels::widen(dtype).is_some();
    match (agreed.facts.choice, agreed.facts.place) {
        (Choice::Mpi, _) => false,
        (Choice::Own, _) => true,
        (Choice::Auto, Place::Unknown | Place::Apart) => false,
        (Choice::Auto, Place::Together) => bytes >= least(narrow, ranks),
        (Choice::Auto, Place::Crowded) => false,
    }
}

/// Bytes from which direct exchange is the faster one with a core for every rank.
fn least(narrow: bool, ranks: usize) -> usize {
    if ranks > 16 {
        return usize::MAX;
    }
    if narrow { 16 << 10 } else { 32 << 10 }
}
