//! Every large-count function, without the memory: elements of no size, and in `far` real data where a
//! displacement alone is large.
//!
//! Some run on MPI_COMM_SELF: with elements of no size Intel MPI 2021.18's Ibcast_c fails on several ranks
//! ("Invalid communicator"), and MPICH 5.0.2's Reduce_scatter_c ("Invalid count"), which does
//! carry real data of such a length.

use crate::far;
use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Comm, Datatype, Error, Mpi, Op, Request, StatusBuf, UserOp};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

pub fn all(suite: &mut Suite) {
    type Check = fn(&Context);
    let checks: [(&str, Check); 5] = [
        ("large counts: messages", messages),
        ("large counts: collectives", collectives),
        ("large counts: reductions", reductions),
        ("large counts: displacements", far::displacements),
        ("large counts: datatypes", datatypes),
    ];
    for (name, check) in checks {
        if suite.has_large_counts() {
            suite.check(name, check);
        } else {
            suite.ignore(name, "this MPI has no large counts");
        }
    }
}

/// More than a C int holds.
pub const MANY: i64 = (1 << 31) + 5;

/// A datatype of no size: MANY of them are no bytes.
struct Nothing(Context, Datatype);

impl Nothing {
    fn new(c: &Context) -> Nothing {
        let datatype = c.mpi.type_contiguous(0, c.int()).expect("contiguous");
        c.mpi.type_commit(datatype).expect("commit");
        Nothing(*c, datatype)
    }
}

impl Drop for Nothing {
    fn drop(&mut self) {
        // SAFETY:
        // - The datatype is not used after this value.
        unsafe { self.0.mpi.type_free(&mut self.1).expect("free") };
    }
}

fn messages(c: &Context) {
    type Send = unsafe fn(&Mpi, *const u8, i64, Datatype, i32, i32, Comm) -> Result<(), Error>;
    type Isend =
        unsafe fn(&Mpi, *const u8, i64, Datatype, i32, i32, Comm) -> Result<Request, Error>;
    let mpi = c.mpi;
    let nothing = Nothing::new(c);
    let datatype = nothing.1;
    let (nowhere, mut status) = (mpi.constants().proc_null, StatusBuf::new());
    let sends: [Send; 4] = [Mpi::send, Mpi::ssend, Mpi::bsend, Mpi::rsend];
    let isends: [Isend; 4] = [Mpi::isend, Mpi::issend, Mpi::ibsend, Mpi::irsend];
    let mut buffer = [c.rank, 2, 3];
    let room = vec![0u8; 1 << 16];
    // SAFETY:
    // - Elements of no size touch no memory, and messages to and from no process touch none either; other buffers are as
    //   long as their count.
    // - The attached buffer outlives the detach; matched messages are received once.
    unsafe {
        mpi.buffer_attach(room.as_ptr().cast_mut(), room.len() as i64)
            .expect("attach");
        for (tag, send) in sends.into_iter().enumerate() {
            let tag = tag as i32;
            let mut receive = mpi
                .irecv(
                    output(&mut buffer),
                    MANY,
                    datatype,
                    c.previous(),
                    tag,
                    c.comm,
                )
                .expect("irecv");
            c.barrier();
            send(mpi, input(&[0]), MANY, datatype, c.next(), tag, c.comm).expect("send");
            mpi.wait(&mut receive, status.as_ptr()).expect("wait");
            assert_eq!(
                (
                    mpi.status_source(status.as_ptr()),
                    mpi.status_tag(status.as_ptr())
                ),
                (c.previous(), tag)
            );
        }
        for (tag, isend) in isends.into_iter().enumerate() {
            let tag = 10 + tag as i32;
            let receive = mpi
                .irecv(
                    output(&mut buffer),
                    MANY,
                    datatype,
                    c.previous(),
                    tag,
                    c.comm,
                )
                .expect("irecv");
            c.barrier();
            let send =
                isend(mpi, input(&[0]), MANY, datatype, c.next(), tag, c.comm).expect("isend");
            mpi.waitall(&mut [receive, send], IGNORE).expect("waitall");
        }
        mpi.buffer_detach().expect("detach");

        // One side of each is large, and the other carries data.
        let mut received = [-1];
        mpi.sendrecv(
            input(&[0]),
            MANY,
            c.int(),
            nowhere,
            0,
            output(&mut received),
            1,
            c.int(),
            nowhere,
            0,
            c.comm,
            status.as_ptr(),
        )
        .expect("sendrecv");
        assert_eq!(mpi.status_source(status.as_ptr()), nowhere);
        let mut send = mpi
            .isend(input(&[c.rank]), 1, c.int(), c.next(), 20, c.comm)
            .expect("isend");
        mpi.sendrecv(
            input(&[0]),
            MANY,
            c.int(),
            nowhere,
            0,
            output(&mut received),
            1,
            c.int(),
            c.previous(),
            20,
            c.comm,
            status.as_ptr(),
        )
        .expect("sendrecv");
        mpi.wait(&mut send, IGNORE).expect("wait");
        assert_eq!(received, [c.previous()]);
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(1)));
        mpi.sendrecv_replace(
            output(&mut buffer),
            MANY,
            datatype,
            c.next(),
            21,
            c.previous(),
            21,
            c.comm,
            status.as_ptr(),
        )
        .expect("sendrecv_replace");
        assert_eq!(mpi.status_tag(status.as_ptr()), 21);

        let mut sends = [
            mpi.isend(input(&[0]), MANY, datatype, c.next(), 22, c.comm)
                .expect("isend"),
            mpi.isend(input(&[0]), MANY, datatype, c.next(), 23, c.comm)
                .expect("isend"),
        ];
        let mut message = mpi
            .mprobe(c.previous(), 22, c.comm, IGNORE)
            .expect("mprobe");
        mpi.mrecv(
            output(&mut buffer),
            MANY,
            datatype,
            &mut message,
            status.as_ptr(),
        )
        .expect("mrecv");
        assert_eq!(mpi.status_tag(status.as_ptr()), 22);
        let mut message = mpi
            .mprobe(c.previous(), 23, c.comm, IGNORE)
            .expect("mprobe");
        let mut receive = mpi
            .imrecv(output(&mut buffer), MANY, datatype, &mut message)
            .expect("imrecv");
        assert_eq!(message, mpi.message_null());
        mpi.wait(&mut receive, status.as_ptr()).expect("wait");
        assert_eq!(mpi.status_tag(status.as_ptr()), 23);
        mpi.waitall(&mut sends, IGNORE).expect("waitall");
    }
    assert_eq!(buffer, [c.rank, 2, 3], "no bytes have arrived");
}

fn collectives(c: &Context) {
    let mpi = c.mpi;
    let nothing = Nothing::new(c);
    let (none, comm) = (nothing.1, c.comm);
    let (from, mut to) = ([7], [8]);
    let (from, into) = (input(&from), output(&mut to));
    // SAFETY:
    // - Elements of no size touch no memory.
    unsafe {
        mpi.bcast(into, MANY, none, 0, comm).expect("bcast");
        mpi.gather(from, MANY, none, into, MANY, none, 0, comm)
            .expect("gather");
        mpi.scatter(from, MANY, none, into, MANY, none, 0, comm)
            .expect("scatter");
        mpi.allgather(from, MANY, none, into, MANY, none, comm)
            .expect("allgather");
        mpi.alltoall(from, MANY, none, into, MANY, none, comm)
            .expect("alltoall");
        let alone = mpi.comm_self();
        let mut requests = [
            mpi.ibcast(into, MANY, none, 0, alone).expect("ibcast"),
            mpi.igather(from, MANY, none, into, MANY, none, 0, alone)
                .expect("igather"),
            mpi.iscatter(from, MANY, none, into, MANY, none, 0, alone)
                .expect("iscatter"),
            mpi.iallgather(from, MANY, none, into, MANY, none, alone)
                .expect("iallgather"),
            mpi.ialltoall(from, MANY, none, into, MANY, none, alone)
                .expect("ialltoall"),
        ];
        mpi.waitall(&mut requests, IGNORE).expect("waitall");
    }
    assert_eq!(to, [8]);
}

static LONGEST: AtomicI64 = AtomicI64::new(0);

/// Reduces elements of no size, and remembers the longest vector it was given.
struct Measure;

impl UserOp for Measure {
    unsafe fn reduce(_: *const u8, _: *mut u8, len: i64, _: Datatype) {
        LONGEST.fetch_max(len, SeqCst);
    }
}

fn reductions(c: &Context) {
    let mpi = c.mpi;
    let nothing = Nothing::new(c);
    let (none, comm) = (nothing.1, c.comm);
    let mut op: Op = mpi.op_create::<Measure>(true).expect("op_create");
    let (from, mut to) = ([7], [8]);
    let (from, into) = (input(&from), output(&mut to));
    let counts = [MANY];
    // SAFETY:
    // - Elements of no size touch no memory; there is a count per rank, and `kept` outlives the waitall.
    // - The operation is not used after it is freed.
    unsafe {
        mpi.reduce_local(from, into, MANY, none, op)
            .expect("reduce_local");
        assert_eq!(LONGEST.load(SeqCst), MANY, "the length arrives whole");
        mpi.reduce(from, into, MANY, none, op, 0, comm)
            .expect("reduce");
        mpi.allreduce(from, into, MANY, none, op, comm)
            .expect("allreduce");
        mpi.scan(from, into, MANY, none, op, comm).expect("scan");
        mpi.exscan(from, into, MANY, none, op, comm)
            .expect("exscan");
        mpi.reduce_scatter_block(from, into, MANY, none, op, comm)
            .expect("reduce_scatter_block");
        let alone = mpi.comm_self();
        mpi.reduce_scatter(from, into, &counts, none, op, alone)
            .expect("reduce_scatter");
        let (scattered, kept) = mpi
            .ireduce_scatter(from, into, &counts, none, op, alone)
            .expect("ireduce_scatter");
        let mut requests = [
            scattered,
            mpi.ireduce(from, into, MANY, none, op, 0, alone)
                .expect("ireduce"),
            mpi.iallreduce(from, into, MANY, none, op, alone)
                .expect("iallreduce"),
            mpi.iscan(from, into, MANY, none, op, alone).expect("iscan"),
            mpi.iexscan(from, into, MANY, none, op, alone)
                .expect("iexscan"),
            mpi.ireduce_scatter_block(from, into, MANY, none, op, alone)
                .expect("ireduce_scatter_block"),
        ];
        mpi.waitall(&mut requests, IGNORE).expect("waitall");
        drop(kept);
        mpi.op_free(&mut op).expect("free");
    }
    assert_eq!(to, [8]);
}

fn datatypes(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let nothing = Nothing::new(c);
    let byte = c.datatype(mpi_runtime::Basic::Byte);
    let made = [
        (mpi.type_contiguous(MANY, byte), k.combiner_contiguous, MANY),
        (mpi.type_vector(MANY, 1, 1, byte), k.combiner_vector, MANY),
        (
            mpi.type_create_hvector(2, MANY, MANY, byte),
            k.combiner_hvector,
            2 * MANY,
        ),
        (
            mpi.type_create_hindexed(&[MANY, 3], &[8, 0], byte),
            k.combiner_hindexed,
            MANY + 3,
        ),
        (
            mpi.type_create_struct(&[3, MANY, MANY], &[0, 8, 0], &[c.int(), byte, nothing.1]),
            k.combiner_struct,
            MANY + 12,
        ),
    ];
    for (datatype, combiner, size) in made {
        let mut datatype = datatype.expect("constructor");
        assert_eq!(
            mpi.type_get_envelope(datatype).expect("envelope").combiner,
            combiner
        );
        assert_eq!(mpi.type_size(datatype), Ok(size), "combiner {combiner}");
        // SAFETY:
        // - The datatype is not used again.
        unsafe { mpi.type_free(&mut datatype).expect("free") };
    }
}
