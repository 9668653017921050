//! Collectives with a count and a displacement per rank: blocks of different lengths, with gaps between
//! them that must stay untouched, in reverse order.

use crate::collectives::{sum, value, values};
use crate::suite::{Context, IGNORE, Suite, input, output};

pub fn all(suite: &mut Suite) {
    suite.check("gatherv, scatterv, allgatherv", blocks);
    suite.check("alltoallv", alltoallv);
    suite.check("reduce_scatter", reduce_scatter);
    suite.check("immediate v-collectives", immediate);
}

/// Rank `r` has `r + 1` elements. In the big buffer the last rank's come first, each with a gap before it.
struct Blocks {
    counts: Vec<i64>,
    displacements: Vec<i64>,
    len: usize,
}

impl Blocks {
    fn new(size: i32) -> Blocks {
        let n = i64::from(size);
        let counts: Vec<i64> = (1..=n).collect();
        let mut displacements = vec![0; size as usize];
        let mut at = 0;
        for r in (0..size as usize).rev() {
            displacements[r] = at + 1;
            at += 1 + counts[r];
        }
        Blocks {
            counts,
            displacements,
            len: at as usize,
        }
    }

    /// The big buffer with every rank's block in its place and -1 in the gaps.
    fn filled(&self) -> Vec<i32> {
        let mut buffer = vec![-1; self.len];
        for (r, (count, at)) in self.counts.iter().zip(&self.displacements).enumerate() {
            for i in 0..*count {
                buffer[(at + i) as usize] = value(r as i32, i as i32);
            }
        }
        buffer
    }
}

fn blocks(c: &Context) {
    let mpi = c.mpi;
    let blocks = Blocks::new(c.size);
    let own = i64::from(c.rank + 1);
    let mine = values(c.rank, c.rank + 1);
    let root = c.size - 1;
    // SAFETY:
    // - Small buffers are as long as their count, big ones reach to the end of the last block.
    // - There is a count and a displacement per rank.
    unsafe {
        let mut big = vec![-1; blocks.len];
        mpi.gatherv(
            input(&mine),
            own,
            c.int(),
            output(&mut big),
            &blocks.counts,
            &blocks.displacements,
            c.int(),
            root,
            c.comm,
        )
        .expect("gatherv");
        assert_eq!(
            big,
            if c.rank == root {
                blocks.filled()
            } else {
                vec![-1; blocks.len]
            }
        );

        let mut small = vec![-1; mine.len() + 1];
        mpi.scatterv(
            input(&blocks.filled()),
            &blocks.counts,
            &blocks.displacements,
            c.int(),
            output(&mut small),
            own,
            c.int(),
            root,
            c.comm,
        )
        .expect("scatterv");
        assert_eq!(small[..mine.len()], mine);
        assert_eq!(small[mine.len()], -1);

        let mut big = vec![-1; blocks.len];
        mpi.allgatherv(
            input(&mine),
            own,
            c.int(),
            output(&mut big),
            &blocks.counts,
            &blocks.displacements,
            c.int(),
            c.comm,
        )
        .expect("allgatherv");
        assert_eq!(big, blocks.filled());

        // Counts that are not significant here may be left out.
        let (counts, displacements): (&[i64], &[i64]) = if c.rank == root {
            (&blocks.counts, &blocks.displacements)
        } else {
            (&[], &[])
        };
        let mut big = vec![-1; blocks.len];
        mpi.gatherv(
            input(&mine),
            own,
            c.int(),
            output(&mut big),
            counts,
            displacements,
            c.int(),
            root,
            c.comm,
        )
        .expect("gatherv");
        assert_eq!(
            big,
            if c.rank == root {
                blocks.filled()
            } else {
                vec![-1; blocks.len]
            }
        );
    }
}

/// Rank `r` sends `r + d + 1` elements to rank `d`, starting with `value(r, 100 d)`.
struct Exchange {
    sends: Vec<i32>,
    send_counts: Vec<i64>,
    send_displacements: Vec<i64>,
    receive_counts: Vec<i64>,
    receive_displacements: Vec<i64>,
    expected: Vec<i32>,
}

impl Exchange {
    fn new(rank: i32, size: i32) -> Exchange {
        let count = |r: i32, d: i32| r + d + 1;
        let mut x = Exchange {
            sends: vec![],
            send_counts: vec![],
            send_displacements: vec![],
            receive_counts: vec![],
            receive_displacements: vec![],
            expected: vec![],
        };
        for peer in 0..size {
            x.send_displacements.push(x.sends.len() as i64);
            x.send_counts.push(i64::from(count(rank, peer)));
            x.sends
                .extend((0..count(rank, peer)).map(|i| value(rank, 100 * peer + i)));
            x.expected.push(-1);
            x.receive_displacements.push(x.expected.len() as i64);
            x.receive_counts.push(i64::from(count(peer, rank)));
            x.expected
                .extend((0..count(peer, rank)).map(|i| value(peer, 100 * rank + i)));
        }
        x
    }
}

fn alltoallv(c: &Context) {
    let x = Exchange::new(c.rank, c.size);
    let mut received = vec![-1; x.expected.len()];
    // SAFETY:
    // - Both buffers reach to the end of their last block; there is a count and a displacement per rank.
    unsafe {
        c.mpi
            .alltoallv(
                input(&x.sends),
                &x.send_counts,
                &x.send_displacements,
                c.int(),
                output(&mut received),
                &x.receive_counts,
                &x.receive_displacements,
                c.int(),
                c.comm,
            )
            .expect("alltoallv");
    }
    assert_eq!(received, x.expected);
}

/// Where rank `r`'s share of `1 + 2 + ... + n` elements starts.
fn start(r: i32) -> i32 {
    r * (r + 1) / 2
}

fn reduce_scatter(c: &Context) {
    let counts = Blocks::new(c.size).counts;
    let mut out = vec![-1; counts[c.rank as usize] as usize];
    // SAFETY:
    // - The input has as many elements as the counts add up to, the output this rank's count.
    unsafe {
        c.mpi
            .reduce_scatter(
                input(&values(c.rank, start(c.size))),
                output(&mut out),
                &counts,
                c.int(),
                c.sum(),
                c.comm,
            )
            .expect("reduce_scatter");
    }
    assert_eq!(
        out,
        (0..=c.rank)
            .map(|i| sum(c.size, start(c.rank) + i))
            .collect::<Vec<_>>()
    );
}

fn immediate(c: &Context) {
    let mpi = c.mpi;
    let blocks = Blocks::new(c.size);
    let own = i64::from(c.rank + 1);
    let mine = values(c.rank, c.rank + 1);
    let everything = blocks.filled();
    let to_reduce = values(c.rank, start(c.size));
    let x = Exchange::new(c.rank, c.size);
    let (mut gathered, mut allgathered) = (vec![-1; blocks.len], vec![-1; blocks.len]);
    let (mut scattered, mut exchanged) = (vec![-1; mine.len()], vec![-1; x.expected.len()]);
    let mut reduced = vec![-1; mine.len()];
    let (int, comm, counts, displacements) =
        (c.int(), c.comm, &blocks.counts, &blocks.displacements);
    // SAFETY:
    // - Buffers and arrays are as in the blocking checks above, and outlive the waitall.
    // - `kept` holds the count arrays until after the waitall.
    unsafe {
        let started = [
            mpi.igatherv(
                input(&mine),
                own,
                int,
                output(&mut gathered),
                counts,
                displacements,
                int,
                0,
                comm,
            )
            .expect("igatherv"),
            mpi.iscatterv(
                input(&everything),
                counts,
                displacements,
                int,
                output(&mut scattered),
                own,
                int,
                0,
                comm,
            )
            .expect("iscatterv"),
            mpi.iallgatherv(
                input(&mine),
                own,
                int,
                output(&mut allgathered),
                counts,
                displacements,
                int,
                comm,
            )
            .expect("iallgatherv"),
            mpi.ialltoallv(
                input(&x.sends),
                &x.send_counts,
                &x.send_displacements,
                int,
                output(&mut exchanged),
                &x.receive_counts,
                &x.receive_displacements,
                int,
                comm,
            )
            .expect("ialltoallv"),
            mpi.ireduce_scatter(
                input(&to_reduce),
                output(&mut reduced),
                counts,
                int,
                c.sum(),
                comm,
            )
            .expect("ireduce_scatter"),
        ];
        let (mut requests, kept): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        mpi.waitall(&mut requests, IGNORE).expect("waitall");
        drop(kept);
    }
    assert_eq!(
        gathered,
        if c.rank == 0 {
            blocks.filled()
        } else {
            vec![-1; blocks.len]
        }
    );
    assert_eq!(scattered, mine);
    assert_eq!(allgathered, blocks.filled());
    assert_eq!(exchanged, x.expected);
    assert_eq!(
        reduced,
        (0..=c.rank)
            .map(|i| sum(c.size, start(c.rank) + i))
            .collect::<Vec<_>>()
    );
}
