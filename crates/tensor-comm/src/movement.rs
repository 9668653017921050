//! Collectives that move elements: one MPI call each, of the same name.

mod all;
mod gather;
mod scatter;

use dlpack_core::{DType, TypeCode, View};

use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::{Comm, Role};
use crate::counted::{Counted, CountedBlocks, counted, counted_blocks};
use crate::error::{Result, value_error};
use crate::side::{Ranges, Side, may_alias};
use crate::wire::Element;
use crate::wiretype::{WireType, byte, wire_type};

/// One side of a movement and how its elements travel.
struct Moving<'a> {
    side: Side<'a>,
    wire: WireType,
}

impl<'a> Moving<'a> {
    fn sending(comm: Comm, arg: &'a Arg, name: &str, aliases: Option<&View>) -> Result<Moving<'a>> {
        let ranges = Ranges::of(arg, name)?;
        let wire = wire_type(comm.mpi(), ranges.view().dtype(), ranges.view().itemsize())?;
        let element = Element::Memory(ranges.view().dtype());
        // MPI forbids shared memory (MPI 4.1 §6.1); a copy makes the call mean what it says.
        let copy = aliases.is_some_and(|other| may_alias(ranges.view(), other));
        Ok(Moving {
            side: Side::sending(ranges, element, copy)?,
            wire,
        })
    }

    fn receiving(comm: Comm, arg: &'a Arg, name: &str, keep: bool) -> Result<Moving<'a>> {
        if let Arg::Blocks(blocks) = arg
            && let Some((a, b)) = blocks.overlap()
        {
            return Err(value_error!(
                "{name}: the blocks of ranks {a} and {b} overlap; received blocks need memory of their own"
            ));
        }
        let ranges = Ranges::of(arg, name)?;
        let wire = wire_type(comm.mpi(), ranges.view().dtype(), ranges.view().itemsize())?;
        let element = Element::Memory(ranges.view().dtype());
        Ok(Moving {
            side: Side::receiving(ranges, element, keep)?,
            wire,
        })
    }

    fn count(&self, comm: Comm, elements: usize) -> Result<Counted> {
        counted(comm.mpi(), elements, self.wire)
    }

    fn blocks<'b>(&self, comm: Comm, name: &str, counts: &'b [i64]) -> Result<CountedBlocks<'b>> {
        counted_blocks(comm.mpi(), name, counts, self.side.displs(), self.wire)
    }
}

/// What this rank passes for a side that is not significant on it.
const NOTHING: *mut u8 = std::ptr::null_mut();

/// Runs a movement.
pub(crate) fn run(comm: Comm, call: &Call) -> Result<()> {
    use CallKind::*;
    match call.kind {
        Bcast => bcast(comm, call),
        Gather | Gatherv => gather::gather(comm, call),
        Scatter | Scatterv => scatter::scatter(comm, call),
        Allgather | Allgatherv => all::allgather(comm, call),
        _ => all::alltoall(comm, call),
    }
}

fn bcast(comm: Comm, call: &Call) -> Result<()> {
    let buffer = if matches!(call.send, Arg::Absent) {
        &call.recv
    } else {
        &call.send
    };
    let (mpi, raw) = (comm.mpi(), comm.raw());
    let role = comm.role(call.root)?;
    if role == Role::Idle {
        // SAFETY:
        // - no element is described, so the null address is never used.
        return Ok(unsafe { mpi.bcast(NOTHING, 0, byte(mpi), call.root, raw) }?);
    }
    let moving = match role {
        Role::Root => Moving::sending(comm, buffer, "buf", None)?,
        _ => Moving::receiving(comm, buffer, "buf", false)?,
    };
    let counted = moving.count(comm, elements(buffer))?;
    // SAFETY:
    // - the side holds as many elements in this form; writable unless this rank is the root (`receiving`).
    unsafe {
        mpi.bcast(
            moving.side.ptr(),
            counted.count,
            counted.datatype,
            call.root,
            raw,
        )
    }?;
    if role == Role::Leaf {
        moving.side.settle(usize::MAX, None)
    } else {
        Ok(())
    }
}

/// Elements of an argument.
pub(crate) fn elements(arg: &Arg) -> usize {
    match arg {
        Arg::Part(part) => part.count(),
        Arg::Blocks(blocks) => blocks.total(),
        Arg::Absent | Arg::InPlace => 0,
    }
}

/// Elements of one rank's block where a part holds one block per rank.
pub(crate) fn block_count(arg: &Arg, name: &str, ranks: usize) -> Result<usize> {
    let count = elements(arg);
    if ranks == 0 {
        return Ok(0);
    }
    if !count.is_multiple_of(ranks) {
        return Err(value_error!(
            "{name}: {count} elements are not a multiple of the {ranks} ranks that share them; use the v-variant"
        ));
    }
    Ok(count / ranks)
}

/// The block that this rank exchanges with itself must fit on both sides.
fn same_block(
    call: &Call,
    one: &Arg,
    one_name: &str,
    many: &Arg,
    many_name: &str,
    ranks: usize,
    rank: i32,
) -> Result<()> {
    let own = match many {
        Arg::Blocks(blocks) => blocks
            .counts()
            .get(rank as usize)
            .map_or(0, |&c| c as usize),
        other => block_count(other, many_name, ranks)?,
    };
    fit(call, (one, one_name, elements(one)), (many, many_name, own))
}

fn same_block_both(call: &Call, ranks: usize, rank: i32) -> Result<()> {
    let own = |arg: &Arg, name: &str| match arg {
        Arg::Blocks(blocks) => Ok(blocks
            .counts()
            .get(rank as usize)
            .map_or(0, |&c| c as usize)),
        other => block_count(other, name, ranks),
    };
    let (send, recv) = (own(&call.send, "sendbuf")?, own(&call.recv, "recvbuf")?);
    fit(
        call,
        (&call.send, "sendbuf", send),
        (&call.recv, "recvbuf", recv),
    )
}

fn fit(call: &Call, a: (&Arg, &str, usize), b: (&Arg, &str, usize)) -> Result<()> {
    let (Some(va), Some(vb)) = (a.0.view(), b.0.view()) else {
        return Ok(());
    };
    let name = call.kind.name();
    if !compatible(va, vb) {
        return Err(value_error!(
            "{name}: {} holds {} but {} holds {}; convert one of them",
            a.1,
            va.dtype(),
            b.1,
            vb.dtype()
        ));
    }
    if a.2 * va.itemsize() != b.2 * vb.itemsize() {
        return Err(value_error!(
            "{name}: {} has {} elements of {} for this rank's own block but {} has {} of {}",
            a.1,
            a.2,
            va.dtype(),
            b.1,
            b.2,
            vb.dtype()
        ));
    }
    Ok(())
}

/// Whether elements of one dtype may land in the other: the same, bytes, or integers of one size.
pub(crate) fn compatible(a: &View, b: &View) -> bool {
    let integers = a.dtype().is_int() && b.dtype().is_int() && a.itemsize() == b.itemsize();
    let bytes = |view: &View| {
        matches!(view.dtype(), DType::U8 | DType::I8) || view.dtype().code == TypeCode::RAW
    };
    a.dtype() == b.dtype() || bytes(a) || bytes(b) || integers
}
