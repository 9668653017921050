//! Which algorithm a reduction takes: a rule on agreed facts alone.
//!
//! The numbers are measured, see `docs/scaling.md`.

use dlpack_core::DType;
use mpi_runtime::Family;

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
        (Choice::Auto, Place::Together) => bytes >= least(agreed, narrow, ranks),
        (Choice::Auto, Place::Crowded) => bytes >= least_crowded(narrow, ranks),
    }
}

/// Ranks up to which every one exchanges with every other one.
const MOST: usize = 16;

/// Bytes from which direct exchange is the faster one with a core for every rank.
fn least(agreed: &Agreed, narrow: bool, ranks: usize) -> usize {
    let reduce = agreed.kind == CallKind::Reduce;
    match (ranks <= MOST, narrow) {
        (false, _) => usize::MAX,
        // Libraries convert 16 bits one by one, and widening doubles what travels.
        (true, true) => 16 << 10,
        (true, false) if reduce && agreed.facts.family == Family::OpenMpi => 1 << 20,
        (true, false) => 32 << 10,
    }
}

/// The same where ranks wait for cores: each message may cost a turn of the scheduler.
fn least_crowded(narrow: bool, ranks: usize) -> usize {
    match (ranks, narrow) {
        (..=MOST, true) => 256 << 10,
        (..=4, false) => 1 << 20,
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreed::{AgreedOp, CommFacts};

    fn chosen(kind: CallKind, dtype: DType, bytes: usize, place: Place, ranks: u32) -> Algorithm {
        let agreed = Agreed {
            kind,
            dtype: Some(dtype),
            elements: bytes / dtype.itemsize().expect("whole bytes"),
            op: Some(AgreedOp::Builtin(ReduceOp::Sum)),
            facts: CommFacts {
                size: ranks,
                large_counts: true,
                one_call: false,
                choice: Choice::Auto,
                place,
                family: Family::OpenMpi,
            },
        };
        algorithm(&agreed, dtype, ReduceOp::Sum)
    }

    #[test]
    fn large_ones_on_one_node_are_ours() {
        use Algorithm::{Direct, Library};
        use CallKind::{Allreduce, Reduce, Scan};
        let (f32, bf16) = (DType::F32, DType::BF16);
        let rows = [
            (Allreduce, f32, 8, Place::Together, 2, Library),
            (Allreduce, f32, 1 << 20, Place::Together, 2, Direct),
            (Reduce, f32, 256 << 10, Place::Together, 2, Library),
            (Reduce, f32, 1 << 20, Place::Together, 2, Direct),
            (Allreduce, bf16, 16 << 10, Place::Together, 2, Direct),
            (Allreduce, f32, 64 << 10, Place::Crowded, 4, Library),
            (Allreduce, bf16, 1 << 20, Place::Crowded, 8, Direct),
            (Allreduce, f32, 1 << 30, Place::Crowded, 8, Library),
            (Allreduce, f32, 1 << 30, Place::Apart, 2, Library),
            (Allreduce, f32, 1 << 30, Place::Unknown, 2, Library),
            (Allreduce, f32, 1 << 30, Place::Together, 64, Library),
            (Scan, f32, 1 << 30, Place::Together, 2, Library),
            (
                Allreduce,
                DType::LONG_DOUBLE,
                1 << 20,
                Place::Together,
                2,
                Library,
            ),
        ];
        for (kind, dtype, bytes, place, ranks, expected) in rows {
            let got = chosen(kind, dtype, bytes, place, ranks);
            assert_eq!(got, expected, "{kind:?} {dtype} {bytes} {place:?} {ranks}");
        }
    }
}
