//! Slices, numbers, messages, errors and communicators.

use dlmpi::dlpack::{Imported, export};
use dlmpi::{Comm, ErrorKind, KnownTo, Op, Result, Source, Tag};

pub fn numbers(comm: &Comm<'_>) -> Result<()> {
    let (mut largest, mut boxed) = (comm.rank(), vec![1u8; 5].into_boxed_slice());
    comm.all_reduce(&mut largest, Op::Max)?;
    assert_eq!(largest as usize, comm.size() - 1);
    comm.all_reduce(&mut boxed, Op::Sum)?;
    comm.all_reduce(&mut boxed[2..4], Op::Sum)?;
    let n = comm.size() as u8;
    assert_eq!(*boxed, [n, n, n * n, n * n, n]);
    let mut bits = [1u32 << comm.rank(), 0];
    comm.all_reduce(&mut bits, Op::BitwiseOr)?;
    assert_eq!(bits, [(1 << comm.size()) - 1, 0]);
    Ok(())
}

pub fn messages(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size() as i32);
    if size == 1 {
        return Ok(());
    }
    if rank == 0 {
        let mut came = vec![false; size as usize];
        for _ in 1..size {
            let mut room = [f64::NAN; 5];
            let status = comm.recv(&mut room, Source::Any, Tag::Any)?;
            assert_eq!((status.elements, status.tag), (3, 10 + status.source));
            assert!(room[..3].iter().all(|x| *x == f64::from(status.source)));
            // What is longer than the message stays as it was.
            assert!(room[3..].iter().all(|x| x.is_nan()));
            assert!(!std::mem::replace(&mut came[status.source as usize], true));
        }
    } else {
        comm.send(&[f64::from(rank); 3], 0, 10 + rank)?;
    }
    // The receives above would take what comes next.
    comm.barrier()?;
    let mut from = -1;
    let status = comm.sendrecv(&rank, (rank + 1) % size, 1, &mut from, Source::Any, 1)?;
    assert_eq!((from, status.source), ((rank + size - 1) % size, from));
    // A message that is too long is MPI's error, here alone, and writes nothing beyond the tensor.
    let mut room = [0u8; 40_000];
    match rank {
        0 => comm.send(&[7u8; 40_000], 1, 2)?,
        1 => {
            let error = comm
                .recv(&mut room[..100], 0, 2)
                .expect_err("it is too long");
            assert!(matches!(error.kind(), ErrorKind::Mpi { .. }), "{error:?}");
            assert!(room[100..].iter().all(|x| *x == 0));
        }
        _ => {}
    }
    Ok(())
}

pub fn arguments(comm: &Comm<'_>) -> Result<()> {
    let here = |error: dlmpi::Error, kind, words: &str| {
        assert_eq!((error.kind(), error.known_to()), (kind, KnownTo::ThisRank));
        assert!(error.to_string().contains(words), "{error}");
    };
    let size = comm.size() as i32;
    here(
        comm.send(&1u8, size, 0).expect_err("no such rank"),
        ErrorKind::Argument,
        "dest",
    );
    here(
        comm.send(&1u8, 0, -2).expect_err("no such tag"),
        ErrorKind::Argument,
        "tag: -2",
    );
    // Beyond the largest tag of any MPI but those that have no larger numbers.
    if let Err(error) = comm.sendrecv(&1u8, comm.rank(), i32::MAX, &mut 0u8, comm.rank(), i32::MAX)
    {
        here(error, ErrorKind::Argument, "tag: 2147483647");
    }
    here(
        comm.recv(&mut 1u8, -7, 0).expect_err("no such rank"),
        ErrorKind::Argument,
        "source: -7",
    );
    here(
        comm.split(Some(-1), 0).expect_err("no colour"),
        ErrorKind::Argument,
        "color",
    );
    // All ranks alike, so that the same call is refused everywhere; who knows of it hangs on whether it was checked.
    let error = comm.broadcast(&mut 1u8, size).expect_err("no such root");
    assert_eq!(error.kind(), ErrorKind::Argument);
    let error = comm
        .all_reduce(&mut 3i32, Op::Avg)
        .expect_err("no mean of integers");
    assert_eq!(error.kind(), ErrorKind::Argument);
    let mut wrong = vec![0u8; 2 * comm.size() + 1];
    let error = comm
        .all_gather(&[1u8, 2], &mut wrong)
        .expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Argument);
    Ok(())
}

pub fn mismatch(comm: &Comm<'_>) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let fresh = comm.duplicate()?;
    let mut data = vec![1f32; 4 + usize::from(fresh.rank() == 0)];
    let (line, done) = (line!(), fresh.all_reduce(&mut data, Op::Sum));
    let error = done.expect_err("sizes differ");
    assert_eq!(
        (error.kind(), error.known_to()),
        (ErrorKind::Mismatch, KnownTo::EveryRank)
    );
    // Rank 0 says one thing, the others another, and all hear where.
    let (text, place) = (error.to_string(), format!(" at {}:{line}", file!()));
    assert!(text.contains("rank 0: Allreduce of 5 float32"), "{error}");
    assert_eq!(text.matches(&place).count(), 2, "{error}");
    let mut data = [1f32; 3];
    fresh.all_reduce(&mut data, Op::Sum)?;
    assert_eq!(data, [fresh.size() as f32; 3]);
    Ok(())
}

pub fn agree(comm: &Comm<'_>) -> Result<()> {
    assert_eq!(comm.agree::<_, String>(Ok(comm.rank()))?, comm.rank());
    let last = comm.size() as i32 - 1;
    let mine = match comm.rank() {
        rank if rank == 0 || rank == last => Err(format!("no file on {rank}")),
        rank => Ok(rank),
    };
    let error = comm.agree(mine).expect_err("two ranks failed");
    assert_eq!(
        (error.kind(), error.known_to()),
        (ErrorKind::Agreed, KnownTo::EveryRank)
    );
    let expected = match last {
        0 => "rank 0: no file on 0".to_owned(),
        _ => format!("rank 0: no file on 0; rank {last}: no file on {last}"),
    };
    assert_eq!(error.to_string(), expected);
    Ok(())
}

pub fn split(comm: &Comm<'_>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    // In the opposite order, and without the last rank.
    let color = (rank as usize != size - 1 || size == 1).then_some(3);
    let part = comm.split(color, -rank)?;
    assert_eq!(part.is_some(), color.is_some());
    if let Some(part) = part {
        let members = size.max(2) - 1;
        assert_eq!(
            (part.size(), part.rank() as usize),
            (members, members - 1 - rank as usize)
        );
        let mut one = 1u64;
        part.all_reduce(&mut one, Op::Sum)?;
        assert_eq!(one as usize, members);
    }
    // Freed when dropped; tensor-check makes thousands.
    for _ in 0..30 {
        comm.duplicate()?.barrier()?;
    }
    Ok(())
}

pub fn threads(comm: &Comm<'_>) -> Result<()> {
    let made = (0..3)
        .map(|_| comm.duplicate())
        .collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let running: Vec<_> = made
            .iter()
            .map(|own| {
                scope.spawn(move || -> Result<()> {
                    for turn in 1..40u64 {
                        let mut sum = vec![turn; 50];
                        own.all_reduce(&mut sum, Op::Sum)?;
                        assert_eq!(sum, vec![turn * own.size() as u64; 50]);
                    }
                    Ok(())
                })
            })
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })
}

pub fn dlpack(comm: &Comm<'_>) -> Result<()> {
    let managed = export(vec![1f32, 2.0, 3.0])?;
    // SAFETY:
    // - It was exported above, for this only consumer.
    let mut tensor = unsafe { Imported::new(managed) }?;
    comm.all_reduce(&mut tensor, Op::Sum)?;
    let mut copy = [0f32; 3];
    comm.sendrecv(&tensor, comm.rank(), 0, &mut copy, comm.rank(), 0)?;
    let n = comm.size() as f32;
    assert_eq!(copy, [n, 2.0 * n, 3.0 * n]);
    Ok(())
}
