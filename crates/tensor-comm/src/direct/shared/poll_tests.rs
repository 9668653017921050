//! Calls that do not wait, of ranks that are threads: several under way, looked after in any order.

use std::sync::atomic::{AtomicBool, Ordering};

use dlpack_core::DType;

use super::tests::{on_ranks, sum};
use super::{Poll, Shared};
use crate::direct::Progress;
use crate::error::{Error, Result};
use crate::ground::arena::Arena;

/// One call and its numbers.
struct Flight {
    data: Vec<i64>,
    poll: Poll,
    number: usize,
}

impl Flight {
    fn new(arena: &Arena, (rank, ranks): (usize, usize), n: usize, number: usize) -> Flight {
        let mut data: Vec<i64> = (0..n).map(|i| value(rank, i, number)).collect();
        let shared = sum(
            (rank, ranks),
            (data.as_mut_ptr().cast(), n),
            DType::I64,
            n as u64,
        );
        let poll = Poll::new(Box::new(shared), arena);
        Flight { data, poll, number }
    }

    fn look(&mut self, arena: &Arena) -> Result<Progress> {
        // SAFETY:
        // - the vector holds as many elements and is used by nobody else.
        unsafe { self.poll.advance(arena, &|| Ok(())) }
    }

    fn is_right(&self, ranks: usize) -> bool {
        let right = |i| {
            (0..ranks)
                .map(|rank| value(rank, i, self.number))
                .sum::<i64>()
        };
        self.data.iter().enumerate().all(|(i, &x)| x == right(i))
    }
}

fn value(rank: usize, element: usize, call: usize) -> i64 {
    ((rank + 1) * (element % 1009 + 3) * (call + 1)) as i64
}

#[test]
fn calls_under_way_end_in_any_order_of_looks() {
    // Beside the counters, and in the areas.
    let lengths = [1usize, 14, 15, 1000, 3, 1024, 1, 1];
    for ranks in 2..5 {
        let right = on_ranks(ranks, |arena, rank| {
            let mut right = true;
            for round in 0..8 {
                let mut flights: Vec<Flight> = (0..lengths.len())
                    .map(|i| (lengths[(i + round) % lengths.len()], round * 100 + i))
                    .map(|(n, number)| Flight::new(arena, (rank, ranks), n, number))
                    .collect();
                if (rank + round) % 2 == 0 {
                    // The last one first: it ends when those before it have.
                    flights.reverse();
                }
                while !flights.is_empty() {
                    flights.retain_mut(|flight| match flight.look(arena).expect("calls match") {
                        Progress::Ended => {
                            right &= flight.is_right(ranks);
                            false
                        }
                        _ => true,
                    });
                    std::thread::yield_now();
                }
            }
            right
        });
        assert_eq!(right, vec![true; ranks], "{ranks} ranks");
    }
}

#[test]
fn ranks_that_wait_meet_ranks_that_look() {
    let right = on_ranks(3, |arena, rank| {
        (0..60).all(|number| {
            let n = [1usize, 20, 700][number % 3];
            if rank == 1 {
                let mut flight = Flight::new(arena, (rank, 3), n, number);
                while flight.look(arena).expect("calls match") != Progress::Ended {
                    std::thread::yield_now();
                }
                return flight.is_right(3);
            }
            let mut data: Vec<i64> = (0..n).map(|i| value(rank, i, number)).collect();
            let at = data.as_mut_ptr().cast();
            let shared: Shared = sum((rank, 3), (at, n), DType::I64, n as u64);
            // SAFETY:
            // - the vector holds as many elements.
            unsafe { shared.run(arena, &|| Ok(())) }.expect("calls match");
            let right = |i| (0..3).map(|rank| value(rank, i, number)).sum::<i64>();
            data.iter().enumerate().all(|(i, &x)| x == right(i))
        })
    });
    assert_eq!(right, [true; 3]);
}

fn end(flight: &mut Flight, arena: &Arena) -> Result<()> {
    loop {
        if flight.look(arena)? == Progress::Ended {
            return Ok(());
        }
        std::thread::yield_now();
    }
}

#[test]
fn calls_that_differ_are_an_error_on_all_ranks_and_those_behind_them_go_on() {
    let right = on_ranks(3, |arena, rank| {
        let me = (rank, 3);
        let mut wrong = Flight::new(arena, me, 5 + rank, 0);
        let mut behind = Flight::new(arena, me, 7, 1);
        let differs = matches!(end(&mut wrong, arena), Err(Error::Mismatch(_)));
        let untouched = (0..5).all(|i| wrong.data[i] == value(rank, i, 0));
        differs && untouched && end(&mut behind, arena).is_ok() && behind.is_right(3)
    });
    assert_eq!(right, [true; 3]);
}

#[test]
fn a_rank_that_fails_is_waited_for_by_nobody() {
    let failed = AtomicBool::new(false);
    let ends = on_ranks(2, |arena, rank| {
        let mut first = Flight::new(arena, (rank, 2), 3, 0);
        let mut behind = Flight::new(arena, (rank, 2), 3, 1);
        if rank == 0 {
            let mut looks = 0;
            let end = loop {
                // SAFETY:
                // - the vector holds as many elements and is used by nobody else.
                let looked = unsafe {
                    first
                        .poll
                        .advance(arena, &|| Err(Error::State("MPI is out of order".into())))
                };
                looks += 1;
                assert!(looks < 1000, "it is asked now and then");
                if let Err(why) = looked {
                    break why.to_string();
                }
            };
            failed.store(true, Ordering::Release);
            return end.contains("out of order") && behind.look(arena).is_err();
        }
        while !failed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // What rank 0 gave before it failed is there.
        end(&mut first, arena).is_ok() && first.is_right(2) && end(&mut behind, arena).is_err()
    });
    assert_eq!(ends, [true, true]);
}
