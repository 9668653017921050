//! Which algorithm a reduction takes: a rule on agreed facts alone.
//!
//! The numbers are measured, see `docs/scaling.md`.

use dlpack_core::DType;
use mpi_runtime::Family;

use crate::agreed::{Agreed, Place, Shares, Standing};
use crate::call::CallKind;
use crate::direct::{self, Pattern};
use crate::ground::settings::Choice;
use crate::kernels::{self, ReduceOp};

/// How a reduction is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The library's call of the same name.
    Library,
    /// Direct exchange over point-to-point messages (`direct.rs`).
    Direct,
    /// By messages in rounds (`direct/rounds.rs`).
    Rounds(Pattern),
    /// Through memory that the ranks share (`direct/shared.rs`).
    Shared,
}

/// The algorithm for a reduction by `op`.
pub(crate) fn algorithm(agreed: &Agreed, dtype: DType, op: ReduceOp) -> Algorithm {
    let standing = agreed.facts.standing;
    let pattern = match agreed.facts.choice {
        _ if !possible(agreed, dtype, op) => return Algorithm::Library,
        Choice::Mpi => return Algorithm::Library,
        Choice::Ring => Some(Pattern::Ring),
        Choice::Halving => Some(Pattern::Halving),
        Choice::TwoLevel if is_scan(agreed.kind) => return Algorithm::Library,
        Choice::TwoLevel => return between(standing.place),
        Choice::Auto | Choice::Own => None,
    };
    if is_scan(agreed.kind) {
        return match (pattern, standing.shares) {
            (None, Shares::Yes) if worth_scanning(agreed, dtype) => Algorithm::Shared,
            _ => Algorithm::Library,
        };
    }
    if let Some(pattern) = pattern {
        return Algorithm::Rounds(pattern);
    }
    let shared = match standing.shares {
        Shares::Yes => true,
        Shares::OneStep => is_one_step(agreed, dtype),
        Shares::No | Shares::Unknown => false,
    };
    if shared && worth_sharing(agreed, dtype) {
        Algorithm::Shared
    } else if agreed.facts.choice == Choice::Own {
        Algorithm::Direct
    } else {
        by_messages(agreed, dtype)
    }
}

/// Node by node, once it is known which there are; on one node there is but one level.
fn between(place: Place) -> Algorithm {
    match place {
        Place::Unknown => Algorithm::Library,
        Place::Apart => Algorithm::Rounds(Pattern::TwoLevel),
        Place::Together | Place::Crowded => Algorithm::Direct,
    }
}

/// Whether the choice hangs on facts that the ranks have not agreed on yet.
pub(crate) fn open(agreed: &Agreed, dtype: DType, op: ReduceOp) -> bool {
    let Standing { place, shares, .. } = agreed.facts.standing;
    let on = |place, shares| {
        let mut agreed = *agreed;
        agreed.facts.standing.place = place;
        agreed.facts.standing.shares = shares;
        algorithm(&agreed, dtype, op)
    };
    let wanted = |place| {
        let places = match place {
            Place::Unknown => &[Place::Together, Place::Crowded, Place::Apart][..],
            _ => &[place][..],
        };
        places.iter().any(|&place| {
            // Setting shared memory up for small ones pays where there are many of them.
            let shared = on(place, Shares::Yes) == Algorithm::Shared
                && may_share(agreed.facts.choice, place, agreed.facts.size as usize)
                && (agreed.facts.standing.settled || bytes(agreed, dtype) >= LARGE);
            (shares == Shares::Unknown && shared)
                || (agreed.facts.standing.place == Place::Unknown
                    && on(place, Shares::No) != Algorithm::Library)
        })
    };
    (place == Place::Unknown || shares == Shares::Unknown) && wanted(place)
}

/// Whether ranks that run at `place` are to share memory.
pub(crate) fn may_share(choice: Choice, place: Place, ranks: usize) -> bool {
    (2..=MOST).contains(&ranks)
        && match choice {
            Choice::Mpi | Choice::Ring | Choice::Halving | Choice::TwoLevel => false,
            Choice::Auto => place == Place::Together || (place == Place::Crowded && ranks <= CROWD),
            Choice::Own => matches!(place, Place::Together | Place::Crowded),
        }
}

fn possible(agreed: &Agreed, dtype: DType, op: ReduceOp) -> bool {
    agreed.kind.is_reduction()
        && !agreed.facts.one_call
        && agreed.facts.size > 1
        && agreed.elements > 0
        && kernels::kernel(op, dtype).is_some()
}

fn is_scan(kind: CallKind) -> bool {
    matches!(kind, CallKind::Scan | CallKind::Exscan)
}

/// Whether shared memory is the faster way of a scan: the last rank combines what all have.
fn worth_scanning(agreed: &Agreed, dtype: DType) -> bool {
    let facts = agreed.facts;
    // Open MPI sends them one way, from rank to rank: lower ranks wait for nobody.
    let better = kernels::widen(dtype).is_some()
        || facts.family != Family::OpenMpi
        || (LEAST_SCANNED..=direct::NEAR).contains(&bytes(agreed, dtype));
    match facts.choice {
        Choice::Own => true,
        _ => facts.standing.place == Place::Together && facts.size as usize <= CROWD && better,
    }
}

/// Bytes of all elements.
fn bytes(agreed: &Agreed, dtype: DType) -> usize {
    let blocks = match agreed.kind {
        CallKind::ReduceScatter | CallKind::ReduceScatterBlock => agreed.facts.size as usize,
        _ => 1,
    };
    let item = dtype.itemsize().unwrap_or(1);
    agreed.elements.saturating_mul(item).saturating_mul(blocks)
}

/// Whether it is one step in shared memory.
fn is_one_step(agreed: &Agreed, dtype: DType) -> bool {
    agreed.kind == CallKind::Allreduce && bytes(agreed, dtype) <= direct::ONCE
}

/// Whether shared memory is the faster way for ranks that have it.
fn worth_sharing(agreed: &Agreed, dtype: DType) -> bool {
    let bytes = bytes(agreed, dtype);
    if (agreed.facts.standing.place, agreed.facts.choice) == (Place::Crowded, Choice::Auto) {
        // The steps of a chunk wait for cores as well, so only what is one chunk is worth them. What the library adds up
        // itself is faster there if it is short, what is widened for it is not.
        let least = match agreed.facts.family {
            Family::OpenMpi if kernels::widen(dtype).is_none() => 1 << 10,
            _ => 0,
        };
        return agreed.kind == CallKind::Allreduce
            && agreed.facts.size as usize <= CROWD
            && (least..direct::NEAR).contains(&bytes);
    }
    let worth = agreed.kind == CallKind::Allreduce || bytes >= LARGE;
    // Reading each other's memory costs calls of the system, and pays where caches hold no chunk between its steps
    // anyway; messages pay for larger ones.
    let most = match (agreed.facts.standing.reads, agreed.kind) {
        (true, CallKind::Allreduce) if agreed.facts.size as usize <= CROWD => BEFORE_READING,
        (true, _) => direct::NEAR,
        (false, _) => MOST_SHARED,
    };
    worth && bytes < most
}

/// Which way by messages is the fastest one.
fn by_messages(agreed: &Agreed, dtype: DType) -> Algorithm {
    let (ranks, bytes) = (agreed.facts.size as usize, bytes(agreed, dtype));
    let narrow = kernels::widen(dtype).is_some();
    let worth = match agreed.facts.standing.place {
        Place::Unknown => false,
        Place::Apart => return apart(agreed, narrow, bytes),
        Place::Together => bytes >= least(agreed, narrow, ranks),
        Place::Crowded => bytes >= least_crowded(narrow, ranks, agreed.facts.standing.reads),
    };
    match worth {
        true => Algorithm::Direct,
        false => Algorithm::Library,
    }
}

/// The same where ranks run on several nodes.
fn apart(agreed: &Agreed, narrow: bool, bytes: usize) -> Algorithm {
    let whole = matches!(agreed.kind, CallKind::Allreduce | CallKind::Reduce);
    // Libraries send 16 bits as 32.
    match whole && narrow && bytes >= LEAST_APART {
        true => Algorithm::Rounds(Pattern::TwoLevel),
        false => Algorithm::Library,
    }
}

/// Bytes from which a scan of Open MPI's takes longer than one through shared memory: 256 were faster, 1024 not.
const LEAST_SCANNED: usize = 512;
/// Bytes from which few ranks read each other's memory: of two, 4 MiB were faster through shared memory, 8 MiB not.
const BEFORE_READING: usize = 6 << 20;
/// Bytes from which chunks are small for as many waits as they take.
const MOST_SHARED: usize = 16 << 20;
/// Bytes from which 16-bit floats go by two levels between nodes.
const LEAST_APART: usize = 1 << 20;
/// Bytes from which a single reduction is worth a set-up.
const LARGE: usize = 32 << 10;
/// Ranks up to which every one exchanges with every other one.
const MOST: usize = 16;

/// Ranks up to which those that wait for cores were measured.
const CROWD: usize = 4;

/// Bytes from which direct exchange is the faster one with a core for every rank.
fn least(agreed: &Agreed, narrow: bool, ranks: usize) -> usize {
    let reduce = agreed.kind == CallKind::Reduce;
    match (ranks <= MOST, narrow) {
        (false, _) => usize::MAX,
        // Libraries convert 16 bits one by one, and widening doubles what travels.
        (true, true) => 16 << 10,
        (true, false) if reduce && agreed.facts.family == Family::OpenMpi => 1 << 20,
        (true, false) => LARGE,
    }
}

/// The same where ranks wait for cores: each message may cost a turn of the scheduler, and ranks that read each
/// other's memory need few.
fn least_crowded(narrow: bool, ranks: usize, reads: bool) -> usize {
    match (ranks, narrow) {
        (..=MOST, true) => 256 << 10,
        (..=CROWD, false) if reads => direct::NEAR,
        (..=CROWD, false) => 1 << 20,
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreed::{AgreedOp, CommFacts};

    fn chosen(kind: CallKind, dtype: DType, bytes: usize, place: Place, ranks: u32) -> Algorithm {
        algorithm(
            &agreed(kind, dtype, bytes, place, ranks),
            dtype,
            ReduceOp::Sum,
        )
    }

    fn agreed(kind: CallKind, dtype: DType, bytes: usize, place: Place, ranks: u32) -> Agreed {
        let standing = Standing {
            place,
            ..Standing::NONE
        };
        agreed_with(
            (kind, dtype, bytes),
            ranks,
            standing.by_messages(),
            Family::OpenMpi,
        )
    }

    fn agreed_with(
        (kind, dtype, bytes): (CallKind, DType, usize),
        ranks: u32,
        standing: Standing,
        family: Family,
    ) -> Agreed {
        Agreed {
            kind,
            dtype: Some(dtype),
            elements: bytes / dtype.itemsize().expect("whole bytes"),
            op: Some(AgreedOp::Builtin(ReduceOp::Sum)),
            facts: CommFacts {
                size: ranks,
                large_counts: true,
                one_call: false,
                choice: Choice::Auto,
                standing,
                family,
            },
        }
    }

    /// A non-blocking call may find on one rank that it is known where the ranks run, and on another not yet.
    #[test]
    fn a_call_that_is_not_open_does_not_hang_on_the_place() {
        let choices = [
            Choice::Auto,
            Choice::Mpi,
            Choice::Own,
            Choice::Ring,
            Choice::Halving,
            Choice::TwoLevel,
        ];
        let kinds = [
            CallKind::Allreduce,
            CallKind::Reduce,
            CallKind::ReduceScatterBlock,
        ];
        let mut open_ones = 0;
        for choice in choices {
            for (kind, dtype) in kinds
                .into_iter()
                .flat_map(|k| [(k, DType::F32), (k, DType::BF16)])
            {
                for (bytes, ranks) in (2..31).flat_map(|e| [(1 << e, 2), (1 << e, 5), (1 << e, 64)])
                {
                    let mut facts = agreed(kind, dtype, bytes, Place::Unknown, ranks);
                    facts.facts.choice = choice;
                    if open(&facts, dtype, ReduceOp::Sum) {
                        open_ones += 1;
                        continue;
                    }
                    let unknown = algorithm(&facts, dtype, ReduceOp::Sum);
                    for place in [Place::Together, Place::Crowded, Place::Apart] {
                        facts.facts.standing.place = place;
                        assert_eq!(
                            algorithm(&facts, dtype, ReduceOp::Sum),
                            unknown,
                            "{facts:?}"
                        );
                    }
                }
            }
        }
        assert!(open_ones > 100);
    }

    #[test]
    fn few_ranks_without_a_core_each_share_what_is_one_chunk_and_read_what_is_more() {
        use Algorithm::{Direct, Library, Shared};
        use CallKind::{Allreduce, Reduce};
        let standing = Standing {
            place: Place::Crowded,
            shares: Shares::Yes,
            reads: true,
            settled: true,
        };
        let rows = [
            (Allreduce, 8, 4, Family::Mpich, Shared),
            (Allreduce, 8, 4, Family::OpenMpi, Library),
            (Allreduce, 1 << 10, 3, Family::OpenMpi, Shared),
            (Allreduce, 128 << 10, 4, Family::OpenMpi, Shared),
            (Allreduce, 256 << 10, 4, Family::Mpich, Direct),
            (Allreduce, 8, 5, Family::Mpich, Library),
            (Reduce, 64 << 10, 4, Family::Mpich, Library),
        ];
        for (kind, bytes, ranks, family, expected) in rows {
            let agreed = agreed_with((kind, DType::F32, bytes), ranks, standing, family);
            let got = algorithm(&agreed, DType::F32, ReduceOp::Sum);
            assert_eq!(got, expected, "{kind:?} {bytes} {ranks} {family:?}");
        }
        let blind = Standing {
            reads: false,
            ..standing
        };
        let agreed = agreed_with((Allreduce, DType::F32, 256 << 10), 4, blind, Family::Mpich);
        assert_eq!(algorithm(&agreed, DType::F32, ReduceOp::Sum), Library);
        // What a library would be given as float32.
        for dtype in [DType::F16, DType::BF16] {
            let agreed = agreed_with((Allreduce, dtype, 8), 3, standing, Family::OpenMpi);
            assert_eq!(algorithm(&agreed, dtype, ReduceOp::Sum), Shared);
        }
    }

    #[test]
    fn ranks_with_a_core_each_share_what_caches_hold_and_read_what_is_more() {
        use Algorithm::{Direct, Shared};
        use CallKind::{Allreduce, Reduce};
        let standing = Standing {
            place: Place::Together,
            shares: Shares::Yes,
            reads: true,
            settled: true,
        };
        let rows = [
            (Allreduce, 8, 2, Shared),
            (Allreduce, 4 << 20, 2, Shared),
            (Allreduce, 4 << 20, 4, Shared),
            (Allreduce, 8 << 20, 2, Direct),
            (Allreduce, 1 << 20, 5, Direct),
            (Allreduce, 128 << 10, 5, Shared),
            (Reduce, 1 << 20, 2, Direct),
            (Reduce, 128 << 10, 2, Shared),
        ];
        for (kind, bytes, ranks, expected) in rows {
            for family in [Family::Mpich, Family::OpenMpi] {
                let agreed = agreed_with((kind, DType::F32, bytes), ranks, standing, family);
                let got = algorithm(&agreed, DType::F32, ReduceOp::Sum);
                assert_eq!(got, expected, "{kind:?} {bytes} {ranks} {family:?}");
            }
        }
    }

    #[test]
    fn scans_go_through_shared_memory_where_that_is_the_faster_way() {
        use Algorithm::{Library, Shared};
        let standing = |place| Standing {
            place,
            shares: Shares::Yes,
            reads: true,
            settled: true,
        };
        let (f32, f16) = (DType::F32, DType::F16);
        let rows = [
            (f32, 8, 2, Place::Together, Family::Mpich, Shared),
            (f32, 4 << 20, 4, Place::Together, Family::Mpich, Shared),
            (f32, 256, 2, Place::Together, Family::OpenMpi, Library),
            (f32, 512, 2, Place::Together, Family::OpenMpi, Shared),
            (f32, 256 << 10, 2, Place::Together, Family::OpenMpi, Shared),
            (f32, 4 << 20, 2, Place::Together, Family::OpenMpi, Library),
            (f16, 8, 2, Place::Together, Family::OpenMpi, Shared),
            (f16, 4 << 20, 2, Place::Together, Family::OpenMpi, Shared),
            (f32, 8, 5, Place::Together, Family::Mpich, Library),
            (f32, 8, 3, Place::Crowded, Family::Mpich, Library),
        ];
        for (dtype, bytes, ranks, place, family, expected) in rows {
            for kind in [CallKind::Scan, CallKind::Exscan] {
                let agreed = agreed_with((kind, dtype, bytes), ranks, standing(place), family);
                let got = algorithm(&agreed, dtype, ReduceOp::Sum);
                assert_eq!(
                    got, expected,
                    "{dtype} {bytes} {ranks} {place:?} {family:?}"
                );
            }
        }
    }

    #[test]
    fn large_ones_on_one_node_are_ours_by_messages() {
        use Algorithm::{Direct, Library};
        use CallKind::{Allreduce, Reduce, Scan};
        let (f32, bf16) = (DType::F32, DType::BF16);
        let two_level = Algorithm::Rounds(Pattern::TwoLevel);
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
            (Allreduce, bf16, 1 << 20, Place::Apart, 8, two_level),
            (Allreduce, bf16, 1 << 10, Place::Apart, 8, Library),
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
