//! Collectives that combine elements.
//!
//! [`wire`] says in which form elements travel and who combines them; this file makes the MPI calls for
//! it. Every plan here is one MPI call of the same name, repeated over slices where the library's counts
//! are too small for the tensor.

use mpi_runtime::{Datatype, Mpi};

use crate::agreed::Agreed;
use crate::arg::{Arg, Part};
use crate::call::{Call, CallKind, Op};
use crate::comm::{Comm, Role};
use crate::error::{Error, Result, value_error};
use crate::movement::{block_count, elements};
use crate::own_op;
use crate::scratch::Scratch;
use crate::side::{Ranges, Side, may_alias, same_elements};
use crate::wire::{Combine, Wire, wire};
use crate::wiretype::{byte, wire_type};

/// What this rank does in a reduction.
pub(crate) struct Significant {
    sends: bool,
    receives: bool,
    in_place: bool,
}

/// The MPI arguments that do not change from slice to slice.
struct Flight {
    mpi: &'static Mpi,
    comm: mpi_runtime::Comm,
    datatype: Datatype,
    op: mpi_runtime::Op,
    root: i32,
    send: *const u8,
    recv: *mut u8,
    in_place: bool,
    bytes: usize,
}

/// Runs a reduction.
pub(crate) fn run(comm: Comm, call: &Call) -> Result<()> {
    let facts = comm.facts()?;
    let role = if call.kind == CallKind::Reduce {
        comm.role(call.root)?
    } else {
        Role::Root
    };
    let significant = significant(call, role, comm.is_inter()?);
    if !significant.sends && !significant.receives && !significant.in_place {
        return idle(comm, call);
    }
    let asked = if call.kind == CallKind::ReduceScatter {
        Some(recvcounts(comm, call)?)
    } else {
        None
    };
    let blocks = counts(call, &significant, facts.size as usize, asked)?;
    let rank = comm.rank()? as usize;
    check(call, &significant, &blocks, rank)?;
    let plan = wire(&Agreed::of(call, blocks.largest(), facts))?;

    let aliased = |send: &Part| {
        call.recv
            .view()
            .is_some_and(|recv| significant.receives && may_alias(send.view(), recv))
    };
    let send = match (&call.send, significant.sends) {
        (Arg::Part(part), true) => Some(Side::sending(
            Ranges::part(part),
            plan.element,
            aliased(part),
        )?),
        (other, true) => Some(Side::sending(
            Ranges::of(other, "sendbuf")?,
            plan.element,
            false,
        )?),
        (_, false) => None,
    };
    let recv = if significant.receives || significant.in_place {
        Some(Side::receiving(
            Ranges::of(&call.recv, "recvbuf")?,
            plan.element,
            significant.in_place,
        )?)
    } else {
        None
    };
    let flight = flight(
        comm,
        call,
        &plan,
        send.as_ref(),
        recv.as_ref(),
        significant.in_place,
    )?;
    // SAFETY:
    // - both sides hold what `check` found the counts to be, in the wire's form (side.rs); the receiving
    //   one is writable, and apart from the sending one unless the call is in place.
    unsafe { fly(&flight, call.kind, &plan, &blocks, rank)? };

    let Some(recv) = recv else { return Ok(()) };
    // MPI leaves the result of rank 0 undefined (MPI 4.1 §6.11.2), so the tensor keeps what it has.
    if call.kind == CallKind::Exscan && rank == 0 {
        return Ok(());
    }
    recv.settle(
        blocks.received(rank),
        plan.mean.then_some(u64::from(facts.size)),
    )
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
fn idle(comm: Comm, call: &Call) -> Result<()> {
    let mpi = comm.mpi();
    let op = match call.op {
        Some(Op::Native(op)) => op,
        _ => mpi.op(mpi_runtime::BuiltinOp::Sum),
    };
    let none = std::ptr::null_mut();
    let datatype = mpi.datatype(mpi_runtime::Basic::Int).unwrap_or(byte(mpi));
    // SAFETY:
    // - no element is described, so the null addresses are never used.
    Ok(unsafe { mpi.reduce(none, none, 0, datatype, op, call.root, comm.raw()) }?)
}

/// Element counts of a reduction.
pub(crate) enum Counts {
    /// The same number everywhere.
    Whole(usize),
    /// The same number for every rank's block, and the number of ranks.
    Even(usize, usize),
    /// One number per rank.
    Uneven(Vec<i64>),
}

impl Counts {
    /// What [`Agreed::elements`] wants.
    pub(crate) fn largest(&self) -> usize {
        match self {
            Counts::Whole(n) | Counts::Even(n, _) => *n,
            Counts::Uneven(counts) => counts.iter().copied().max().unwrap_or(0) as usize,
        }
    }

    /// Elements that a rank contributes.
    fn contributed(&self) -> usize {
        match self {
            Counts::Whole(n) => *n,
            Counts::Even(n, ranks) => n * ranks,
            Counts::Uneven(counts) => counts.iter().sum::<i64>() as usize,
        }
    }

    /// Elements of a rank's result.
    fn received(&self, rank: usize) -> usize {
        match self {
            Counts::Whole(n) | Counts::Even(n, _) => *n,
            Counts::Uneven(counts) => counts.get(rank).map_or(0, |&n| n as usize),
        }
    }
}

pub(crate) fn counts(
    call: &Call,
    significant: &Significant,
    ranks: usize,
    recvcounts: Option<Vec<i64>>,
) -> Result<Counts> {
    let (source, name) = if significant.sends {
        (&call.send, "sendbuf")
    } else {
        (&call.recv, "recvbuf")
    };
    match (call.kind, recvcounts) {
        (CallKind::ReduceScatterBlock, _) => {
            Ok(Counts::Even(block_count(source, name, ranks)?, ranks))
        }
        (CallKind::ReduceScatter, Some(recvcounts)) => Ok(Counts::Uneven(recvcounts)),
        _ => Ok(Counts::Whole(elements(source))),
    }
}

/// The elements that each rank receives in a `Reduce_scatter`: given, or asked for.
fn recvcounts(comm: Comm, call: &Call) -> Result<Vec<i64>> {
    let ranks = comm.size()?;
    if let Some(counts) = &call.recvcounts {
        if counts.len() != ranks {
            return Err(value_error!(
                "recvcounts: {} counts, expected one for each of the {ranks} ranks",
                counts.len()
            ));
        }
        if let Some(bad) = counts.iter().find(|&&count| count < 0) {
            return Err(value_error!("recvcounts: negative count {bad}"));
        }
        return Ok(counts.clone());
    }
    if matches!(call.send, Arg::InPlace) {
        return Err(value_error!(
            "recvcounts: None, but with IN_PLACE the counts cannot be known; give one per rank"
        ));
    }
    let (mpi, own) = (comm.mpi(), elements(&call.recv) as i64);
    let mut counts = vec![0i64; ranks];
    let int64 = mpi
        .datatype(mpi_runtime::Basic::Int64)
        .ok_or_else(|| value_error!("this MPI has no INT64_T"))?;
    // SAFETY:
    // - `own` is one int64 and `counts` has room for one per rank.
    unsafe {
        mpi.allgather(
            (&raw const own).cast(),
            1,
            int64,
            counts.as_mut_ptr().cast(),
            1,
            int64,
            comm.raw(),
        )
    }?;
    Ok(counts)
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

fn flight(
    comm: Comm,
    call: &Call,
    plan: &Wire,
    send: Option<&Side<'_>>,
    recv: Option<&Side<'_>>,
    in_place: bool,
) -> Result<Flight> {
    let mpi = comm.mpi();
    let dtype = plan.element.dtype();
    let bytes = send.or(recv).map_or(1, Side::wire_bytes);
    let op = match (plan.combine, call.op) {
        (Combine::Library(op), _) => mpi.op(own_op::library(op)),
        (Combine::Own(op), _) => own_op::handle(mpi, op, dtype)?,
        (Combine::Caller, Some(Op::Native(op))) => op,
        (Combine::Caller, _) => return Err(Error::Type("op: expected an MPI.Op".into())),
    };
    let send_ptr = if in_place {
        mpi.in_place()
    } else {
        send.map_or(std::ptr::null(), |side| side.ptr().cast_const())
    };
    Ok(Flight {
        mpi,
        comm: comm.raw(),
        datatype: wire_type(mpi, dtype, bytes)?.datatype,
        op,
        root: call.root,
        send: send_ptr,
        recv: recv.map_or(std::ptr::null_mut(), Side::ptr),
        in_place,
        bytes,
    })
}

impl Flight {
    /// Send and receive address of the elements from `first` on.
    fn at(&self, first: usize) -> (*const u8, *mut u8) {
        let offset = first * self.bytes;
        let send = if self.in_place || self.send.is_null() {
            self.send
        } else {
            self.send.wrapping_add(offset)
        };
        let recv = if self.recv.is_null() {
            self.recv
        } else {
            self.recv.wrapping_add(offset)
        };
        (send, recv)
    }
}

/// # Safety
/// - `flight`'s addresses hold as many elements of its datatype as `counts` says; the receive address is
///   writable and, unless in place, apart from the send address.
unsafe fn fly(
    flight: &Flight,
    kind: CallKind,
    plan: &Wire,
    counts: &Counts,
    rank: usize,
) -> Result<()> {
    let Flight {
        mpi,
        comm,
        datatype,
        op,
        root,
        ..
    } = *flight;
    match (kind, plan.slice) {
        (CallKind::ReduceScatterBlock, None) => {
            let (send, recv) = flight.at(0);
            // SAFETY:
            // - the caller's promise.
            unsafe {
                mpi.reduce_scatter_block(
                    send,
                    recv,
                    counts.received(rank) as i64,
                    datatype,
                    op,
                    comm,
                )
            }?;
        }
        (CallKind::ReduceScatter, None) => {
            let (send, recv) = flight.at(0);
            let Counts::Uneven(recvcounts) = counts else {
                return Ok(());
            };
            // SAFETY:
            // - the caller's promise.
            unsafe { mpi.reduce_scatter(send, recv, recvcounts, datatype, op, comm) }?;
        }
        (CallKind::ReduceScatterBlock | CallKind::ReduceScatter, Some(slice)) => {
            // SAFETY:
            // - the caller's promise.
            unsafe { by_root(flight, counts, slice, rank) }?;
        }
        (_, slice) => {
            let total = counts.contributed();
            for (first, n) in slices(total, slice.unwrap_or(usize::MAX)) {
                let ((send, recv), n) = (flight.at(first), n as i64);
                // SAFETY:
                // - the caller's promise, for the slice.
                unsafe {
                    match kind {
                        CallKind::Reduce => mpi.reduce(send, recv, n, datatype, op, root, comm),
                        CallKind::Scan => mpi.scan(send, recv, n, datatype, op, comm),
                        CallKind::Exscan => mpi.exscan(send, recv, n, datatype, op, comm),
                        _ => mpi.allreduce(send, recv, n, datatype, op, comm),
                    }
                }?;
            }
        }
    }
    Ok(())
}

/// A reduce-scatter as one sliced `MPI_Reduce` per rank's block, since a slice of all blocks is not one
/// piece of memory.
///
/// # Safety
/// - as for [`fly`].
unsafe fn by_root(flight: &Flight, counts: &Counts, slice: usize, rank: usize) -> Result<()> {
    let Flight {
        mpi,
        comm,
        datatype,
        op,
        bytes,
        ..
    } = *flight;
    let input = if flight.in_place {
        flight.recv.cast_const()
    } else {
        flight.send
    };
    // The result may overlap blocks that are still to be sent, so it lands apart first.
    let own = counts.received(rank);
    let result = Scratch::new(own * bytes)?;
    let ranks = match counts {
        Counts::Uneven(counts) => counts.len(),
        Counts::Even(_, ranks) => *ranks,
        Counts::Whole(_) => 0,
    };
    let mut start = 0usize;
    for root in 0..ranks {
        for (first, n) in slices(counts.received(root), slice) {
            let send = input.wrapping_add((start + first) * bytes);
            let recv = if root == rank {
                result.ptr().wrapping_add(first * bytes)
            } else {
                std::ptr::null_mut()
            };
            // SAFETY:
            // - `send` is within the contributed elements, `recv` within the scratch memory of the result.
            unsafe { mpi.reduce(send, recv, n as i64, datatype, op, root as i32, comm) }?;
        }
        start += counts.received(root);
    }
    // SAFETY:
    // - both hold `own` elements, and scratch memory is never the tensor's.
    unsafe { std::ptr::copy_nonoverlapping(result.ptr(), flight.recv, own * bytes) };
    Ok(())
}

/// Slices of at most `slice` elements; nothing still makes one (empty) call, as every rank must enter.
fn slices(total: usize, slice: usize) -> impl Iterator<Item = (usize, usize)> {
    let calls = total.div_ceil(slice).max(1);
    (0..calls).map(move |i| (i * slice, slice.min(total - i * slice)))
}

#[cfg(test)]
mod tests {
    use super::slices;

    #[test]
    fn slices_cover_everything_once() {
        assert_eq!(slices(0, 4).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(slices(8, 4).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
        assert_eq!(slices(9, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 1)]);
        assert_eq!(slices(9, usize::MAX).collect::<Vec<_>>(), [(0, 9)]);
    }
}
