//! The methods that mpi4py carries out on memory that we lend.

use tensor_comm::{Flow, SendMode};

use super::{Body, Class, OP, PAIR, RANK, RECV, RECVBUF, ROOT, Row, SEND, SENDBUF, SENDRECV};
use super::{SOURCE, STATUS, may, need};
use crate::collective::Role;
use crate::lane::{OneSided, Short};
use crate::lend::{Form, Gives, Lend};
use crate::params::{Default, Param, Takes};
use crate::post::Post;
use crate::sides::{Peers, Sides};

const fn row(
    class: Class,
    name: &'static str,
    params: &'static [Param],
    form: Form,
    gives: Gives,
    doc: &'static str,
) -> Row {
    Row {
        name,
        class,
        params,
        doc,
        body: Body::Lend(Lend {
            form,
            gives,
            post: None,
            short: None,
        }),
    }
}

/// A row that has a short way.
const fn short(short: Short, row: Row) -> Row {
    match row.body {
        Body::Lend(lend) => Row {
            body: Body::Lend(Lend {
                short: Some(short),
                ..lend
            }),
            ..row
        },
        _ => row,
    }
}

/// A row of one non-blocking message, which may have the short way.
const fn posted(
    name: &'static str,
    params: &'static [Param],
    post: Post,
    doc: &'static str,
) -> Row {
    let lend = Lend {
        form: ELEMENTS,
        gives: Request,
        post: Some(post),
        short: None,
    };
    Row {
        name,
        class: Comm,
        params,
        doc,
        body: Body::Lend(lend),
    }
}

const IRECV: &[Param] = &[RECV[0], RECV[1], RECV[2]];
const ISENDRECV: &[Param] = &[
    SENDRECV[0],
    SENDRECV[1],
    SENDRECV[2],
    SENDRECV[3],
    SENDRECV[4],
    SENDRECV[5],
];
const REPLACE: &[Param] = &[
    need("buf", Takes::Through),
    need("dest", RANK),
    may("sendtag", Takes::Int(Default::Zero)),
    SOURCE,
    may("recvtag", Takes::Int(Default::AnyTag)),
    STATUS,
];
const IREPLACE: &[Param] = &[REPLACE[0], REPLACE[1], REPLACE[2], REPLACE[3], REPLACE[4]];
const MATCHED: &[Param] = &[RECV[0], STATUS];
const IMATCHED: &[Param] = &[RECV[0]];

const INFO: Param = may("info", Takes::Pass("..."));
const PSEND: &[Param] = &[
    need("buf", Takes::Sent),
    need("partitions", Takes::Number),
    need("dest", RANK),
    SEND[2],
    INFO,
];
const PRECV: &[Param] = &[
    need("buf", Takes::Received),
    need("partitions", Takes::Number),
    SOURCE,
    RECV[2],
    INFO,
];
const BCAST_INIT: &[Param] = &[need("buf", Takes::Either), ROOT, INFO];
const PAIR_INIT: &[Param] = &[SENDBUF, RECVBUF, INFO];
const ROOT_INIT: &[Param] = &[SENDBUF, RECVBUF, ROOT, INFO];
const OP_INIT: &[Param] = &[SENDBUF, RECVBUF, OP, INFO];
const OP_ROOT_INIT: &[Param] = &[SENDBUF, RECVBUF, OP, ROOT, INFO];
const COUNTS_INIT: &[Param] = &[
    SENDBUF,
    RECVBUF,
    may("recvcounts", Takes::Pass("None")),
    OP,
    INFO,
];

const TARGET_RANK: Param = need("target_rank", RANK);
const TARGET: Param = may("target", Takes::Pass("None"));
const ORIGIN: Param = need("origin", Takes::Sent);
const RESULT: Param = need("result", Takes::Received);
const DISP: Param = may("target_disp", Takes::Number);
const PUT: &[Param] = &[ORIGIN, TARGET_RANK, TARGET];
const GET: &[Param] = &[need("origin", Takes::Received), TARGET_RANK, TARGET];
const ACCUMULATE: &[Param] = &[ORIGIN, TARGET_RANK, TARGET, OP];
const GET_ACCUMULATE: &[Param] = &[ORIGIN, RESULT, TARGET_RANK, TARGET, OP];
const FETCH: &[Param] = &[ORIGIN, RESULT, TARGET_RANK, DISP, OP];
const SWAP: &[Param] = &[
    ORIGIN,
    need("compare", Takes::Sent),
    RESULT,
    TARGET_RANK,
    DISP,
];

const OFFSET: Param = need("offset", Takes::Number);
const READ: &[Param] = &[need("buf", Takes::Received), STATUS];
const WRITE: &[Param] = &[need("buf", Takes::Sent), STATUS];
const READ_AT: &[Param] = &[OFFSET, READ[0], STATUS];
const WRITE_AT: &[Param] = &[OFFSET, WRITE[0], STATUS];
const IREAD: &[Param] = &[READ[0]];
const IWRITE: &[Param] = &[WRITE[0]];
const IREAD_AT: &[Param] = &[OFFSET, READ[0]];
const IWRITE_AT: &[Param] = &[OFFSET, WRITE[0]];

const POSITION: Param = need("position", Takes::Number);
const DATAREP: Param = need("datarep", Takes::Pass("None"));
const INBUF: Param = need("inbuf", Takes::Sent);
const OUTBUF: Param = need("outbuf", Takes::Received);
const COMM: Param = need("comm", Takes::Pass("None"));
const PACK: &[Param] = &[INBUF, OUTBUF, POSITION, COMM];
const UNPACK: &[Param] = &[INBUF, POSITION, OUTBUF, COMM];
const PACK_EXTERNAL: &[Param] = &[DATAREP, INBUF, OUTBUF, POSITION];
const UNPACK_EXTERNAL: &[Param] = &[DATAREP, INBUF, POSITION, OUTBUF];

use Class::{Comm, Datatype, File, Intracomm, Message, Topocomm, Win};
use Form::{Memory, Types};
use Gives::{End, Later, Persistent, Request, Result};
use Role::{Blocks, Vector, Whole};

const fn sides(send: Role, recv: Role, peers: Peers) -> Sides {
    Sides { send, recv, peers }
}
const fn ranks(send: Role, recv: Role) -> Form {
    Form::Dense(sides(send, recv, Peers::Ranks))
}
const fn near(send: Role, recv: Role) -> Form {
    Form::Elements(sides(send, recv, Peers::Neighbors))
}
const fn near_dense(send: Role, recv: Role) -> Form {
    Form::Dense(sides(send, recv, Peers::Neighbors))
}
const ELEMENTS: Form = Form::Elements(sides(Whole, Whole, Peers::Ranks));
const DENSE: Form = Form::Dense(sides(Whole, Whole, Peers::Ranks));
const PACKING: Form = Form::Packed(Flow::Out);
const UNPACKING: Form = Form::Packed(Flow::In);
const PARTITIONS: Form = Form::Dense(sides(Blocks, Blocks, Peers::Partitions));

/// Every one of them.
#[rustfmt::skip]
pub(super) const LENT: &[Row] = &[
    posted("Isend", SEND, Post::Send(SendMode::Standard), "Nonblocking send."),
    posted("Issend", SEND, Post::Send(SendMode::Synchronous), "Nonblocking send in synchronous mode."),
    posted("Ibsend", SEND, Post::Send(SendMode::Buffered), "Nonblocking send in buffered mode."),
    posted("Irsend", SEND, Post::Send(SendMode::Ready), "Nonblocking send in ready mode."),
    posted("Irecv", IRECV, Post::Recv, "Nonblocking receive."),
    short(Short::Pair, row(Comm, "Isendrecv", ISENDRECV, ELEMENTS, Request, "Nonblocking send and receive.")),
    row(Comm, "Isendrecv_replace", IREPLACE, ELEMENTS, Request, "Nonblocking send and receive in the same memory."),
    short(Short::Replace, row(Comm, "Sendrecv_replace", REPLACE, ELEMENTS, Result, "Send and receive in the same memory.")),
    short(Short::Matched, row(Message, "Recv", MATCHED, ELEMENTS, Result, "Blocking receive of matched message.")),
    row(Message, "Irecv", IMATCHED, ELEMENTS, Request, "Nonblocking receive of matched message."),
    row(Comm, "Send_init", SEND, DENSE, Persistent, "Create a persistent request for a standard send."),
    row(Comm, "Ssend_init", SEND, DENSE, Persistent, "Create a persistent request for a synchronous send."),
    row(Comm, "Bsend_init", SEND, DENSE, Persistent, "Create a persistent request for a buffered send."),
    row(Comm, "Rsend_init", SEND, DENSE, Persistent, "Create a persistent request for a ready send."),
    row(Comm, "Recv_init", IRECV, DENSE, Persistent, "Create a persistent request for a receive."),
    row(Comm, "Psend_init", PSEND, PARTITIONS, Persistent, "Create a request for a partitioned send."),
    row(Comm, "Precv_init", PRECV, PARTITIONS, Persistent, "Create a request for a partitioned receive."),
    row(Comm, "Bcast_init", BCAST_INIT, DENSE, Persistent, "Persistent broadcast."),
    row(Comm, "Gather_init", ROOT_INIT, ranks(Whole, Blocks), Persistent, "Persistent gather."),
    row(Comm, "Gatherv_init", ROOT_INIT, ranks(Whole, Vector), Persistent, "Persistent gather with a count per process."),
    row(Comm, "Scatter_init", ROOT_INIT, ranks(Blocks, Whole), Persistent, "Persistent scatter."),
    row(Comm, "Scatterv_init", ROOT_INIT, ranks(Vector, Whole), Persistent, "Persistent scatter with a count per process."),
    row(Comm, "Allgather_init", PAIR_INIT, ranks(Whole, Blocks), Persistent, "Persistent gather to all."),
    row(Comm, "Allgatherv_init", PAIR_INIT, ranks(Whole, Vector), Persistent, "Persistent gather to all with a count per process."),
    row(Comm, "Alltoall_init", PAIR_INIT, ranks(Blocks, Blocks), Persistent, "Persistent all to all."),
    row(Comm, "Alltoallv_init", PAIR_INIT, ranks(Vector, Vector), Persistent, "Persistent all to all with a count per process."),
    row(Comm, "Alltoallw_init", PAIR_INIT, Types, Persistent, "Persistent all to all with a count and a Datatype per process."),
    row(Comm, "Reduce_init", OP_ROOT_INIT, DENSE, Persistent, "Persistent reduction to the root."),
    row(Comm, "Allreduce_init", OP_INIT, DENSE, Persistent, "Persistent reduction to all."),
    row(Comm, "Reduce_scatter_block_init", OP_INIT, ranks(Blocks, Whole), Persistent, "Persistent reduction and scatter of equal blocks."),
    row(Comm, "Reduce_scatter_init", COUNTS_INIT, DENSE, Persistent, "Persistent reduction and scatter."),
    row(Intracomm, "Scan_init", OP_INIT, DENSE, Persistent, "Persistent inclusive scan."),
    row(Intracomm, "Exscan_init", OP_INIT, DENSE, Persistent, "Persistent exclusive scan."),
    short(Short::Typed, row(Comm, "Alltoallw", PAIR, Types, Result, "All to all, with a count, a displacement and a Datatype per process.")),
    short(Short::StartTyped, row(Comm, "Ialltoallw", PAIR, Types, Request, "Nonblocking all to all, with a count, a displacement and a Datatype per process.")),
    row(Topocomm, "Neighbor_allgather", PAIR, near(Whole, Blocks), Result, "Gather from the neighbors."),
    row(Topocomm, "Neighbor_allgatherv", PAIR, near(Whole, Vector), Result, "Gather from the neighbors, with a count for each."),
    row(Topocomm, "Neighbor_alltoall", PAIR, near(Blocks, Blocks), Result, "A block to and from each neighbor."),
    row(Topocomm, "Neighbor_alltoallv", PAIR, near(Vector, Vector), Result, "A block to and from each neighbor, with a count for each."),
    row(Topocomm, "Neighbor_alltoallw", PAIR, Types, Result, "A block to and from each neighbor, with a count and a Datatype for each."),
    row(Topocomm, "Ineighbor_allgather", PAIR, near(Whole, Blocks), Request, "Nonblocking gather from the neighbors."),
    row(Topocomm, "Ineighbor_allgatherv", PAIR, near(Whole, Vector), Request, "Nonblocking gather from the neighbors, with a count for each."),
    row(Topocomm, "Ineighbor_alltoall", PAIR, near(Blocks, Blocks), Request, "Nonblocking block to and from each neighbor."),
    row(Topocomm, "Ineighbor_alltoallv", PAIR, near(Vector, Vector), Request, "Nonblocking block to and from each neighbor, with a count for each."),
    row(Topocomm, "Ineighbor_alltoallw", PAIR, Types, Request, "Nonblocking block to and from each neighbor, with a count and a Datatype for each."),
    row(Topocomm, "Neighbor_allgather_init", PAIR_INIT, near_dense(Whole, Blocks), Persistent, "Persistent gather from the neighbors."),
    row(Topocomm, "Neighbor_allgatherv_init", PAIR_INIT, near_dense(Whole, Vector), Persistent, "Persistent gather from the neighbors, with a count for each."),
    row(Topocomm, "Neighbor_alltoall_init", PAIR_INIT, near_dense(Blocks, Blocks), Persistent, "Persistent block to and from each neighbor."),
    row(Topocomm, "Neighbor_alltoallv_init", PAIR_INIT, near_dense(Vector, Vector), Persistent, "Persistent block to and from each neighbor, with a count for each."),
    row(Topocomm, "Neighbor_alltoallw_init", PAIR_INIT, Types, Persistent, "Persistent block to and from each neighbor, with a count and a Datatype for each."),
    short(Short::OneSided(OneSided::Put), row(Win, "Put", PUT, Memory, Later, "Put data into a memory window on a remote process.")),
    short(Short::OneSided(OneSided::Get), row(Win, "Get", GET, Memory, Later, "Get data from a memory window on a remote process.")),
    short(Short::OneSided(OneSided::Accumulate), row(Win, "Accumulate", ACCUMULATE, Memory, Later, "Combine data into a memory window on a remote process.")),
    row(Win, "Get_accumulate", GET_ACCUMULATE, Memory, Later, "Fetch data from a remote window and combine data into it."),
    row(Win, "Fetch_and_op", FETCH, Memory, Later, "Fetch one element from a remote window and combine another into it."),
    row(Win, "Compare_and_swap", SWAP, Memory, Later, "Compare one element in a remote window and swap it."),
    row(Win, "Rput", PUT, Memory, Request, "Put, with a request."),
    row(Win, "Rget", GET, Memory, Request, "Get, with a request."),
    row(Win, "Raccumulate", ACCUMULATE, Memory, Request, "Accumulate, with a request."),
    row(Win, "Rget_accumulate", GET_ACCUMULATE, Memory, Request, "Get_accumulate, with a request."),
    row(File, "Read", READ, Memory, Result, "Read using individual file pointer."),
    row(File, "Write", WRITE, Memory, Result, "Write using individual file pointer."),
    row(File, "Read_all", READ, Memory, Result, "Collective read using individual file pointer."),
    row(File, "Write_all", WRITE, Memory, Result, "Collective write using individual file pointer."),
    row(File, "Read_at", READ_AT, Memory, Result, "Read using explicit offset."),
    row(File, "Write_at", WRITE_AT, Memory, Result, "Write using explicit offset."),
    row(File, "Read_at_all", READ_AT, Memory, Result, "Collective read using explicit offset."),
    row(File, "Write_at_all", WRITE_AT, Memory, Result, "Collective write using explicit offset."),
    row(File, "Read_shared", READ, Memory, Result, "Read using shared file pointer."),
    row(File, "Write_shared", WRITE, Memory, Result, "Write using shared file pointer."),
    row(File, "Read_ordered", READ, Memory, Result, "Collective read using shared file pointer."),
    row(File, "Write_ordered", WRITE, Memory, Result, "Collective write using shared file pointer."),
    row(File, "Iread", IREAD, Memory, Request, "Nonblocking read using individual file pointer."),
    row(File, "Iwrite", IWRITE, Memory, Request, "Nonblocking write using individual file pointer."),
    row(File, "Iread_all", IREAD, Memory, Request, "Nonblocking collective read using individual file pointer."),
    row(File, "Iwrite_all", IWRITE, Memory, Request, "Nonblocking collective write using individual file pointer."),
    row(File, "Iread_at", IREAD_AT, Memory, Request, "Nonblocking read using explicit offset."),
    row(File, "Iwrite_at", IWRITE_AT, Memory, Request, "Nonblocking write using explicit offset."),
    row(File, "Iread_at_all", IREAD_AT, Memory, Request, "Nonblocking collective read using explicit offset."),
    row(File, "Iwrite_at_all", IWRITE_AT, Memory, Request, "Nonblocking collective write using explicit offset."),
    row(File, "Iread_shared", IREAD, Memory, Request, "Nonblocking read using shared file pointer."),
    row(File, "Iwrite_shared", IWRITE, Memory, Request, "Nonblocking write using shared file pointer."),
    row(File, "Read_all_begin", IREAD, Memory, Later, "Start a split collective read using individual file pointer."),
    row(File, "Write_all_begin", IWRITE, Memory, Later, "Start a split collective write using individual file pointer."),
    row(File, "Read_at_all_begin", IREAD_AT, Memory, Later, "Start a split collective read using explicit offset."),
    row(File, "Write_at_all_begin", IWRITE_AT, Memory, Later, "Start a split collective write using explicit offset."),
    row(File, "Read_ordered_begin", IREAD, Memory, Later, "Start a split collective read using shared file pointer."),
    row(File, "Write_ordered_begin", IWRITE, Memory, Later, "Start a split collective write using shared file pointer."),
    row(File, "Read_all_end", READ, Memory, End, "Complete a split collective read using individual file pointer."),
    row(File, "Write_all_end", WRITE, Memory, End, "Complete a split collective write using individual file pointer."),
    row(File, "Read_at_all_end", READ, Memory, End, "Complete a split collective read using explicit offset."),
    row(File, "Write_at_all_end", WRITE, Memory, End, "Complete a split collective write using explicit offset."),
    row(File, "Read_ordered_end", READ, Memory, End, "Complete a split collective read using shared file pointer."),
    row(File, "Write_ordered_end", WRITE, Memory, End, "Complete a split collective write using shared file pointer."),
    short(Short::Pack(Flow::Out), row(Datatype, "Pack", PACK, PACKING, Result, "Pack into contiguous memory according to datatype.")),
    short(Short::Pack(Flow::In), row(Datatype, "Unpack", UNPACK, UNPACKING, Result, "Unpack from contiguous memory according to datatype.")),
    row(Datatype, "Pack_external", PACK_EXTERNAL, PACKING, Result, "Pack into contiguous memory according to datatype, in the portable representation."),
    row(Datatype, "Unpack_external", UNPACK_EXTERNAL, UNPACKING, Result, "Unpack from contiguous memory according to datatype, in the portable representation."),
];
