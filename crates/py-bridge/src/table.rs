//! The native methods as data: mpi4py's names, parameters and defaults, and what each does. A new
//! method is a new row.

mod lent;

use tensor_comm::{CallKind, SendMode};

use crate::collective::{Collective, Role, Rooted};
use crate::lane::Flush;
use crate::lend::Lend;
use crate::params::{Default, Param, Takes};
use lent::LENT;

/// Which of mpi4py's classes a method belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Any communicator.
    Comm,
    /// Intracommunicators only.
    Intracomm,
    /// Communicators with a topology.
    Topocomm,
    /// A matched message.
    Message,
    /// A window.
    Win,
    /// A file.
    File,
    /// A Datatype.
    Datatype,
    /// An operation of reductions.
    Op,
}

impl Class {
    /// mpi4py's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Comm => "Comm",
            Class::Intracomm => "Intracomm",
            Class::Topocomm => "Topocomm",
            Class::Message => "Message",
            Class::Win => "Win",
            Class::File => "File",
            Class::Datatype => "Datatype",
            Class::Op => "Op",
        }
    }
}

/// What a method does with its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Sends one message.
    Send(SendMode),
    /// Receives one message.
    Recv,
    /// Does both at once.
    Sendrecv,
    /// Takes a message out of the queue.
    Mprobe,
    /// A collective operation.
    Collective(Collective),
    /// Starts a collective operation.
    Start(Collective),
    /// Ends one-sided operations.
    Flush(Flush),
    /// Combines tensors of this process.
    ReduceLocal,
    /// Lends its tensors to mpi4py's own method.
    Lend(Lend),
}

/// One native method.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// MPI's name, as mpi4py spells it.
    pub name: &'static str,
    /// Where it belongs.
    pub class: Class,
    /// Its parameters, in order.
    pub params: &'static [Param],
    /// One line for `help()`.
    pub doc: &'static str,
    /// What it does.
    pub body: Body,
}

const fn need(name: &'static str, takes: Takes) -> Param {
    Param {
        name,
        takes,
        required: true,
    }
}
const fn may(name: &'static str, takes: Takes) -> Param {
    Param {
        name,
        takes,
        required: false,
    }
}

const RANK: Takes = Takes::Int(Default::Required);
const SENDBUF: Param = need("sendbuf", Takes::Sent);
const RECVBUF: Param = need("recvbuf", Takes::Received);
const TAG: Param = may("tag", Takes::Int(Default::Zero));
const ROOT: Param = may("root", Takes::Int(Default::Zero));
const OP: Param = may("op", Takes::Op);
const SOURCE: Param = may("source", Takes::Int(Default::AnySource));
const STATUS: Param = may("status", Takes::Status);

const SEND: &[Param] = &[need("buf", Takes::Sent), need("dest", RANK), TAG];
const RECV: &[Param] = &[
    need("buf", Takes::Received),
    SOURCE,
    may("tag", Takes::Int(Default::AnyTag)),
    STATUS,
];
const SENDRECV: &[Param] = &[
    SENDBUF,
    need("dest", RANK),
    may("sendtag", Takes::Int(Default::Zero)),
    may("recvbuf", Takes::Received),
    SOURCE,
    may("recvtag", Takes::Int(Default::AnyTag)),
    STATUS,
];
const PROBE: &[Param] = &[RECV[1], RECV[2], STATUS];
const BCAST: &[Param] = &[need("buf", Takes::Either), ROOT];
const PAIR: &[Param] = &[SENDBUF, RECVBUF];
const PAIR_ROOT: &[Param] = &[SENDBUF, RECVBUF, ROOT];
const PAIR_OP: &[Param] = &[SENDBUF, RECVBUF, OP];
const PAIR_OP_ROOT: &[Param] = &[SENDBUF, RECVBUF, OP, ROOT];
const PAIR_COUNTS_OP: &[Param] = &[SENDBUF, RECVBUF, may("recvcounts", Takes::Counts), OP];

const fn row(name: &'static str, params: &'static [Param], doc: &'static str, body: Body) -> Row {
    Row {
        name,
        class: Class::Comm,
        params,
        doc,
        body,
    }
}

const fn all(kind: CallKind, send: Role, recv: Role) -> Body {
    Body::Collective(Collective {
        kind,
        send,
        recv,
        rooted: Rooted::No,
    })
}

const fn rooted(kind: CallKind, send: Role, recv: Role, rooted: Rooted) -> Body {
    Body::Collective(Collective {
        kind,
        send,
        recv,
        rooted,
    })
}

use CallKind as K;
use Role::{Absent, Blocks, Vector, Whole};
use Rooted::{Bcast, Recv, Send};

/// Point-to-point.
#[rustfmt::skip]
const MESSAGES: [Row; 7] = [
    row("Send", SEND, "Blocking send.", Body::Send(SendMode::Standard)),
    row("Ssend", SEND, "Blocking send in synchronous mode.", Body::Send(SendMode::Synchronous)),
    row("Bsend", SEND, "Blocking send in buffered mode.", Body::Send(SendMode::Buffered)),
    row("Rsend", SEND, "Blocking send in ready mode.", Body::Send(SendMode::Ready)),
    row("Recv", RECV, "Blocking receive.", Body::Recv),
    row("Sendrecv", SENDRECV, "Send and receive a message.", Body::Sendrecv),
    row("Mprobe", PROBE, "Blocking test for a matched message.", Body::Mprobe),
];

/// The collectives, each with the name of its non-blocking form.
#[rustfmt::skip]
const COLLECTIVES: [(&str, Row); 16] = [
    ("Ibcast", row("Bcast", BCAST, "Broadcast data from one process to all other processes.", rooted(K::Bcast, Whole, Whole, Bcast))),
    ("Igather", row("Gather", PAIR_ROOT, "Gather data to one process from all other processes.", rooted(K::Gather, Whole, Blocks, Recv))),
    ("Igatherv", row("Gatherv", PAIR_ROOT, "Gather to one process, with a count and a displacement per process.", rooted(K::Gatherv, Whole, Vector, Recv))),
    ("Iscatter", row("Scatter", PAIR_ROOT, "Scatter data from one process to all other processes.", rooted(K::Scatter, Blocks, Whole, Send))),
    ("Iscatterv", row("Scatterv", PAIR_ROOT, "Scatter from one process, with a count and a displacement per process.", rooted(K::Scatterv, Vector, Whole, Send))),
    ("Iallgather", row("Allgather", PAIR, "Gather data from all processes and give all of it to each.", all(K::Allgather, Whole, Blocks))),
    ("Iallgatherv", row("Allgatherv", PAIR, "Gather to all, with a count and a displacement per process.", all(K::Allgatherv, Whole, Vector))),
    ("Ialltoall", row("Alltoall", PAIR, "Send a block to each process and receive one from each.", all(K::Alltoall, Blocks, Blocks))),
    ("Ialltoallv", row("Alltoallv", PAIR, "All to all, with a count and a displacement per process.", all(K::Alltoallv, Vector, Vector))),
    ("Ireduce", row("Reduce", PAIR_OP_ROOT, "Reduce to the root.", rooted(K::Reduce, Whole, Whole, Recv))),
    ("Iallreduce", row("Allreduce", PAIR_OP, "Reduce to all.", all(K::Allreduce, Whole, Whole))),
    ("Ireduce_scatter_block", row("Reduce_scatter_block", PAIR_OP, "Reduce, then scatter blocks of equal size.", all(K::ReduceScatterBlock, Blocks, Whole))),
    ("Ireduce_scatter", row("Reduce_scatter", PAIR_COUNTS_OP, "Reduce, then scatter blocks of the given sizes.", all(K::ReduceScatter, Whole, Whole))),
    ("Ibarrier", row("Barrier", &[], "Barrier synchronization.", all(K::Barrier, Absent, Absent))),
    ("Iscan", Row { class: Class::Intracomm, ..row("Scan", PAIR_OP, "Inclusive scan.", all(K::Scan, Whole, Whole)) }),
    ("Iexscan", Row { class: Class::Intracomm, ..row("Exscan", PAIR_OP, "Exclusive scan.", all(K::Exscan, Whole, Whole)) }),
];

/// One collective under the lower-case name that it has besides: it moves no object.
const ALIASES: [Row; 1] = [row(
    "barrier",
    &[],
    "Barrier synchronization.",
    all(K::Barrier, Absent, Absent),
)];

const FLUSH: &[Param] = &[need("rank", RANK)];
const REDUCE_LOCAL: &[Param] = &[
    need("inbuf", Takes::Sent),
    need("inoutbuf", Takes::Received),
];

const fn of(class: Class, row: Row) -> Row {
    Row { class, ..row }
}

/// What concerns no other rank, or one that does nothing for it.
#[rustfmt::skip]
const ALONE: [Row; 5] = [
    of(Class::Win, row("Flush", FLUSH, "Complete all outstanding RMA operations at a target.", Body::Flush(Flush::Rank))),
    of(Class::Win, row("Flush_local", FLUSH, "Complete locally all outstanding RMA operations at a target.", Body::Flush(Flush::RankLocal))),
    of(Class::Win, row("Flush_all", &[], "Complete all outstanding RMA operations at all targets.", Body::Flush(Flush::All))),
    of(Class::Win, row("Flush_local_all", &[], "Complete locally all outstanding RMA operations at all targets.", Body::Flush(Flush::AllLocal))),
    of(Class::Op, row("Reduce_local", REDUCE_LOCAL, "Apply a reduction operation to local data, which may be tensors.", Body::ReduceLocal)),
];

/// Number of native methods.
pub const METHODS: usize =
    MESSAGES.len() + 2 * COLLECTIVES.len() + ALIASES.len() + ALONE.len() + LENT.len();

/// Every native method.
pub static ROWS: [Row; METHODS] = rows();

const fn rows() -> [Row; METHODS] {
    let mut rows = [MESSAGES[0]; METHODS];
    let mut i = 0;
    while i < MESSAGES.len() {
        rows[i] = MESSAGES[i];
        i += 1;
    }
    let mut c = 0;
    while c < COLLECTIVES.len() {
        let (name, blocking) = COLLECTIVES[c];
        rows[i] = blocking;
        if let Body::Collective(collective) = blocking.body {
            rows[i + 1] = Row {
                name,
                body: Body::Start(collective),
                ..blocking
            };
        }
        i += 2;
        c += 1;
    }
    let mut a = 0;
    while a < ALIASES.len() {
        rows[i] = ALIASES[a];
        i += 1;
        a += 1;
    }
    let mut n = 0;
    while n < ALONE.len() {
        rows[i] = ALONE[n];
        i += 1;
        n += 1;
    }
    let mut l = 0;
    while l < LENT.len() {
        rows[i] = LENT[l];
        i += 1;
        l += 1;
    }
    rows
}
