//! Collectives that move elements: one MPI call each, of the same name.

mod all;
mod block;
mod rooted;

use dlpack_core::View;

use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::Comm;
use crate::counted::{Derived, counted, counted_blocks};
use crate::error::{Result, value_error};
use crate::native::{Extent, Native, Port};
use crate::plan::{Plan, Settle};
use crate::side::{Ranges, Side, may_alias};
use crate::wire::Element;
use crate::wiretype::{byte, moving_type};

pub(crate) use block::{block_count, elements};

/// Makes a movement ready.
pub(crate) fn plan(comm: Comm, call: &Call) -> Result<Plan> {
    use CallKind::*;
    match call.kind {
        Barrier => Ok(joined(
            comm,
            call,
            Moving::nothing(comm),
            Moving::nothing(comm),
        )),
        Bcast => rooted::bcast(comm, call),
        Gather | Gatherv | Scatter | Scatterv => rooted::gather_or_scatter(comm, call),
        _ => all::plan(comm, call),
    }
}

/// One side of a movement, ready for MPI.
struct Moving {
    side: Option<Side>,
    port: Port,
    derived: Option<Derived>,
}

/// How many of a side's elements one MPI count describes.
#[derive(Clone, Copy)]
enum Per {
    /// All of them.
    Side,
    /// One of this many equal blocks, or the ranges of a v-argument.
    Block(usize),
}

impl Moving {
    /// What this rank passes for a side that is not significant on it.
    fn nothing(comm: Comm) -> Moving {
        Moving::bare(comm, std::ptr::null_mut())
    }

    /// `MPI_IN_PLACE`.
    fn in_place(comm: Comm) -> Moving {
        Moving::bare(comm, comm.mpi().in_place().cast_mut())
    }

    fn bare(comm: Comm, ptr: *mut u8) -> Moving {
        let port = Port {
            ptr,
            extent: Extent::One(0),
            datatype: byte(comm.mpi()),
        };
        Moving {
            side: None,
            port,
            derived: None,
        }
    }

    /// Elements to be sent; copied first where they share memory with `aliases`, which MPI forbids
    /// (MPI 4.1 §6.1): the call then means what it says.
    fn sending(
        comm: Comm,
        arg: &Arg,
        name: &str,
        per: Per,
        aliases: Option<&View>,
    ) -> Result<Moving> {
        let ranges = Ranges::of(arg, name)?;
        let element = Element::Memory(ranges.view().dtype());
        let copy = aliases.is_some_and(|other| may_alias(ranges.view(), other));
        let direct = comm.gives_device_memory() && !brought_together(comm, arg)?;
        let side = Side::sending_to_mpi(ranges, element, copy, direct)?;
        Moving::new(comm, arg, name, per, side, true)
    }

    /// Room to receive into; `keep` where the tensor already holds this rank's own block.
    fn receiving(comm: Comm, arg: &Arg, name: &str, per: Per, keep: bool) -> Result<Moving> {
        if let Arg::Blocks(blocks) = arg
            && let Some((a, b)) = blocks.overlap()
        {
            return Err(value_error!(
                "{name}: the blocks of ranks {a} and {b} overlap; received blocks need memory of their own"
            ));
        }
        let ranges = Ranges::of(arg, name)?;
        let element = Element::Memory(ranges.view().dtype());
        let direct = comm.gives_device_memory() && !brought_together(comm, arg)?;
        let side = Side::receiving_from_mpi(ranges, element, keep, direct)?;
        Moving::new(comm, arg, name, per, side, keep)
    }

    /// `fill` where the side's present values matter.
    fn new(
        comm: Comm,
        arg: &Arg,
        name: &str,
        per: Per,
        mut side: Side,
        fill: bool,
    ) -> Result<Moving> {
        let mpi = comm.mpi();
        let wire = moving_type(mpi, side.dtype(), side.itemsize())?;
        if let (Arg::Blocks(blocks), Per::Block(_)) = (arg, per) {
            if brought_together(comm, arg)? {
                side.compact(fill)?;
            }
            let counted = counted_blocks(mpi, name, blocks.counts(), side.displs(), wire)?;
            let (ranks, mut numbers) = (counted.counts.len(), counted.counts);
            numbers.extend(counted.displs);
            let extent = Extent::Many { numbers, ranks };
            let port = Port {
                ptr: side.base(),
                extent,
                datatype: counted.datatype,
            };
            return Ok(Moving {
                side: Some(side),
                port,
                derived: counted.derived,
            });
        }
        let count = match per {
            Per::Side => elements(arg),
            Per::Block(ranks) => block_count(arg, name, ranks)?,
        };
        let counted = counted(mpi, count, wire)?;
        let port = Port {
            ptr: side.ptr(),
            extent: Extent::One(counted.count),
            datatype: counted.datatype,
        };
        Ok(Moving {
            side: Some(side),
            port,
            derived: counted.derived,
        })
    }
}

/// Small blocks that lie further apart than `int` displacements reach are brought together, by the host.
fn brought_together(comm: Comm, arg: &Arg) -> Result<bool> {
    let Arg::Blocks(blocks) = arg else {
        return Ok(false);
    };
    let (mpi, view) = (comm.mpi(), blocks.view());
    let wire = moving_type(mpi, view.dtype(), view.itemsize())?;
    Ok(!mpi.has_large_counts() && blocks.far(wire.units))
}

/// The plan of two sides.
fn joined(comm: Comm, call: &Call, send: Moving, recv: Moving) -> Plan {
    let mpi = comm.mpi();
    Plan {
        native: Native {
            mpi,
            kind: call.kind,
            send: send.port,
            recv: recv.port,
            op: mpi.op_null(),
            root: call.root,
        },
        direct: None,
        shared: None,
        spread: None,
        open: false,
        software: false,
        send: send.side,
        recv: recv.side,
        settle: Settle::ALL,
        slicing: None,
        derived: [send.derived, recv.derived],
    }
}
