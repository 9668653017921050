//! Ranks that are threads: every kind of call, one after the other on one piece of shared memory, against
//! sums of integers.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

use dlpack_core::DType;
use half::bf16;
use proptest::prelude::*;

use super::*;
use crate::direct::{Extent, Piece, label};
use crate::kernels::ReduceOp;

/// What all ranks call alike.
#[derive(Debug, Clone, Copy)]
struct Asked {
    goal: Goal,
    /// Elements; of a rank's block where each rank owns one.
    n: usize,
    in_place: bool,
    /// Elements of a piece, if they are not in one piece.
    pieces: Option<usize>,
}

fn value(rank: usize, element: usize, call: usize) -> i64 {
    ((rank + 1) * (element % 1009 + 3) * (call + 1)) as i64
}

fn pieces_of(data: &mut [i64], length: usize) -> Elements {
    let mut first = 0;
    let pieces: Vec<Piece> = data
        .chunks_mut(length)
        .map(|part| {
            let bytes = size_of_val(part);
            first += bytes;
            Piece {
                at: part.as_mut_ptr().cast(),
                first: first - bytes,
                bytes,
            }
        })
        .collect();
    Elements::Pieces(pieces.into())
}

/// One rank's call; says whether its results and what must not be touched are right.
fn call(arena: &Arena, (rank, ranks): (usize, usize), asked: Asked, number: usize) -> bool {
    let Asked {
        goal,
        n,
        in_place,
        pieces,
    } = asked;
    let blocks = goal == Goal::Owner;
    let total = if blocks { n * ranks } else { n };
    let extent = match blocks {
        true => Extent::Blocks((0..ranks).map(|rank| (rank * n, n)).collect()),
        false => Extent::Whole(n),
    };
    let gets = goal == Goal::All || blocks || goal == Goal::Root(rank);
    let mut input: Vec<i64> = (0..total).map(|i| value(rank, i, number)).collect();
    let before = input.clone();
    let mut output = vec![-7i64; n];
    let target = match in_place {
        true => &mut input,
        false => &mut output,
    };
    let at: *mut u8 = target.as_mut_ptr().cast();
    let to = match (gets, blocks, pieces) {
        (false, ..) => Target::Nowhere,
        (_, true, _) => Target::Owned(at, in_place),
        (_, false, Some(length)) => Target::Whole(pieces_of(target, length)),
        (_, false, None) => Target::Whole(Elements::Flat(at)),
    };
    let from = match pieces {
        Some(length) => pieces_of(&mut input, length),
        None => Elements::Flat(input.as_mut_ptr().cast()),
    };
    let shared = Shared {
        rank,
        ranks,
        geometry: Geometry::within(extent, ranks, 8, block_bytes(ranks)),
        goal,
        prefix: None,
        fold: Fold::new(ReduceOp::Sum, DType::I64, ranks, false).expect("a kernel"),
        item: 8,
        input: from,
        output: to,
        label: 1,
    };
    // SAFETY:
    // - the vectors hold what the geometry says, and nobody else has them.
    unsafe { shared.run(arena, &|| Ok(())) }.expect("calls match");
    let start = if blocks { rank * n } else { 0 };
    let right = |i: usize| (0..ranks).map(|r| value(r, start + i, number)).sum::<i64>();
    let result = if in_place { &input } else { &output };
    let results = !gets || (0..n).all(|i| result[i] == right(i));
    let kept = in_place || input == before;
    results && kept && (gets || in_place || output.iter().all(|&x| x == -7))
}

/// A sum over all ranks of `n` elements, in place.
pub(super) fn sum(
    (rank, ranks): (usize, usize),
    (at, n): (*mut u8, usize),
    dtype: DType,
    label: u64,
) -> Shared {
    let item = dtype.itemsize().expect("whole bytes");
    Shared {
        rank,
        ranks,
        geometry: Geometry::within(Extent::Whole(n), ranks, item, block_bytes(ranks)),
        goal: Goal::All,
        prefix: None,
        fold: Fold::new(ReduceOp::Sum, dtype, ranks, false).expect("a kernel"),
        item,
        input: Elements::Flat(at),
        output: Target::Whole(Elements::Flat(at)),
        label,
    }
}

/// Runs `work` on as many threads as ranks.
pub(super) fn on_ranks<T: Send>(ranks: usize, work: impl Fn(&Arena, usize) -> T + Sync) -> Vec<T> {
    let arenas = Arena::among_threads(ranks);
    std::thread::scope(|scope| {
        let threads: Vec<_> = arenas
            .iter()
            .enumerate()
            .map(|(rank, arena)| {
                let work = &work;
                scope.spawn(move || {
                    let done = catch_unwind(AssertUnwindSafe(|| work(arena, rank)));
                    // The others would wait for ever for one that is gone.
                    done.unwrap_or_else(|why| {
                        arena.enter().fails();
                        resume_unwind(why)
                    })
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn asked() -> impl Strategy<Value = (usize, usize, usize, bool, Option<usize>)> {
    let sizes = prop_oneof![
        1usize..20,
        1000usize..1100,
        30_000usize..40_000,
        200_000usize..300_000
    ];
    (
        0usize..4,
        0usize..4,
        sizes,
        any::<bool>(),
        prop::option::of(1usize..3000),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn calls_of_every_kind_follow_each_other(
        ranks in 2usize..5,
        calls in prop::collection::vec(asked(), 1..12),
    ) {
        let right = on_ranks(ranks, |arena, rank| {
            // All of them, whatever came of the first ones: the other ranks make them too.
            calls.iter().enumerate().fold(true, |all, (number, &(kind, root, n, in_place, pieces))| {
                let goal = match kind {
                    0 | 1 => Goal::All,
                    2 => Goal::Root(root % ranks),
                    _ => Goal::Owner,
                };
                let pieces = pieces.filter(|_| goal != Goal::Owner);
                // Who gets nothing has no place to work in.
                let in_place = in_place && (goal == Goal::All || goal == Goal::Owner);
                // Ranks need not agree on how far they are.
                arena.pretend((number + rank * number / 2) % 2 == 1);
                all & call(arena, (rank, ranks), Asked { goal, n, in_place, pieces }, number)
            })
        });
        prop_assert_eq!(right, vec![true; ranks]);
    }
}

/// The root takes results of a chunk when their owner may be in the next call.
#[test]
fn results_stay_until_the_root_has_taken_them() {
    for ranks in 2..5 {
        let (label, n) = (1, 3 * ranks * block_bytes(ranks) / 16);
        let kept = on_ranks(ranks, |arena, rank| {
            let geometry = Geometry::within(Extent::Whole(n), ranks, 8, block_bytes(ranks));
            assert_eq!(geometry.chunks(), 2);
            let mut data = vec![rank as i64 + 1; n];
            let at: *mut u8 = data.as_mut_ptr().cast();
            let root = ranks - 1;
            if rank != root {
                let reduce = Shared {
                    goal: Goal::Root(root),
                    output: Target::Nowhere,
                    ..sum((rank, ranks), (at, n), DType::I64, label)
                };
                let small = sum((rank, ranks), (at, 1000), DType::I64, label);
                // SAFETY:
                // - the vector holds as many elements.
                let done = unsafe {
                    reduce
                        .run(arena, &|| Ok(()))
                        .and_then(|()| small.run(arena, &|| Ok(())))
                };
                return done.is_ok();
            }
            // The root, by hand: it has combined its own block of the first chunk and not yet taken any other.
            let (mut turn, idle) = (arena.enter(), || Ok(()));
            let ones = |owner: usize, target: usize, step: u64, elements: usize| {
                let place = turn
                    .area(owner, step)
                    .wrapping_add(target * block_bytes(ranks));
                // SAFETY:
                // - a block, aligned, of `elements` at most.
                unsafe { std::slice::from_raw_parts_mut(place.cast::<i64>(), elements) }
            };
            for step in 0..2 {
                for target in 0..root {
                    let (_, n) = geometry.block(step as usize, target);
                    ones(root, target, step, n).fill(rank as i64 + 1);
                }
                turn.give(step, label);
            }
            turn.done(0);
            let others = || 0..root;
            let gave = |step| others().try_for_each(|rank| turn.given(rank, step, &idle).map(drop));
            let (sum, block) = ((ranks * (ranks + 1) / 2) as i64, |owner| {
                geometry.block(0, owner).1
            });
            // All others have ended the first call and given what they have for the second.
            gave(2).expect("nobody fails");
            let taken = others().all(|owner| {
                ones(owner, owner, 0, block(owner))
                    .iter()
                    .all(|&x| x == sum)
            });
            turn.done(1);
            ones(root, 0, 2, 1000).fill(1);
            turn.give(2, label);
            turn.done(2);
            turn.made(3);
            taken
        });
        assert_eq!(kept, vec![true; ranks], "{ranks} ranks");
    }
}

#[test]
fn calls_that_differ_are_an_error_on_all_ranks_and_the_next_ones_work() {
    for ranks in 2..5 {
        let right = on_ranks(ranks, |arena, rank| {
            let mut data = vec![1.0f32; 100_000];
            let at: *mut u8 = data.as_mut_ptr().cast();
            let run = |n: usize| {
                let shared = sum((rank, ranks), (at, n), DType::F32, label([n as u64]));
                // SAFETY:
                // - the vector holds at least `n` elements.
                unsafe { shared.run(arena, &|| Ok(())) }
            };
            // One step on all ranks, however many chunks each would make.
            let lengths = [2, 100_000, 3, 3000];
            let mismatch = matches!(run(lengths[rank]), Err(Error::Mismatch(_)));
            let untouched = data.iter().all(|&x| x == 1.0);
            mismatch & untouched & run(90_000).is_ok() & run(5).is_ok()
        });
        assert_eq!(right, vec![true; ranks]);
    }
}

/// Of every rank, in place and not, between other calls, whose places they share.
#[test]
fn prefixes_are_of_the_ranks_up_to_each() {
    for ranks in 1..6 {
        let right = on_ranks(ranks, |arena, rank| {
            let mut all = true;
            for (round, n) in [1usize, 14, 15, 1000, 8192, 8193, 40_000, 100_003]
                .into_iter()
                .enumerate()
            {
                for prefix in [Prefix::Inclusive, Prefix::Exclusive] {
                    for in_place in [false, true] {
                        let value = |rank: usize, i: usize| (rank * 1000 + round) as i64 + i as i64;
                        let mut data: Vec<i64> = (0..n).map(|i| value(rank, i)).collect();
                        let mut out = vec![-1i64; n];
                        let at = data.as_mut_ptr().cast();
                        let to: *mut u8 = match in_place {
                            true => at,
                            false => out.as_mut_ptr().cast(),
                        };
                        let scan = Shared {
                            prefix: Some(prefix),
                            output: Target::Whole(Elements::Flat(to)),
                            ..sum((rank, ranks), (at, n), DType::I64, n as u64)
                        };
                        // SAFETY:
                        // - the vectors hold `n` elements.
                        unsafe { scan.run(arena, &|| Ok(())) }.expect("calls match");
                        let before = data.iter().enumerate().all(|(i, &x)| x == value(rank, i));
                        let got = if in_place { &data } else { &out };
                        let up_to = rank + usize::from(prefix == Prefix::Inclusive);
                        let want = |i| (0..up_to).map(|rank| value(rank, i)).sum::<i64>();
                        all &= match up_to {
                            0 => before && out.iter().all(|&x| x == -1),
                            _ => got.iter().enumerate().all(|(i, &x)| x == want(i)),
                        };
                        all &= in_place || before;
                        let mut ones = vec![1i64; 70_000 + round];
                        let at = ones.as_mut_ptr().cast();
                        let other = sum((rank, ranks), (at, ones.len()), DType::I64, 7);
                        // SAFETY:
                        // - as above.
                        unsafe { other.run(arena, &|| Ok(())) }.expect("calls match");
                        all &= ones.iter().all(|&x| x == ranks as i64);
                    }
                }
            }
            all
        });
        assert_eq!(right, vec![true; ranks], "{ranks} ranks");
    }
}

#[test]
fn narrow_floats_are_rounded_once_and_divided_before() {
    let barrier = Barrier::new(3);
    let results = on_ranks(3, |arena, rank| {
        barrier.wait();
        [10usize, 5000, 300_000].map(|n| {
            let mut data = vec![bf16::from_f32([256.0, 1.0, 1.0][rank]); n];
            let at: *mut u8 = data.as_mut_ptr().cast();
            let shared = Shared {
                fold: Fold::new(ReduceOp::Sum, DType::BF16, 3, n == 5000).expect("a kernel"),
                ..sum((rank, 3), (at, n), DType::BF16, 1)
            };
            // SAFETY:
            // - the vector holds `n` elements.
            unsafe { shared.run(arena, &|| Ok(())) }.expect("calls match");
            let right = bf16::from_f32(if n == 5000 { 86.0 } else { 258.0 });
            let mut mine = vec![bf16::from_f32([256.0, 1.0, 1.0][rank]); n];
            let at: *mut u8 = mine.as_mut_ptr().cast();
            let scan = Shared {
                prefix: Some(Prefix::Inclusive),
                ..sum((rank, 3), (at, n), DType::BF16, 2)
            };
            // SAFETY:
            // - as above.
            unsafe { scan.run(arena, &|| Ok(())) }.expect("calls match");
            // The tie of 257 goes to the even 256.
            let up_to = bf16::from_f32([256.0, 256.0, 258.0][rank]);
            data.iter().all(|&x| x == right) && mine.iter().all(|&x| x == up_to)
        })
    });
    // Adding with rounding each time would stay at 256.
    assert_eq!(results, vec![[true; 3]; 3]);
}

/// Whoever hears an error of MPI's while it waits raises it; the others raise too or have right results, in
/// that call and in all later ones.
#[test]
fn a_rank_that_fails_while_it_waits_is_waited_for_by_nobody() {
    for (ranks, n) in [(2, 5usize), (2, 300_000), (3, 5), (3, 2000), (4, 300_000)] {
        let failing = std::sync::atomic::AtomicBool::new(false);
        let ends = on_ranks(ranks, |arena, rank| {
            let run = |number: usize, idle: &dyn Fn() -> Result<()>| {
                let mut data = vec![(rank + number) as i64; n];
                let at: *mut u8 = data.as_mut_ptr().cast();
                let shared = sum((rank, ranks), (at, n), DType::I64, 1);
                // SAFETY:
                // - the vector holds `n` elements.
                let done = unsafe { shared.run(arena, idle) };
                let right = (ranks * (ranks - 1) / 2 + ranks * number) as i64;
                assert!(done.is_err() || data.iter().all(|&x| x == right), "wrong");
                done
            };
            run(0, &|| Ok(())).expect("nothing has failed yet");
            let first = match rank {
                0 => {
                    // The others come later, so that this rank has to wait.
                    let end = run(1, &|| Err(Error::State("MPI is out of order".into())));
                    failing.store(true, std::sync::atomic::Ordering::Release);
                    end
                }
                _ => {
                    while !failing.load(std::sync::atomic::Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    run(1, &|| Ok(()))
                }
            };
            (rank > 0 || first.is_err(), run(2, &|| Ok(())).is_err())
        });
        // Who has all that it needs from rank 0 ends well, and fails where it needs more.
        assert_eq!(
            ends,
            vec![(true, true); ranks],
            "{ranks} ranks, {n} elements"
        );
    }
}
