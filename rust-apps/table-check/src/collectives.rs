//! Blocking collectives with equal counts, against closed forms; in place too.

use crate::suite::{Context, Suite, input, output};

pub fn all(suite: &mut Suite) {
    suite.check("bcast, gather, scatter", rooted);
    suite.check("allgather, alltoall", everywhere);
    suite.check("reductions", reductions);
    suite.check("collectives in place", in_place);
}

/// What rank `r` puts in at place `i`.
pub fn value(r: i32, i: i32) -> i32 {
    1000 * (r + 1) + i
}

pub fn values(r: i32, n: i32) -> Vec<i32> {
    (0..n).map(|i| value(r, i)).collect()
}

/// The sum of [`value`] over the first `ranks` ranks, in closed form.
pub fn sum(ranks: i32, i: i32) -> i32 {
    1000 * ranks * (ranks + 1) / 2 + ranks * i
}

fn rooted(c: &Context) {
    let mpi = c.mpi;
    let last = c.size - 1;
    // SAFETY:
    // - Every buffer is an array as long as its count, times the ranks where MPI says so.
    unsafe {
        for root in [0, last] {
            let mut data = if c.rank == root {
                values(root, 6)
            } else {
                vec![0; 6]
            };
            mpi.bcast(output(&mut data), 6, c.int(), root, c.comm)
                .expect("bcast");
            assert_eq!(data, values(root, 6));

            let mut all = vec![-1; 3 * c.size as usize];
            mpi.gather(
                input(&values(c.rank, 3)),
                3,
                c.int(),
                output(&mut all),
                3,
                c.int(),
                root,
                c.comm,
            )
            .expect("gather");
            let expected: Vec<i32> = (0..c.size).flat_map(|r| values(r, 3)).collect();
            assert_eq!(
                all,
                if c.rank == root {
                    expected.clone()
                } else {
                    vec![-1; 3 * c.size as usize]
                }
            );

            let mut mine = [-1; 3];
            mpi.scatter(
                input(&expected),
                3,
                c.int(),
                output(&mut mine),
                3,
                c.int(),
                root,
                c.comm,
            )
            .expect("scatter");
            assert_eq!(mine.as_slice(), values(c.rank, 3));
        }
    }
}

fn everywhere(c: &Context) {
    let mpi = c.mpi;
    let n = c.size as usize;
    // SAFETY:
    // - Every buffer is an array as long as its count times the ranks.
    unsafe {
        let mut all = vec![-1; 2 * n];
        mpi.allgather(
            input(&values(c.rank, 2)),
            2,
            c.int(),
            output(&mut all),
            2,
            c.int(),
            c.comm,
        )
        .expect("allgather");
        assert_eq!(
            all,
            (0..c.size).flat_map(|r| values(r, 2)).collect::<Vec<_>>()
        );

        let mut received = vec![-1; n];
        mpi.alltoall(
            input(&values(c.rank, c.size)),
            1,
            c.int(),
            output(&mut received),
            1,
            c.int(),
            c.comm,
        )
        .expect("alltoall");
        assert_eq!(
            received,
            (0..c.size).map(|r| value(r, c.rank)).collect::<Vec<_>>()
        );
    }
}

fn reductions(c: &Context) {
    let mpi = c.mpi;
    let mine = values(c.rank, 4);
    let total: Vec<i32> = (0..4).map(|i| sum(c.size, i)).collect();
    // SAFETY:
    // - Every buffer is an array as long as its count, times the ranks for reduce_scatter_block.
    unsafe {
        for root in [0, c.size - 1] {
            let mut out = [-1; 4];
            mpi.reduce(
                input(&mine),
                output(&mut out),
                4,
                c.int(),
                c.sum(),
                root,
                c.comm,
            )
            .expect("reduce");
            assert_eq!(
                out.as_slice(),
                if c.rank == root { &total[..] } else { &[-1; 4] }
            );
        }
        let mut out = [-1; 4];
        mpi.allreduce(input(&mine), output(&mut out), 4, c.int(), c.sum(), c.comm)
            .expect("allreduce");
        assert_eq!(out.as_slice(), total);

        mpi.scan(input(&mine), output(&mut out), 4, c.int(), c.sum(), c.comm)
            .expect("scan");
        assert_eq!(
            out.as_slice(),
            (0..4).map(|i| sum(c.rank + 1, i)).collect::<Vec<_>>()
        );

        let mut out = [-1; 4];
        mpi.exscan(input(&mine), output(&mut out), 4, c.int(), c.sum(), c.comm)
            .expect("exscan");
        if c.rank > 0 {
            assert_eq!(
                out.as_slice(),
                (0..4).map(|i| sum(c.rank, i)).collect::<Vec<_>>()
            );
        }

        let mut block = [-1; 2];
        mpi.reduce_scatter_block(
            input(&values(c.rank, 2 * c.size)),
            output(&mut block),
            2,
            c.int(),
            c.sum(),
            c.comm,
        )
        .expect("reduce_scatter_block");
        assert_eq!(
            block,
            [sum(c.size, 2 * c.rank), sum(c.size, 2 * c.rank + 1)]
        );

        let mut accumulated = [10, 20];
        mpi.reduce_local(
            input(&[1, 2]),
            output(&mut accumulated),
            2,
            c.int(),
            c.sum(),
        )
        .expect("reduce_local");
        assert_eq!(accumulated, [11, 22]);
    }
}

fn in_place(c: &Context) {
    let mpi = c.mpi;
    let here = mpi.in_place();
    let n = c.size as usize;
    let me = c.rank as usize;
    // SAFETY:
    // - Every buffer is an array as long as its count, times the ranks where MPI says so.
    // - MPI_IN_PLACE is given only where MPI allows it.
    unsafe {
        let mut data = values(c.rank, 3);
        mpi.allreduce(here, output(&mut data), 3, c.int(), c.sum(), c.comm)
            .expect("allreduce");
        assert_eq!(data, (0..3).map(|i| sum(c.size, i)).collect::<Vec<_>>());

        let mut data = values(c.rank, 3);
        let send = if c.rank == 0 { here } else { input(&data) };
        let receive = output(&mut data);
        mpi.reduce(send, receive, 3, c.int(), c.sum(), 0, c.comm)
            .expect("reduce");
        if c.rank == 0 {
            assert_eq!(data, (0..3).map(|i| sum(c.size, i)).collect::<Vec<_>>());
        }

        let mut all = vec![-1; n];
        all[me] = value(c.rank, 9);
        mpi.allgather(
            here,
            0,
            mpi.datatype_null(),
            output(&mut all),
            1,
            c.int(),
            c.comm,
        )
        .expect("allgather");
        assert_eq!(all, (0..c.size).map(|r| value(r, 9)).collect::<Vec<_>>());

        // On the root of a scatter it is the receive buffer that is in place.
        let mut mine = [-1];
        let (receive, count) = if c.rank == 0 {
            (here.cast_mut(), 0)
        } else {
            (output(&mut mine), 1)
        };
        mpi.scatter(input(&all), 1, c.int(), receive, count, c.int(), 0, c.comm)
            .expect("scatter");
        assert_eq!(mine, [if c.rank == 0 { -1 } else { value(c.rank, 9) }]);

        let mut data = values(c.rank, c.size);
        mpi.alltoall(
            here,
            0,
            mpi.datatype_null(),
            output(&mut data),
            1,
            c.int(),
            c.comm,
        )
        .expect("alltoall");
        assert_eq!(
            data,
            (0..c.size).map(|r| value(r, c.rank)).collect::<Vec<_>>()
        );

        let mut data = values(c.rank, 2);
        mpi.scan(here, output(&mut data), 2, c.int(), c.sum(), c.comm)
            .expect("scan");
        assert_eq!(data, [sum(c.rank + 1, 0), sum(c.rank + 1, 1)]);
    }
}
