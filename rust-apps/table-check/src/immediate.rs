//! Immediate collectives with equal counts, all in flight at once.

use crate::collectives::{sum, value, values};
use crate::suite::{Context, IGNORE, Suite, input, output};

pub fn all(suite: &mut Suite) {
    suite.check("immediate collectives", immediate);
}

fn immediate(c: &Context) {
    let mpi = c.mpi;
    let n = c.size as usize;
    let root = c.size - 1;
    let three = values(c.rank, 3);
    let one_each = values(c.rank, c.size);
    let everyone: Vec<i32> = (0..c.size).flat_map(|r| values(r, 3)).collect();

    let mut bcast = if c.rank == root {
        values(root, 3)
    } else {
        vec![0; 3]
    };
    let (mut gather, mut allgather) = (vec![-1; 3 * n], vec![-1; 3 * n]);
    let (mut scatter, mut alltoall) = ([-1; 3], vec![-1; n]);
    let (mut reduce, mut allreduce, mut scan, mut exscan) = ([-1; 3], [-1; 3], [-1; 3], [-1; 3]);
    let mut block = [-1];
    let (int, add, comm) = (c.int(), c.sum(), c.comm);
    // SAFETY:
    // - Every buffer is an array as long as its count, times the ranks where MPI says so, used by one operation
    //   only if it is written, and outlives the waitall.
    unsafe {
        let mut requests = [
            mpi.ibarrier(comm).expect("ibarrier"),
            mpi.ibcast(output(&mut bcast), 3, int, root, comm)
                .expect("ibcast"),
            mpi.igather(
                input(&three),
                3,
                int,
                output(&mut gather),
                3,
                int,
                root,
                comm,
            )
            .expect("igather"),
            mpi.iscatter(
                input(&everyone),
                3,
                int,
                output(&mut scatter),
                3,
                int,
                root,
                comm,
            )
            .expect("iscatter"),
            mpi.iallgather(input(&three), 3, int, output(&mut allgather), 3, int, comm)
                .expect("iallgather"),
            mpi.ialltoall(
                input(&one_each),
                1,
                int,
                output(&mut alltoall),
                1,
                int,
                comm,
            )
            .expect("ialltoall"),
            mpi.ireduce(input(&three), output(&mut reduce), 3, int, add, root, comm)
                .expect("ireduce"),
            mpi.iallreduce(input(&three), output(&mut allreduce), 3, int, add, comm)
                .expect("iallreduce"),
            mpi.iscan(input(&three), output(&mut scan), 3, int, add, comm)
                .expect("iscan"),
            mpi.iexscan(input(&three), output(&mut exscan), 3, int, add, comm)
                .expect("iexscan"),
            mpi.ireduce_scatter_block(input(&one_each), output(&mut block), 1, int, add, comm)
                .expect("ireduce_scatter_block"),
        ];
        mpi.waitall(&mut requests, IGNORE).expect("waitall");
    }
    let total: Vec<i32> = (0..3).map(|i| sum(c.size, i)).collect();
    assert_eq!(bcast, values(root, 3));
    assert_eq!(allgather, everyone);
    assert_eq!(
        gather,
        if c.rank == root {
            everyone
        } else {
            vec![-1; 3 * n]
        }
    );
    assert_eq!(scatter.as_slice(), three);
    assert_eq!(
        alltoall,
        (0..c.size).map(|r| value(r, c.rank)).collect::<Vec<_>>()
    );
    assert_eq!(
        reduce.as_slice(),
        if c.rank == root {
            total.as_slice()
        } else {
            &[-1; 3]
        }
    );
    assert_eq!(allreduce.as_slice(), total);
    assert_eq!(
        scan.as_slice(),
        (0..3).map(|i| sum(c.rank + 1, i)).collect::<Vec<_>>()
    );
    if c.rank > 0 {
        assert_eq!(
            exscan.as_slice(),
            (0..3).map(|i| sum(c.rank, i)).collect::<Vec<_>>()
        );
    }
    assert_eq!(block, [sum(c.size, c.rank)]);
}
