//! Runs tensor-comm's operations on communicators that rsmpi made, without Python: reductions and
//! movements of strided memory, non-blocking ones, the state that MPI keeps for us, and the check.
//! Right values are closed forms.
//!
//!     mpiexec -n 2 tensor-check

use mpi::environment::Threading;
use mpi::raw::AsRaw;
use mpi::topology::{Color, Communicator, SimpleCommunicator};
use mpi_runtime::{Family, Mpi, StatusPtr, rsmpi};
use tensor_comm::{
    Arg, Call, CallKind, Comm, DType, Device, Error, Op, Part, ReduceOp, Result, SendMode, View,
};

/// Elements that a view of this program describes.
trait Element: Copy {
    const DTYPE: DType;
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for u16 {
    /// The bits of a bfloat16.
    const DTYPE: DType = DType::BF16;
}

/// Every `step`-th element of a slice, as one tensor. The slice must outlive what is done with it.
fn every<T: Element>(data: &mut [T], step: usize) -> Part {
    let item = size_of::<T>() as i64;
    let shape = [data.len().div_ceil(step) as i64];
    let stride = [item * step as i64];
    // SAFETY:
    // - the elements are within the slice, which the callers below keep until the operation has ended.
    let view = unsafe {
        View::from_parts(
            data.as_mut_ptr().cast(),
            &shape,
            Some(&stride),
            T::DTYPE,
            Device::CPU,
            false,
        )
    };
    Part::whole(view.expect("a slice is a lawful tensor"))
}

fn call(kind: CallKind, send: Arg, recv: Arg) -> Call {
    let op = kind.is_reduction().then_some(Op::Builtin(ReduceOp::Sum));
    Call {
        send,
        recv,
        op,
        ..Call::new(kind)
    }
}

fn comm(mpi: &'static Mpi, comm: &SimpleCommunicator) -> Result<Comm> {
    // SAFETY:
    // - the communicator outlives every operation on it here.
    Comm::new(mpi, unsafe { rsmpi::comm(comm) })
}

fn run(comm: &Comm, call: &Call) -> Result<()> {
    // SAFETY:
    // - All tensors here are vectors and arrays of the functions that call this, and apart from each other.
    unsafe { tensor_comm::run(comm, call) }
}

/// `1 + 2 + ... + n`.
fn triangle(n: i32) -> f32 {
    (n * (n + 1) / 2) as f32
}

/// Exact for small integers.
fn bfloat16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

fn strided(mpi: &'static Mpi, world: &SimpleCommunicator) -> Result<()> {
    let (rank, size, comm) = (world.rank(), world.size(), comm(mpi, world)?);
    let mut send = vec![(rank + 1) as f32; 21];
    let mut recv = vec![-1f32; 33];
    let (from, to) = (every(&mut send, 2), every(&mut recv, 3));
    run(
        &comm,
        &call(CallKind::Allreduce, Arg::Part(from), Arg::Part(to)),
    )?;
    for (i, x) in recv.iter().enumerate() {
        assert_eq!(
            *x,
            if i % 3 == 0 { triangle(size) } else { -1.0 },
            "element {i}"
        );
    }
    let mut half = vec![bfloat16((rank + 1) as f32); 7];
    let whole = every(&mut half, 1);
    run(
        &comm,
        &call(CallKind::Allreduce, Arg::InPlace, Arg::Part(whole)),
    )?;
    assert!(half.iter().all(|&bits| bits == bfloat16(triangle(size))));
    Ok(())
}

fn messages(mpi: &'static Mpi, world: &SimpleCommunicator) -> Result<()> {
    let (rank, size, comm) = (world.rank(), world.size(), comm(mpi, world)?);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut send: Vec<f32> = (0..10).map(|i| (10 * rank + i) as f32).collect();
    let mut recv = vec![-1f32; 20];
    let (from, to) = (every(&mut send, 1), every(&mut recv, 2));
    let ignored = StatusPtr::ignore();
    // SAFETY:
    // - The vectors live on, apart from each other.
    unsafe { tensor_comm::sendrecv(&comm, &from, right, 3, &to, left, 3, ignored) }?;
    assert!(
        (0..10).all(|i| recv[2 * i] == (10 * left) as f32 + i as f32 && recv[2 * i + 1] == -1.0)
    );
    if rank == 0 {
        // SAFETY:
        // - As above.
        unsafe { tensor_comm::send(&comm, SendMode::Synchronous, &from, 1, 4) }?;
    } else if rank == 1 {
        // SAFETY:
        // - As above.
        unsafe { tensor_comm::recv(&comm, &to, 0, 4, StatusPtr::ignore()) }?;
        assert!((0..10).all(|i| recv[2 * i] == i as f32));
    }
    Ok(())
}

fn non_blocking(mpi: &'static Mpi, world: &SimpleCommunicator) -> Result<()> {
    let (rank, size, comm) = (world.rank(), world.size(), comm(mpi, world)?);
    let mut data: Vec<Vec<u16>> = (0..20)
        .map(|i| vec![bfloat16((rank + i) as f32); 9])
        .collect();
    let handles: Vec<_> = data
        .iter_mut()
        .map(|x| {
            let part = every(x, 2);
            let reduce = call(CallKind::Allreduce, Arg::InPlace, Arg::Part(part));
            // SAFETY:
            // - The vectors live until all handles have been waited for.
            let handle = unsafe { tensor_comm::begin(&comm, &reduce, Box::new(())) }?;
            tensor_comm::engine::carry(&handle)?;
            Ok(handle)
        })
        .collect::<Result<_>>()?;
    handles.iter().rev().try_for_each(|handle| handle.wait())?;
    for (i, x) in data.iter().enumerate() {
        let sum = triangle(size - 1) + (size * i as i32) as f32;
        assert_eq!(
            (x[0], x[2], x[1]),
            (
                bfloat16(sum),
                bfloat16(sum),
                bfloat16((rank + i as i32) as f32)
            )
        );
    }
    Ok(())
}

/// The numbers of a few communicators that are there at once.
fn numbers(world: &SimpleCommunicator) -> impl Iterator<Item = i32> {
    let held: Vec<_> = (0..8).map(|_| world.duplicate()).collect();
    let number = |comm: &SimpleCommunicator| {
        // SAFETY:
        // - The communicator is there, and the question changes nothing.
        unsafe { mpi::ffi::MPI_Comm_c2f(comm.as_raw()) }
    };
    held.iter().map(number).collect::<Vec<_>>().into_iter()
}

/// rsmpi frees what it drops, and our private duplicate with it. MPICH has about 2,000 contexts, and says when they are
/// used up; Open MPI takes long for each communicator and has no such bound, but gives out the lowest numbers that are free.
fn made_and_dropped(mpi: &'static Mpi, world: &SimpleCommunicator) -> Result<()> {
    let turns = match mpi.family() {
        Family::OpenMpi => 200,
        _ => 2200,
    };
    let before = numbers(world).max();
    for turn in 0..turns {
        let made = match turn % 2 {
            0 => world.duplicate(),
            _ => world
                .split_by_color(Color::with_value(0))
                .expect("every rank has a colour"),
        };
        let mut one = [1f32];
        let part = every(&mut one, 1);
        run(
            &comm(mpi, &made)?,
            &call(CallKind::Allreduce, Arg::InPlace, Arg::Part(part)),
        )?;
        assert_eq!(one[0], world.size() as f32);
    }
    if mpi.family() == Family::OpenMpi {
        let (before, after) = (before.unwrap_or(0), numbers(world).max().unwrap_or(0));
        assert!(after < before + turns / 2, "{before}, then {after}");
    }
    Ok(())
}

fn disagreement(mpi: &'static Mpi, world: &SimpleCommunicator) -> Result<()> {
    let made = world.duplicate();
    let comm = comm(mpi, &made)?;
    let mut data = vec![1f32; 4 + usize::from(world.rank() == 0)];
    let part = every(&mut data, 1);
    let outcome = run(
        &comm,
        &call(CallKind::Allreduce, Arg::InPlace, Arg::Part(part)),
    );
    match outcome {
        Err(Error::Mismatch(words)) => {
            assert!(words.contains("rank 0: Allreduce of 5 float32"), "{words}");
        }
        other => panic!("the ranks disagree, but: {other:?}"),
    }
    let mut data = vec![2f32; 3];
    let part = every(&mut data, 1);
    run(
        &comm,
        &call(CallKind::Allreduce, Arg::InPlace, Arg::Part(part)),
    )?;
    assert_eq!(data, vec![2.0 * world.size() as f32; 3]);
    Ok(())
}

type Check = fn(&'static Mpi, &SimpleCommunicator) -> Result<()>;

fn main() {
    let started = mpi::initialize_with_threading(Threading::Multiple);
    let (universe, _) = started.expect("MPI was not started before");
    let world = universe.world();
    let table = match rsmpi::load() {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{error}");
            world.abort(1)
        }
    };
    let checks: [(&str, Check); 5] = [
        ("strided tensors reduce, and gaps stay", strided),
        ("messages land in strided tensors", messages),
        ("non-blocking reductions end in any order", non_blocking),
        ("communicators leave nothing behind", made_and_dropped),
        (
            "a disagreement is named, and the communicator goes on",
            disagreement,
        ),
    ];
    for (name, check) in checks {
        if let Err(error) = check(table, &world) {
            eprintln!("[rank {}] {name}: {error}", world.rank());
            world.abort(3);
        }
        if world.rank() == 0 {
            println!("ok {name}");
        }
    }
    if world.rank() == 0 {
        println!(
            "test result: ok. {} passed; 0 failed; 0 ignored",
            checks.len()
        );
    }
}
