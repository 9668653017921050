//! Non-blocking collectives, their requests and their scope.

use dlmpi::ndarray::Array2;
use dlmpi::{Comm, ErrorKind, Op, Result, scope};

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
