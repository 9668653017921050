//! Non-blocking collectives, their requests and their scope.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use dlmpi::ndarray::Array2;
use dlmpi::{Comm, ErrorKind, Exclusive, KnownTo, Loan, Op, Result, Source, Tag, Tensor, scope};

pub fn orders(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank() as i64, comm.size() as i64);
    let mut data: Vec<Array2<i64>> = (0..30)
        .map(|i| Array2::from_elem((4, 50), rank + i))
        .collect();
    scope(|scope| {
        let mut requests = Vec::new();
        for array in &mut data {
            requests.push(comm.immediate_all_reduce(scope, array, Op::Sum)?);
        }
        // Given back in the opposite order, and usable before the scope ends.
        for (i, request) in requests.into_iter().enumerate().rev() {
            let sum = request.wait()?;
            assert_eq!(sum[(0, 7)], size * (size - 1) / 2 + size * i as i64);
            sum[(0, 7)] = -1;
        }
        Ok::<(), dlmpi::Error>(())
    })?;
    assert!(data.iter().all(|array| array[(0, 7)] == -1));
    Ok(())
}

pub fn forgotten(comm: &Comm<'_>) -> Result<()> {
    let mut kept: Vec<Vec<f32>> = (0..200).map(|i| vec![i as f32; 100]).collect();
    scope(|scope| -> Result<()> {
        for (i, data) in kept.iter_mut().enumerate() {
            let request = comm.immediate_all_reduce(scope, data, Op::Sum)?;
            match i % 3 {
                0 => std::mem::forget(request),
                1 => drop(request),
                _ => assert_eq!(request.wait()?[99], (i * comm.size()) as f32),
            }
        }
        Ok(())
    })?;
    for (i, data) in kept.iter().enumerate() {
        assert_eq!(*data, vec![(i * comm.size()) as f32; 100]);
    }
    Ok(())
}

/// A message to whoever waits for it, when a panic comes past.
struct Cry<'a>(&'a Comm<'a>, i32);

impl Drop for Cry<'_> {
    fn drop(&mut self) {
        self.0.send(&1u8, self.1, 7).expect("a message to any rank");
    }
}

/// A panic without the hook, which ends the job here.
fn fall() -> Result<()> {
    resume_unwind(Box::new("on purpose"))
}

/// A panic that meets requests leaves them to their scope: what is unwound later may be what lets them end.
pub fn panics(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size() as i32);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mut came, mut other) = (0u8, [0f32; 9]);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        scope(|scope| {
            let _cry = Cry(comm, right);
            let _sum = comm.immediate_all_reduce(scope, &mut other, Op::Sum)?;
            let _coming = comm.immediate_recv(scope, &mut came, left, 7)?;
            fall()
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(came, 1);
    Ok(())
}

/// Panics when it is dropped.
struct Falls;

impl Drop for Falls {
    fn drop(&mut self) {
        let _ = fall();
    }
}

/// A tensor whose loans panic when they end.
struct Sharp([f32; 3]);

// SAFETY:
// - It is its array.
unsafe impl Tensor for Sharp {
    fn lend(&self) -> Result<Loan<'_>> {
        Ok(Loan::keeping(self.0.lend()?.view().clone(), Falls))
    }
}

// SAFETY:
// - It is its array.
unsafe impl Exclusive for Sharp {}

/// A loan that panics at the end of a scope does not keep the scope from waiting for a request that was forgotten.
pub fn sharp(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size() as i32);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mine, mut sum, mut came) = (Sharp([1.0; 3]), [f32::NAN; 3], 0u8);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Long after everybody's scope would have ended.
            std::thread::sleep(std::time::Duration::from_millis(300));
            comm.send(&1u8, right, 7).expect("a message to any rank");
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| {
                let sum = comm.immediate_all_reduce_into(scope, &mine, &mut sum, Op::Sum)?;
                let coming = comm.immediate_recv(scope, &mut came, left, 7)?;
                std::mem::forget((sum, coming));
                Ok::<(), dlmpi::Error>(())
            })
        }));
        assert!(outcome.is_err());
        assert_eq!((came, sum), (1, [size as f32; 3]));
    });
    Ok(())
}

pub fn all(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank() as usize, comm.size());
    let table = Array2::from_shape_fn((3, 2), |(i, _)| (10 * rank + i) as i32);
    let mine = table.column(1);
    let mut gathered = Array2::from_elem((size, 3), -1i32);
    let to_all = Array2::from_shape_fn((size, 2), |(r, i)| (100 * rank + 10 * r + i) as u16);
    let mut from_all = Array2::from_elem((size, 2), u16::MAX);
    let blocks = vec![1f64; 3 * size];
    let (mut block, mut copied, mut largest) = ([f64::NAN; 3], [rank + 5; 4], f32::NAN);
    scope(|scope| -> Result<()> {
        comm.immediate_barrier(scope)?.wait()?;
        let requests = (
            comm.immediate_all_gather(scope, &mine, &mut gathered)?,
            comm.immediate_all_to_all(scope, &to_all, &mut from_all)?,
            comm.immediate_reduce_scatter(scope, &blocks, &mut block, Op::Sum)?,
            comm.immediate_broadcast(scope, &mut copied[1..], 0)?,
            comm.immediate_all_reduce_into(scope, &2.5f32, &mut largest, Op::Max)?,
        );
        requests.3.wait()?;
        drop(requests.1);
        Ok(())
    })?;
    assert!(
        gathered
            .indexed_iter()
            .all(|((r, i), x)| *x == (10 * r + i) as i32)
    );
    assert!(
        from_all
            .indexed_iter()
            .all(|((r, i), x)| usize::from(*x) == 100 * r + 10 * rank + i)
    );
    assert_eq!((block, largest), ([size as f64; 3], 2.5));
    assert_eq!(copied, [rank + 5, 5, 5, 5]);
    Ok(())
}

pub fn unseen(comm: &Comm<'_>) -> Result<()> {
    let fresh = comm.duplicate()?;
    // At once, on every rank alike: nothing was started.
    let mut number = 1i32;
    let refused = scope(|scope| {
        fresh
            .immediate_all_reduce(scope, &mut number, Op::Avg)?
            .wait()
            .map(|mean| *mean)
    });
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::Argument)
    );
    if fresh.size() == 1 {
        return Ok(());
    }
    let mut data = vec![1f32; 4 + usize::from(fresh.rank() == 0)];
    let outcome = scope(|scope| -> Result<()> {
        drop(fresh.immediate_all_reduce(scope, &mut data, Op::Sum)?);
        Ok(())
    });
    assert_eq!(
        outcome.map_err(|error| error.kind()),
        Err(ErrorKind::Mismatch)
    );
    Ok(())
}

pub fn rooted(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let root = size as i32 - 1;
    let triangle = |n: usize| (n * (n + 1) / 2) as i64;
    let mine = Array2::from_shape_fn((2, 3), |(i, j)| i64::from(rank + 1) * (10 * i + j) as i64);
    let mut sum = Array2::from_elem((3, 2), i64::MIN);
    let mut rows = Array2::from_elem((size, 6), i64::MIN);
    let parts: Vec<i32> = (0..2 * size as i32).collect();
    let (mut part, mut so_far, mut before) = ([-1i32; 2], i64::MIN, -9i64);
    let one = i64::from(rank) + 1;
    scope(|scope| -> Result<()> {
        let at_root = rank == root;
        // Transposed there: logical order is what counts.
        let mut sum = sum.view_mut().reversed_axes();
        let recv = at_root.then_some(&mut sum);
        dlmpi::scope(|inner| {
            let request = comm.immediate_reduce(inner, &mine, recv, Op::Sum, root)?;
            let given_back = request.wait()?;
            assert_eq!(given_back.is_some(), at_root);
            Ok::<(), dlmpi::Error>(())
        })?;
        comm.immediate_gather(scope, &mine, at_root.then_some(&mut rows), root)?
            .wait()?;
        let send = at_root.then_some(&parts);
        comm.immediate_scatter(scope, send, &mut part, root)?
            .wait()?;
        comm.immediate_scan(scope, &one, &mut so_far, Op::Sum, false)?
            .wait()?;
        comm.immediate_scan(scope, &one, &mut before, Op::Sum, true)?
            .wait()
            .map(|_| ())
    })?;
    let expected = |i: usize| match rank == root {
        true => triangle(size) * (10 * (i % 2) + i / 2) as i64,
        false => i64::MIN,
    };
    assert!(sum.iter().enumerate().all(|(i, x)| *x == expected(i)));
    assert!(rows.indexed_iter().all(|((r, i), x)| match rank == root {
        true => *x == (r + 1) as i64 * (10 * (i / 3) + i % 3) as i64,
        false => *x == i64::MIN,
    }));
    assert_eq!(part, [2 * rank, 2 * rank + 1]);
    assert_eq!(
        (so_far, before),
        (
            triangle(rank as usize + 1),
            if rank == 0 {
                -9
            } else {
                triangle(rank as usize)
            },
        )
    );
    Ok(())
}

pub fn messages(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size() as i32);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    // In a circle, with everything under way at once; a rank alone sends to itself.
    for n in [0usize, 1, 7, 100_000] {
        let mine = vec![f64::from(rank); n];
        let mut room = Array2::from_elem((2, n + 3), f64::NAN);
        let (mut first, second) = room.view_mut().split_at(dlmpi::ndarray::Axis(0), 1);
        let mut second = second.reversed_axes();
        scope(|scope| {
            let any = comm.immediate_recv(scope, &mut first, Source::Any, 4)?;
            let back = comm.immediate_recv(scope, &mut second, left, Tag::Any)?;
            let going = comm.immediate_send(scope, &mine, right, 4)?;
            let (_, status) = any.wait()?;
            assert_eq!((status.source, status.tag, status.elements), (left, 4, n));
            // Sent only now: the other receive cannot have taken it.
            std::mem::forget(comm.immediate_send(scope, &mine, right, 5)?);
            let (second, status) = back.wait()?;
            assert_eq!((status.source, status.tag, status.elements), (left, 5, n));
            assert!(second.iter().take(n).all(|x| *x == f64::from(left)));
            going.wait()
        })?;
        for row in room.rows() {
            assert!(row.iter().take(n).all(|x| *x == f64::from(left)));
            assert!(row.iter().skip(n).all(|x| x.is_nan()));
        }
    }
    // One that is too long is an error of the request, and writes nothing beyond the tensor.
    let (long, mut room) = ([7u8; 40_000], [0u8; 40_000]);
    scope(|scope| {
        let coming = comm.immediate_recv(scope, &mut room[..100], left, 6)?;
        let going = comm.immediate_send(scope, &long, right, 6)?;
        let error = coming.wait().expect_err("it is too long");
        assert!(matches!(error.kind(), ErrorKind::Mpi { .. }), "{error:?}");
        going.wait()
    })?;
    assert!(room[100..].iter().all(|x| *x == 0));
    Ok(())
}

pub fn refusals(comm: &Comm<'_>) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    // The first calls of a communicator are checked, so that what one rank refuses all ranks hear of.
    let fresh = comm.duplicate()?;
    let (mut sum, root) = ([1f32; 3], if fresh.rank() == 0 { 99 } else { 0 });
    let blocking = fresh.broadcast(&mut sum, root);
    let started = scope(|scope| {
        fresh
            .immediate_broadcast(scope, &mut sum, root)?
            .wait()
            .map(|_| ())
    });
    for outcome in [blocking, started] {
        let error = outcome.expect_err("rank 0 names no rank of these");
        let expected = match fresh.rank() {
            0 => ErrorKind::Argument,
            _ => ErrorKind::Mismatch,
        };
        assert_eq!(
            (error.kind(), error.known_to()),
            (expected, KnownTo::EveryRank),
            "{error:?}"
        );
        assert!(error.to_string().contains("99"), "{error}");
    }
    fresh.all_reduce(&mut sum, Op::Sum)?;
    assert_eq!(sum, [fresh.size() as f32; 3]);
    Ok(())
}
