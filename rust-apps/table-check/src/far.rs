//! Displacements beyond a C int, with real data: the block that is so far away is an empty one.

use crate::collectives::{value, values};
use crate::large_counts::MANY;
use crate::suite::{Context, IGNORE, input, output};

/// The last rank has no elements, at a displacement beyond a C int; the others have two each.
struct Far {
    counts: Vec<i64>,
    displacements: Vec<i64>,
    own: i64,
    expected: Vec<i32>,
}

impl Far {
    fn new(c: &Context) -> Far {
        let last = c.size - 1;
        let counts = (0..c.size).map(|r| if r == last { 0 } else { 2 }).collect();
        let displacements = (0..c.size)
            .map(|r| if r == last { MANY } else { 2 * i64::from(r) })
            .collect();
        let own = if c.rank == last { 0 } else { 2 };
        let expected = (0..last).flat_map(|r| values(r, 2)).collect();
        Far {
            counts,
            displacements,
            own,
            expected,
        }
    }
}

pub fn displacements(c: &Context) {
    let mpi = c.mpi;
    let Far {
        counts,
        displacements,
        own,
        expected,
    } = &Far::new(c);
    let (own, int, comm, root) = (*own, c.int(), c.comm, c.size - 1);
    let mine = values(c.rank, 2);
    let fresh = || vec![-1; expected.len()];
    // Rank `r` sends one element to every rank but the last, at place `d`.
    let ones: Vec<i64> = counts.iter().map(|count| (*count).min(1)).collect();
    let places: Vec<i64> = (0..i64::from(c.size))
        .map(|r| if r == i64::from(root) { MANY } else { r })
        .collect();
    let exchanged: Vec<i32> = (0..root).map(|r| value(r, c.rank)).collect();
    let (send_counts, receive_counts) = if c.rank == root {
        (vec![0; counts.len()], vec![0; counts.len()])
    } else {
        (ones.clone(), ones)
    };
    let to_send = values(c.rank, c.size);

    for immediate in [false, true] {
        let (mut gathered, mut allgathered, mut scattered) = (fresh(), fresh(), vec![-1; 2]);
        let mut received = vec![-1; c.size as usize];
        let (g, a, s, x) = (
            output(&mut gathered),
            output(&mut allgathered),
            output(&mut scattered),
            output(&mut received),
        );
        // SAFETY:
        // - Buffers reach to the end of the last block that has elements; there is a count and a displacement per rank.
        // - `kept` and all buffers outlive the waitall.
        unsafe {
            if immediate {
                let started = [
                    mpi.igatherv(
                        input(&mine),
                        own,
                        int,
                        g,
                        counts,
                        displacements,
                        int,
                        root,
                        comm,
                    )
                    .expect("igatherv"),
                    mpi.iscatterv(
                        input(expected),
                        counts,
                        displacements,
                        int,
                        s,
                        own,
                        int,
                        root,
                        comm,
                    )
                    .expect("iscatterv"),
                    mpi.iallgatherv(input(&mine), own, int, a, counts, displacements, int, comm)
                        .expect("iallgatherv"),
                    mpi.ialltoallv(
                        input(&to_send),
                        &send_counts,
                        &places,
                        int,
                        x,
                        &receive_counts,
                        &places,
                        int,
                        comm,
                    )
                    .expect("ialltoallv"),
                ];
                let (mut requests, kept): (Vec<_>, Vec<_>) = started.into_iter().unzip();
                mpi.waitall(&mut requests, IGNORE).expect("waitall");
                drop(kept);
            } else {
                mpi.gatherv(
                    input(&mine),
                    own,
                    int,
                    g,
                    counts,
                    displacements,
                    int,
                    root,
                    comm,
                )
                .expect("gatherv");
                mpi.scatterv(
                    input(expected),
                    counts,
                    displacements,
                    int,
                    s,
                    own,
                    int,
                    root,
                    comm,
                )
                .expect("scatterv");
                mpi.allgatherv(input(&mine), own, int, a, counts, displacements, int, comm)
                    .expect("allgatherv");
                mpi.alltoallv(
                    input(&to_send),
                    &send_counts,
                    &places,
                    int,
                    x,
                    &receive_counts,
                    &places,
                    int,
                    comm,
                )
                .expect("alltoallv");
            }
        }
        assert_eq!(
            gathered,
            if c.rank == root {
                expected.clone()
            } else {
                fresh()
            }
        );
        assert_eq!(allgathered, *expected);
        assert_eq!(
            scattered,
            if c.rank == root {
                vec![-1; 2]
            } else {
                mine.clone()
            }
        );
        let whole = if c.rank == root {
            vec![]
        } else {
            exchanged.clone()
        };
        assert_eq!(received[..whole.len()], whole);
        assert_eq!(
            received[whole.len()..],
            vec![-1; received.len() - whole.len()]
        );
    }
}
