//! The methods that mpi4py carries out on memory that we lend.

use super::{Body, Class, RANK, RECV, Row, SEND, SENDRECV, SOURCE, STATUS, may, need};
use crate::lend::{Form, Gives, Lend};
use crate::params::{Default, Param, Takes};
use crate::post::Post;
use tensor_comm::SendMode;

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
        }),
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

use Class::{Comm, Message};
use Gives::{Request, Result};

const ELEMENTS: Form = Form::Message;

/// Every one of them.
#[rustfmt::skip]
pub(super) const LENT: &[Row] = &[
    posted("Isend", SEND, Post::Send(SendMode::Standard), "Nonblocking send."),
    posted("Issend", SEND, Post::Send(SendMode::Synchronous), "Nonblocking send in synchronous mode."),
    posted("Ibsend", SEND, Post::Send(SendMode::Buffered), "Nonblocking send in buffered mode."),
    posted("Irsend", SEND, Post::Send(SendMode::Ready), "Nonblocking send in ready mode."),
    posted("Irecv", IRECV, Post::Recv, "Nonblocking receive."),
    row(Comm, "Isendrecv", ISENDRECV, ELEMENTS, Request, "Nonblocking send and receive."),
    row(Comm, "Isendrecv_replace", IREPLACE, ELEMENTS, Request, "Nonblocking send and receive in the same memory."),
    row(Comm, "Sendrecv_replace", REPLACE, ELEMENTS, Result, "Send and receive in the same memory."),
    row(Message, "Recv", MATCHED, ELEMENTS, Result, "Blocking receive of matched message."),
    row(Message, "Irecv", IMATCHED, ELEMENTS, Request, "Nonblocking receive of matched message."),
];
