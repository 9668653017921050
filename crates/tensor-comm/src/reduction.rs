//! Collectives that combine elements.
//!
//! [`wire`] says in which form elements travel and who combines them; this file makes the MPI calls for
//! it. Every plan here is one MPI call of the same name, repeated over slices where the library's counts
//! are too small for the tensor.

mod carried;
mod counts;

use std::cell::Cell;

use crate::agreed::{Agreed, CommFacts};
use crate::algorithm::Algorithm;
use crate::arg::Arg;
use crate::call::{Call, CallKind, Op};
use crate::comm::{Comm, Role};
use crate::direct::{
    self, Direct, Elements, Fold, Geometry, Goal, Output, Prefix, Route, Shared, block_bytes,
};
use crate::error::{Error, Result, value_error};
use crate::ground::settings::Choice;
use crate::native::{Extent, Native, Port};
use crate::own_op;
use crate::plan::{Plan, Settle, Slicing};
use crate::scratch::Scratch;
use crate::side::{Ranges, Side, may_alias, same_elements};
use crate::wire::{Combine, Element, Wire, wire};
use crate::wiretype::{byte, wire_type};
use carried::Carried;
use counts::recvcounts;
pub(crate) use counts::{Counts, counts};

/// What this rank does in a reduction.
pub(crate) struct Significant {
    sends: bool,
    receives: bool,
    in_place: bool,
}

/// Makes a reduction ready.
pub(crate) fn plan(comm: Comm, call: &Call, mut facts: CommFacts) -> Result<Plan> {
    if call.kind == CallKind::Reduce && !(0..i64::from(facts.size)).contains(&i64::from(call.root))
    {
        // MPI says what is wrong with it.
        facts.choice = Choice::Mpi;
    }
    let role = if call.kind == CallKind::Reduce {
        comm.role(call.root)?
    } else {
        Role::Root
    };
    let significant = significant(call, role, comm.is_inter()?);
    if !significant.sends && !significant.receives && !significant.in_place {
        return Ok(idle(comm, call));
    }
    let asked = if call.kind == CallKind::ReduceScatter {
        Some(recvcounts(comm, call)?)
    } else {
        None
    };
    let counts = counts(call, &significant, facts.size as usize, asked)?;
    let rank = comm.rank()? as usize;
    check(call, &significant, &counts, rank)?;
    let wire = wire(&Agreed::of(call, counts.largest(), facts))?;

    let carried = match wire.algorithm {
        Algorithm::Direct => Carried::of(call, &significant),
        _ => Carried::default(),
    };
    // Nobody but the library touches the memory then.
    let direct = comm.gives_device_memory()
        && wire.algorithm == Algorithm::Library
        && matches!(wire.combine, Combine::Library(_))
        && !wire.mean
        && wire.slice.is_none();
    let send = match significant.sends {
        true if carried.send => {
            let ranges = Ranges::of(&call.send, "sendbuf")?;
            Some(Side::elsewhere(ranges, wire.element, false)?)
        }
        true => Some(sending(call, &significant, &wire, direct)?),
        false => None,
    };
    let recv = if significant.receives || significant.in_place {
        let ranges = Ranges::of(&call.recv, "recvbuf")?;
        let keep = significant.in_place;
        Some(match carried.recv {
            true => Side::elsewhere(ranges, wire.element, true)?,
            false => match wide_slice(&wire, call) {
                Some(most) => Side::receiving_in_slices(ranges, wire.element, keep, most)?,
                None => Side::receiving_from_mpi(ranges, wire.element, keep, direct)?,
            },
        })
    } else {
        None
    };
    // MPI leaves the result of rank 0 undefined (MPI 4.1 §6.11.2), so the tensor keeps what it has.
    let received = if call.kind == CallKind::Exscan && rank == 0 {
        0
    } else {
        counts.received(rank)
    };
    let ranks = facts.size as usize;
    let sides = (send.as_ref(), recv.as_ref());
    let (mut direct, mut shared) = (None, None);
    match wire.algorithm {
        Algorithm::Library => {}
        Algorithm::Direct | Algorithm::Rounds(_) => {
            let (extent, goal, fold, input, output) = own(call, &wire, &counts, sides, ranks)?;
            let item = send.as_ref().or(recv.as_ref()).map_or(1, Side::wire_bytes);
            let route = match wire.algorithm {
                Algorithm::Rounds(pattern) => Some(Route::new(comm, pattern, goal, &fold)?),
                _ => None,
            };
            let blocks = route.as_ref().map_or(ranks, |route| route.schedule.blocks);
            let made = Direct {
                mpi: comm.mpi(),
                rank,
                ranks,
                geometry: Geometry::new(extent, blocks, item),
                goal,
                fold,
                wire: wire_type(comm.mpi(), wire.element.dtype(), item)?,
                route,
                input,
                output,
                label: label(call.kind, call.root, &wire, counts.number()),
                scratch: Cell::default(),
                conveyor: Cell::default(),
            };
            let direct_call = carried.carry(made.with_room()?, call, significant.in_place)?;
            direct = Some(Box::new(direct_call));
        }
        Algorithm::Shared => {
            let (extent, goal, fold, input, output) = own(call, &wire, &counts, sides, ranks)?;
            let item = send.as_ref().or(recv.as_ref()).map_or(1, Side::wire_bytes);
            if let Output::Owned(_, true) = output {
                // Results are kept apart until all is given; as below.
                drop(Scratch::new(counts.received(rank) * item)?);
            }
            shared = Some(Box::new(Shared {
                rank,
                ranks,
                geometry: Geometry::within(extent, ranks, item, block_bytes(ranks)),
                goal,
                prefix: match call.kind {
                    CallKind::Scan => Some(Prefix::Inclusive),
                    CallKind::Exscan => Some(Prefix::Exclusive),
                    _ => None,
                },
                fold,
                item,
                input: Elements::Flat(input),
                output: output.into(),
                label: label(call.kind, call.root, &wire, counts.number()),
            }));
        }
    }
    if wire.open {
        // This rank will be awaited when it is known that the way is our own: what that needs must be had now, and
        // stays with the thread.
        drop(Scratch::new(direct::USUAL_ROOM)?);
    }
    // Our own algorithm divides where it rounds, before the result travels.
    let mean = wire.mean && wire.algorithm == Algorithm::Library;
    let bytes = send.as_ref().or(recv.as_ref()).map_or(1, Side::wire_bytes);
    let slicing = wire.slice.map(|slice| Slicing {
        slice,
        needed: wire.too_large,
        bytes,
        by_root: counts.by_root(),
        rank,
    });
    Ok(Plan {
        native: native(
            comm,
            call,
            &wire,
            &counts,
            (send.as_ref(), recv.as_ref(), significant.in_place),
        )?,
        settle: Settle {
            limit: received,
            mean: mean.then_some(u64::from(facts.size)),
        },
        direct,
        shared,
        spread: None,
        software: matches!(wire.combine, Combine::Own(_))
            || matches!(wire.element, Element::Widened { .. }),
        open: wire.open,
        send,
        recv,
        slicing,
        derived: [None, None],
    })
}

/// The send side; copied where it shares memory with the receive side.
fn sending(call: &Call, significant: &Significant, wire: &Wire, direct: bool) -> Result<Side> {
    let ranges = Ranges::of(&call.send, "sendbuf")?;
    let aliased = |recv| significant.receives && may_alias(ranges.view(), recv);
    let copy = call.recv.view().is_some_and(aliased);
    match wide_slice(wire, call).filter(|_| !copy) {
        Some(most) => Side::in_slices(ranges, wire.element, true, most),
        None => Side::sending_to_mpi(ranges, wire.element, copy, direct),
    }
}

/// How many elements are widened at a time, where they need not all be.
fn wide_slice(wire: &Wire, call: &Call) -> Option<usize> {
    let blocks = matches!(
        call.kind,
        CallKind::ReduceScatter | CallKind::ReduceScatterBlock
    );
    wire.slice
        .filter(|_| !blocks && matches!(wire.element, Element::Widened { .. }))
}

pub(crate) fn significant(call: &Call, role: Role, inter: bool) -> Significant {
    let (mut sends, mut receives) = (true, true);
    if call.kind == CallKind::Reduce {
        receives = role == Role::Root;
        sends = role == Role::Leaf || (role == Role::Root && !inter);
    }
    let same = match (&call.send, &call.recv) {
        (Arg::Part(send), Arg::Part(recv)) => sends && receives && same_elements(send, recv),
        _ => false,
    };
    let whole = !matches!(
        call.kind,
        CallKind::ReduceScatter | CallKind::ReduceScatterBlock
    );
    let in_place = receives && (matches!(call.send, Arg::InPlace) || (same && whole)) && !inter;
    Significant {
        sends: sends && !in_place,
        receives: receives && !in_place,
        in_place,
    }
}

/// In the root's group of an intercommunicator, but not the root: no buffer is significant.
fn idle(comm: Comm, call: &Call) -> Plan {
    let mpi = comm.mpi();
    let op = match call.op {
        Some(Op::Native(op)) => op,
        _ => mpi.op(mpi_runtime::BuiltinOp::Sum),
    };
    let datatype = mpi
        .datatype(mpi_runtime::Basic::Int)
        .unwrap_or_else(|| byte(mpi));
    let nothing = || Port {
        ptr: std::ptr::null_mut(),
        extent: Extent::One(0),
        datatype,
    };
    Plan {
        native: Native {
            mpi,
            kind: call.kind,
            send: nothing(),
            recv: nothing(),
            op,
            root: call.root,
        },
        direct: None,
        shared: None,
        spread: None,
        open: false,
        software: false,
        send: None,
        recv: None,
        settle: Settle::ALL,
        slicing: None,
        derived: [None, None],
    }
}

fn check(call: &Call, significant: &Significant, counts: &Counts, rank: usize) -> Result<()> {
    let name = call.kind.name();
    let part = |arg: &Arg| match arg {
        Arg::Part(part) => Some((part.count(), part.view().dtype())),
        _ => None,
    };
    let (send, recv) = (part(&call.send), part(&call.recv));
    if let (true, true, Some((_, a)), Some((_, b))) =
        (significant.sends, significant.receives, send, recv)
        && a != b
    {
        return Err(value_error!(
            "{name}: sendbuf holds {a} but recvbuf holds {b}; a reduction needs one dtype"
        ));
    }
    if let (true, Some((n, _))) = (significant.sends, send)
        && n != counts.contributed()
    {
        return Err(value_error!(
            "{name}: sendbuf has {n} elements, expected {}",
            counts.contributed()
        ));
    }
    let expected = if significant.in_place {
        counts.contributed()
    } else {
        counts.received(rank)
    };
    match recv {
        Some((n, _)) if (significant.receives || significant.in_place) && n != expected => Err(
            value_error!("{name}: recvbuf has {n} elements, expected {expected}"),
        ),
        _ => Ok(()),
    }
}

/// What both ways of our own need: which elements, who gets them, how they are combined, from where to
/// where.
type Own = (direct::Extent, Goal, Fold, *mut u8, Output);

fn own(
    call: &Call,
    wire: &Wire,
    counts: &Counts,
    (send, recv): (Option<&Side>, Option<&Side>),
    ranks: usize,
) -> Result<Own> {
    let (Combine::Own(op), Element::Memory(dtype)) = (wire.combine, wire.element) else {
        return Err(value_error!("{}: no kernel to combine", call.kind.name()));
    };
    let out = recv.map_or(std::ptr::null_mut(), Side::ptr);
    let input = send.map_or(out, Side::ptr);
    let (extent, goal) = match counts {
        Counts::Whole(n) if call.kind == CallKind::Reduce => {
            (direct::Extent::Whole(*n), Goal::Root(call.root as usize))
        }
        Counts::Whole(n) => (direct::Extent::Whole(*n), Goal::All),
        _ => (direct::Extent::Blocks(counts.ranges()), Goal::Owner),
    };
    let output = match (goal, recv) {
        (_, None) => Output::Nowhere,
        // In place, the first results would overwrite what is still to be sent.
        (Goal::Owner, Some(_)) => Output::Owned(out, send.is_none()),
        _ => Output::Whole(out),
    };
    let fold = Fold::new(op, dtype, ranks, wire.mean)?;
    Ok((extent, goal, fold, input, output))
}

/// A number that is the same where calls match: this kind, this root where there is one, so many elements or what
/// stands for them.
pub(crate) fn label(kind: CallKind, root: i32, wire: &Wire, count: u64) -> u64 {
    let root = match kind {
        CallKind::Reduce => root,
        _ => 0,
    };
    let what = kind as u64 | u64::from(root as u32) << 32;
    direct::label([what, wire.label(), count])
}

/// The MPI arguments, given the sides and whether the call is in place.
fn native(
    comm: Comm,
    call: &Call,
    wire: &Wire,
    counts: &Counts,
    (send, recv, in_place): (Option<&Side>, Option<&Side>, bool),
) -> Result<Native> {
    let mpi = comm.mpi();
    let dtype = wire.element.dtype();
    let bytes = send.or(recv).map_or(1, Side::wire_bytes);
    let datatype = wire_type(mpi, dtype, bytes)?.datatype;
    let op = match (wire.combine, call.op) {
        (Combine::Library(op), _) => mpi.op(own_op::library(op)),
        // No MPI call is made then.
        (Combine::Own(_), _) if wire.algorithm != Algorithm::Library => mpi.op_null(),
        (Combine::Own(op), _) => own_op::handle(mpi, op, dtype)?,
        (Combine::Caller, Some(Op::Native(op))) => op,
        (Combine::Caller, _) => return Err(Error::Type("op: expected an MPI.Op".into())),
    };
    let extent = match counts {
        Counts::Whole(n) | Counts::Even(n, _) => Extent::One(*n as i64),
        Counts::Uneven(counts) => Extent::Many {
            numbers: counts.clone(),
            ranks: counts.len(),
        },
    };
    let send_ptr = match in_place {
        true => mpi.in_place().cast_mut(),
        false => send.map_or(std::ptr::null_mut(), Side::ptr),
    };
    let recv_ptr = recv.map_or(std::ptr::null_mut(), Side::ptr);
    Ok(Native {
        mpi,
        kind: call.kind,
        send: Port {
            ptr: send_ptr,
            extent: Extent::One(0),
            datatype,
        },
        recv: Port {
            ptr: recv_ptr,
            extent,
            datatype,
        },
        op,
        root: call.root,
    })
}
