//! Starts MPI with rsmpi and checks that its communicators go into mpi-runtime's table and out of it:
//! the same ranks, the same messages, nothing freed twice, and errors that rsmpi itself would drop.
//!
//!     mpiexec -n 2 rsmpi-check

use mpi::environment::Threading;
use mpi::topology::{Color, Communicator, SimpleCommunicator};
use mpi::traits::{AsCommunicator, CommunicatorCollectives, Destination, Source};
use mpi_runtime::{
    Basic, BuiltinOp, Comm, Comparison, Datatype, Error, Mpi, StatusBuf, StatusPtr, ThreadLevel,
    rsmpi,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Context<'a> {
    mpi: &'static Mpi,
    world: &'a SimpleCommunicator,
    rank: i32,
    size: i32,
}

impl Context<'_> {
    fn int(&self) -> Datatype {
        self.mpi
            .datatype(Basic::Int32)
            .expect("every MPI has MPI_INT32_T")
    }

    /// The sum of `rank + 1` over a communicator, through the table.
    fn sum(&self, comm: Comm) -> Result<i32, Error> {
        let mine = self.mpi.comm_rank(comm)? + 1;
        let mut sum = 0;
        let op = self.mpi.op(BuiltinOp::Sum);
        // SAFETY:
        // - Both buffers hold one int.
        unsafe {
            self.mpi.allreduce(
                (&raw const mine).cast(),
                (&raw mut sum).cast(),
                1,
                self.int(),
                op,
                comm,
            )?;
        }
        Ok(sum)
    }
}

fn triangle(n: i32) -> i32 {
    n * (n + 1) / 2
}

fn main() {
    let (universe, threading) =
        mpi::initialize_with_threading(Threading::Multiple).expect("MPI was not started before");
    let world = universe.world();
    let mpi = match rsmpi::load() {
        Ok(mpi) => mpi,
        Err(error) => {
            eprintln!("{error}");
            world.abort(1)
        }
    };
    let context = Context {
        mpi,
        world: &world,
        rank: world.rank(),
        size: world.size(),
    };
    if context.size < 2 {
        eprintln!(
            "rsmpi-check needs two ranks or more: start it with the mpiexec of {}",
            mpi.library_path()
        );
        world.abort(2);
    }
    if context.rank == 0 {
        println!(
            "{} by {}, {} ABI",
            mpi.library_path(),
            mpi.how_found(),
            mpi.family()
        );
    }
    type Check = fn(&Context);
    let checks: [(&str, Check); 6] = [
        ("the world goes in", world_in),
        ("a split of rsmpi's goes in", split_in),
        (
            "a duplicate of the table's comes out, and is not freed",
            duplicate_out,
        ),
        ("predefined and null communicators", predefined),
        ("intercommunicators come out", inter_out),
        ("errors come back", errors),
    ];
    assert_eq!(
        mpi.query_thread(),
        Ok(level(threading)),
        "both ask the same library"
    );
    for (passed, (name, check)) in checks.into_iter().enumerate() {
        if catch_unwind(AssertUnwindSafe(|| check(&context))).is_err() {
            println!("test {name} ... FAILED on rank {}", context.rank);
            println!("test result: FAILED. {passed} passed; 1 failed; 0 ignored");
            world.abort(1);
        }
        world.barrier();
        if context.rank == 0 {
            println!("test {name} ... ok");
        }
    }
    let rank = context.rank;
    drop(universe);
    assert_eq!(mpi.finalized(), Ok(true), "rsmpi's end is the table's end");
    if rank == 0 {
        println!(
            "test result: ok. {} passed; 0 failed; 0 ignored",
            checks.len()
        );
    }
}

fn level(threading: Threading) -> ThreadLevel {
    match threading {
        Threading::Single => ThreadLevel::Single,
        Threading::Funneled => ThreadLevel::Funneled,
        Threading::Serialized => ThreadLevel::Serialized,
        Threading::Multiple => ThreadLevel::Multiple,
    }
}

fn world_in(c: &Context) {
    // SAFETY:
    // - The world lives as long as MPI.
    let comm = unsafe { rsmpi::comm(c.world) };
    assert_eq!(comm, c.mpi.comm_world());
    assert_eq!(
        (c.mpi.comm_rank(comm), c.mpi.comm_size(comm)),
        (Ok(c.rank), Ok(c.size))
    );
    assert_eq!(c.sum(comm), Ok(triangle(c.size)));
    // The second opinion: rsmpi's own allreduce.
    let mut second = 0;
    c.world.all_reduce_into(
        &(c.rank + 1),
        &mut second,
        mpi::collective::SystemOperation::sum(),
    );
    assert_eq!(c.sum(comm), Ok(second));
    assert!(std::ptr::eq(rsmpi::load().expect("again"), c.mpi));
}

fn split_in(c: &Context) {
    // Everyone but rank 0, in reverse order.
    let color = Color::with_value(i32::from(c.rank == 0));
    let split = c
        .world
        .split_by_color_with_key(color, -c.rank)
        .expect("every rank has a color");
    // SAFETY:
    // - The result is not used after `split` is dropped.
    let comm = unsafe { rsmpi::comm(split.as_communicator()) };
    assert_eq!(c.mpi.comm_rank(comm), Ok(split.rank()));
    assert_eq!(c.mpi.comm_size(comm), Ok(split.size()));
    assert_eq!(c.sum(comm), Ok(triangle(split.size())));
    assert_eq!(
        split.rank(),
        if c.rank == 0 { 0 } else { c.size - 1 - c.rank }
    );
}

fn duplicate_out(c: &Context) {
    let mut dup = c.mpi.comm_dup(c.mpi.comm_world()).expect("dup");
    for round in 0..2 {
        // SAFETY:
        // - The duplicate is freed after this borrow ends.
        let borrowed = unsafe { rsmpi::simple(c.mpi, dup) }.expect("an intracommunicator");
        assert_eq!((borrowed.rank(), borrowed.size()), (c.rank, c.size));
        // A message from rsmpi to the table: rank 0 to the last one.
        let last = c.size - 1;
        if c.rank == 0 {
            borrowed
                .process_at_rank(last)
                .send_with_tag(&[7i32, 8 + round], 5);
        } else if c.rank == last {
            let mut received = [0i32; 3];
            let mut status = StatusBuf::new();
            // SAFETY:
            // - The buffer holds three ints; the status is our own.
            unsafe {
                c.mpi
                    .recv(
                        received.as_mut_ptr().cast(),
                        3,
                        c.int(),
                        0,
                        5,
                        dup,
                        status.as_ptr(),
                    )
                    .expect("recv");
                assert_eq!(c.mpi.get_count(status.as_ptr(), c.int()), Ok(Some(2)));
            }
            assert_eq!(received, [7, 8 + round, 0]);
        }
        // And one the other way, from the table to rsmpi.
        if c.rank == last {
            let value = [1.25f64 * f64::from(round + 1)];
            let double = c
                .mpi
                .datatype(Basic::Double)
                .expect("every MPI has MPI_DOUBLE");
            // SAFETY:
            // - The buffer holds one double.
            unsafe {
                c.mpi
                    .send(value.as_ptr().cast(), 1, double, 0, 6, dup)
                    .expect("send")
            };
        } else if c.rank == 0 {
            let (value, status) = borrowed.process_at_rank(last).receive_with_tag::<f64>(6);
            assert_eq!(
                (value, status.source_rank()),
                (1.25 * f64::from(round + 1), last)
            );
        }
    }
    // Two borrows have ended, and the communicator is as alive as before.
    assert_eq!(
        c.mpi.comm_compare(dup, c.mpi.comm_world()),
        Ok(Comparison::Congruent)
    );
    assert_eq!(c.sum(dup), Ok(triangle(c.size)));
    // SAFETY:
    // - It is not used again.
    unsafe { c.mpi.comm_free(&mut dup).expect("free") };
}

fn predefined(c: &Context) {
    // SAFETY:
    // - These handles live as long as MPI, and the null handle becomes nothing.
    unsafe {
        let world = rsmpi::simple(c.mpi, c.mpi.comm_world()).expect("the world");
        assert_eq!((world.rank(), world.size()), (c.rank, c.size));
        let alone = rsmpi::simple(c.mpi, c.mpi.comm_self()).expect("self");
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        assert!(rsmpi::simple(c.mpi, c.mpi.comm_null()).is_none());
        assert!(rsmpi::inter(c.mpi, c.mpi.comm_null()).is_none());
        assert!(rsmpi::inter(c.mpi, c.mpi.comm_world()).is_none());
    }
}

fn inter_out(c: &Context) {
    let mpi = c.mpi;
    let side = i32::from(c.rank != 0);
    let mut local = mpi
        .comm_split(mpi.comm_world(), side, c.rank)
        .expect("split");
    let mut inter = mpi
        .intercomm_create(local, 0, mpi.comm_world(), 1 - side, 3)
        .expect("intercomm_create");
    // SAFETY:
    // - Both communicators are freed after the borrow ends.
    unsafe {
        assert!(
            rsmpi::simple(mpi, inter).is_none(),
            "an intercommunicator is not a simple one"
        );
        {
            let borrowed = rsmpi::inter(mpi, inter).expect("an intercommunicator");
            let (here, there) = if side == 0 {
                (1, c.size - 1)
            } else {
                (c.size - 1, 1)
            };
            assert_eq!((borrowed.size(), borrowed.remote_size()), (here, there));
        }
        assert_eq!(
            mpi.comm_remote_size(inter),
            Ok(if side == 0 { c.size - 1 } else { 1 })
        );
        mpi.comm_free(&mut inter).expect("free");
        mpi.comm_free(&mut local).expect("free");
    }
}

fn errors(c: &Context) {
    let dup = c.world.duplicate();
    // SAFETY:
    // - The result is not used after `dup` is dropped.
    let comm = unsafe { rsmpi::comm(&dup) };
    c.mpi
        .comm_set_errhandler(comm, c.mpi.errors_return())
        .expect("set_errhandler");
    // SAFETY:
    // - The rank is refused before the buffer is looked at.
    let error = unsafe {
        c.mpi
            .send([0i32].as_ptr().cast(), 1, c.int(), c.size + 7, 0, comm)
    };
    let Err(Error::Mpi(error)) = error else {
        panic!("an MPI error was expected, this is {error:?}")
    };
    assert_eq!(error.class, c.mpi.constants().err_rank);
    assert!(!error.text().is_empty());

    // A message that is too long for the receive.
    let (from, to) = (0, c.size - 1);
    if c.rank == from {
        // Small enough to go out at once: the sender does not wait for a receive that fails.
        dup.process_at_rank(to).send_with_tag(&[1i32; 4], 9);
    } else if c.rank == to {
        let mut short = [0i32; 2];
        // SAFETY:
        // - The buffer holds two ints.
        let result = unsafe {
            c.mpi.recv(
                short.as_mut_ptr().cast(),
                2,
                c.int(),
                from,
                9,
                comm,
                StatusPtr::ignore(),
            )
        };
        let Err(Error::Mpi(error)) = result else {
            panic!("truncation was expected, this is {result:?}")
        };
        assert_eq!(error.class, c.mpi.constants().err_truncate);
    }
}
