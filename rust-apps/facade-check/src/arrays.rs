//! Collectives on arrays of `ndarray`.

use dlmpi::ndarray::{Array1, Array2, Array3, Axis, s};
use dlmpi::{Comm, Op, Result, Tensor, TensorMut};
use half::{bf16, f16};

/// 1 + 2 + ... + n.
fn triangle(n: usize) -> i64 {
    (n * (n + 1) / 2) as i64
}

/// This rank's factor, from 1 on.
fn factor(comm: &Comm<'_>) -> i64 {
    i64::from(comm.rank()) + 1
}

pub fn sums(comm: &Comm<'_>) -> Result<()> {
    let total = triangle(comm.size());
    for n in [0, 1, 7, 64, 1000, 70_001] {
        let own = Array1::from_shape_fn(n, |i| i as i64 * factor(comm));
        let expected = Array1::from_shape_fn(n, |i| i as i64 * total);
        let mut sum = own.clone();
        comm.all_reduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, expected);
        let mut sum = Array1::from_elem(n, i64::MIN);
        comm.all_reduce_into(&own, &mut sum, Op::Sum)?;
        assert_eq!(sum, expected);
    }
    let cube = |f: i64| {
        Array3::from_shape_fn((5, 6, 7), move |(i, j, k)| {
            f * (i * 100 + j * 10 + k) as i64
        })
    };
    let mut own = cube(factor(comm));
    // Every second plane, rows backwards, transposed: what lies between stays.
    let mut part = own.slice_mut(s![..;2, ..;-1, 1..]);
    part.swap_axes(0, 2);
    comm.all_reduce(&mut part, Op::Sum)?;
    let mut expected = cube(factor(comm));
    expected
        .slice_mut(s![..;2, .., 1..])
        .assign(&cube(total).slice(s![..;2, .., 1..]));
    assert_eq!(own, expected);
    // The deref target, as generic code has it, and a memory order of one rank alone.
    let mut matrix = Array2::from_elem((3, 4), factor(comm) as f64);
    if comm.rank() == 0 {
        matrix = Array2::from_elem((4, 3), 1.0).reversed_axes();
    }
    comm.all_reduce(&mut *matrix, Op::Avg)?;
    assert!(
        matrix
            .iter()
            .all(|x| *x == total as f64 / comm.size() as f64)
    );
    Ok(())
}

pub fn halves(comm: &Comm<'_>) -> Result<()> {
    // 2048 + 1 is 2048 in f16, so adding in f16 would lose every one.
    let first = if comm.rank() == 0 { 2048.0 } else { 1.0 };
    let exact = 2048.0 + (comm.size() - 1) as f32;
    let mut sum = Array1::from_elem(9, f16::from_f32(first));
    comm.all_reduce(&mut sum, Op::Sum)?;
    assert!(sum.iter().all(|x| *x == f16::from_f32(exact)));
    let mut mean = Array2::from_elem((3, 5), bf16::from_f32(factor(comm) as f32));
    comm.all_reduce(&mut mean.slice_mut(s![.., ..;2]), Op::Avg)?;
    let expected = bf16::from_f32(triangle(comm.size()) as f32 / comm.size() as f32);
    assert!(mean.slice(s![.., ..;2]).iter().all(|x| *x == expected));
    assert!(
        mean.column(1)
            .iter()
            .all(|x| x.to_f32() == factor(comm) as f32)
    );
    let mut nan = Array1::from_elem(3, if comm.rank() == 0 { f32::NAN } else { 1.0 });
    comm.all_reduce(&mut nan, Op::Max)?;
    assert!(nan.iter().all(|x| x.is_nan()));
    Ok(())
}

pub fn movements(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank() as usize, comm.size());
    let root = (size - 1) as i32;
    let mut all = Array2::from_elem((size, 3), -1i32);
    let mine = Array1::from_elem(6, rank as i32);
    let expected = Array2::from_shape_fn((size, 3), |(r, _)| r as i32);
    comm.all_gather(&mine.slice(s![..;2]), &mut all)?;
    assert_eq!(all, expected);

    let mut at_root = Array2::from_elem((size, 3), -1i32);
    let recv: Option<&mut dyn TensorMut> = (rank as i32 == root).then_some(&mut at_root);
    comm.gather(&mine.slice(s![..3]), recv, root)?;
    assert_eq!(at_root == expected, rank as i32 == root);

    let mut row = Array2::from_elem((3, 2), -1i32);
    let send: Option<&dyn Tensor> = (rank as i32 == root).then_some(&at_root);
    comm.scatter(send, &mut row.column_mut(1), root)?;
    assert!(
        row.column(1).iter().all(|x| *x == rank as i32) && row.column(0).iter().all(|x| *x == -1)
    );

    let send = Array2::from_shape_fn((size, 2), |(r, i)| (100 * rank + 10 * r + i) as u16);
    let mut got = Array2::from_elem((2, size), u16::MAX);
    comm.all_to_all(&send, &mut got.view_mut().reversed_axes())?;
    assert!(
        got.indexed_iter()
            .all(|((i, r), x)| usize::from(*x) == 100 * r + 10 * rank + i)
    );

    let mut copied = Array1::from_elem(5, if rank as i32 == root { 7u64 } else { 0 });
    comm.broadcast(&mut copied.slice_mut(s![..;-1]), root)?;
    assert_eq!(copied, Array1::from_elem(5, 7));
    Ok(())
}

pub fn reductions(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank() as usize, comm.size());
    let total = triangle(size);
    let mut at_root = Array1::from_elem(4, i64::MIN);
    let recv: Option<&mut dyn TensorMut> = (rank == 0).then_some(&mut at_root);
    comm.reduce(&Array1::from_elem(4, factor(comm)), recv, Op::Sum, 0)?;
    assert!(
        at_root
            .iter()
            .all(|x| *x == if rank == 0 { total } else { i64::MIN })
    );

    let send = Array2::from_shape_fn((size, 3), |(r, i)| factor(comm) * (10 * r + i) as i64);
    let mut mine = Array1::from_elem(3, i64::MIN);
    comm.reduce_scatter(&send, &mut mine, Op::Sum)?;
    assert!(
        mine.iter()
            .enumerate()
            .all(|(i, x)| *x == total * (10 * rank + i) as i64)
    );

    let (mut so_far, mut before) = ([0i64; 2], [-9i64; 2]);
    comm.scan(&[factor(comm); 2], &mut so_far, Op::Sum, false)?;
    assert_eq!(so_far, [triangle(rank + 1); 2]);
    comm.scan(&[factor(comm); 2], &mut before, Op::Sum, true)?;
    assert_eq!(before, [if rank == 0 { -9 } else { triangle(rank) }; 2]);
    Ok(())
}

pub fn many(comm: &Comm<'_>) -> Result<()> {
    let total = triangle(comm.size()) as f32;
    let make = |n| Array2::from_elem((n, 3), factor(comm) as f32);
    let (mut small, mut none, mut large) = (make(5), make(0), make(200_000));
    let mut count = factor(comm);
    let mut column = large.column_mut(1);
    let all: [&mut dyn TensorMut; 4] = [&mut small, &mut none, &mut column, &mut count];
    comm.all_reduce_many(all, Op::Sum)?;
    assert!(small.iter().all(|x| *x == total) && count == total as i64);
    assert!(large.column(1).iter().all(|x| *x == total));
    assert!(
        large
            .index_axis(Axis(1), 2)
            .iter()
            .all(|x| *x == factor(comm) as f32)
    );
    // One type needs no trait objects.
    let mut gradients: Vec<_> = (1..20).map(make).collect();
    comm.all_reduce_many(gradients.iter_mut(), Op::Avg)?;
    assert!(
        gradients
            .iter()
            .flatten()
            .all(|x| *x == total / comm.size() as f32)
    );
    Ok(())
}
