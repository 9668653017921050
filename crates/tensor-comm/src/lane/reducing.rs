//! The short way of reductions: one call of the library's, or one through memory that the ranks share.

use mpi_runtime::Mpi;

use crate::agreed::{Agreed, AgreedOp, CommFacts, Standing};
use crate::algorithm::Algorithm;
use crate::call::{CallKind, Op};
use crate::direct::{Elements, Extent, Fold, Geometry, Goal, Prefix, Shared, Target, block_bytes};
use crate::native::{self, Native, Port};
use crate::own_op;
use crate::reduction;
use crate::wire::{Combine, Element, Wire, wire};
use crate::wiretype::{self, wire_type};

use super::typed::Exchange;
use super::{End, Flat, Lane};

/// What a call is.
pub(super) enum Work {
    /// MPI's barrier.
    Barrier(&'static Mpi),
    /// MPI's.
    Native(Native),
    /// MPI's `Alltoallw`.
    Typed(Exchange),
    /// Ours, of as many elements on all ranks.
    Shared(Shared),
}

/// Where the elements of a reduction lie.
struct Sides {
    /// What this rank gives; `None`: it is at `output`.
    input: Option<*mut u8>,
    /// Null where no result is wanted.
    output: *mut u8,
    /// The result's elements, or those given where there is none.
    flat: Flat,
    /// Each rank's part of the result, where these differ.
    counts: Vec<i64>,
}

impl Sides {
    /// What all ranks know alike: of uneven blocks the largest one.
    fn elements(&self) -> usize {
        let most = self.counts.iter().copied().max();
        most.map_or(self.flat.count, |most| most as usize)
    }
}

impl Lane {
    /// A reduction, if it is simple.
    pub(super) fn reduction(
        &self,
        kind: CallKind,
        ends: (End, End),
        counts: Vec<i64>,
        op: Op,
        root: i32,
    ) -> Option<Work> {
        let sides = self.sides(kind, ends, counts)?;
        i32::try_from(sides.elements()).ok()?;
        let wire = wire(&self.agreed(kind, &sides, op)).ok()?;
        match wire.algorithm {
            _ if wire.open => None,
            Algorithm::Library => self.by_library(kind, &wire, sides, root).map(Work::Native),
            Algorithm::Shared => self.by_memory(kind, &wire, &sides).map(Work::Shared),
            Algorithm::Direct | Algorithm::Rounds(_) => None,
        }
    }

    fn sides(&self, kind: CallKind, (send, recv): (End, End), counts: Vec<i64>) -> Option<Sides> {
        let uneven = kind == CallKind::ReduceScatter;
        if uneven && (counts.len() != self.size || counts.iter().any(|&count| count < 0)) {
            return None;
        }
        let (input, output, flat) = match (send, recv) {
            (End::Flat(send), End::Flat(recv)) => {
                let wanted = match kind {
                    CallKind::ReduceScatter => total(&counts)?,
                    CallKind::ReduceScatterBlock => recv.count.checked_mul(self.size)?,
                    _ => recv.count,
                };
                let own = counts.get(self.rank as usize);
                let fits = own.is_none_or(|&own| own == recv.count as i64);
                let alike = send.dtype == recv.dtype && send.count == wanted && fits;
                if !alike || send.meets(&recv) {
                    return None;
                }
                (Some(send.data), recv.data, recv)
            }
            (End::InPlace, End::Flat(recv)) if !uneven && kind != CallKind::ReduceScatterBlock => {
                (None, recv.data, recv)
            }
            (End::Flat(send), End::Absent) => (Some(send.data), std::ptr::null_mut(), send),
            _ => return None,
        };
        Some(Sides {
            input,
            output,
            flat,
            counts,
        })
    }

    fn agreed(&self, kind: CallKind, sides: &Sides, op: Op) -> Agreed {
        let mpi = self.mpi;
        let (choice, standing) = match &self.state {
            Some(state) if self.immediate => (state.choice(), state.standing_of_engine(true)),
            Some(state) => (state.choice(), state.standing(true)),
            None if self.immediate => (None, Standing::NONE.by_messages()),
            None => (None, Standing::NONE),
        };
        Agreed {
            kind,
            dtype: Some(sides.flat.dtype),
            elements: sides.elements(),
            op: Some(AgreedOp::from(op)),
            facts: CommFacts {
                size: self.size as u32,
                large_counts: mpi.has_large_counts(),
                one_call: false,
                choice: choice.unwrap_or(self.settings.allreduce),
                standing,
                family: mpi.family(),
            },
        }
    }

    /// As one call of the library's on the elements as they lie.
    fn by_library(&self, kind: CallKind, wire: &Wire, sides: Sides, root: i32) -> Option<Native> {
        let (mpi, flat) = (self.mpi, sides.flat);
        wiretype::basic(flat.dtype)?;
        if wire.mean || wire.slice.is_some() || !matches!(wire.element, Element::Memory(_)) {
            return None;
        }
        let op = match wire.combine {
            Combine::Library(op) => mpi.op(own_op::library(op)),
            Combine::Own(op) => own_op::handle(mpi, op, flat.dtype).ok()?,
            Combine::Caller => return None,
        };
        let datatype = wire_type(mpi, flat.dtype, flat.itemsize()).ok()?.datatype;
        let port = |ptr, extent| Port {
            ptr,
            extent,
            datatype,
        };
        let received = match kind {
            CallKind::ReduceScatter => native::Extent::Many {
                ranks: sides.counts.len(),
                numbers: sides.counts,
            },
            _ => native::Extent::One(flat.count as i64),
        };
        let input = sides.input.unwrap_or(mpi.in_place().cast_mut());
        Some(Native {
            mpi,
            kind,
            send: port(input, native::Extent::One(0)),
            recv: port(sides.output, received),
            op,
            root,
        })
    }

    /// Through memory that the ranks share, where every rank has a result of all elements; as `reduction.rs` makes it
    /// for any tensor.
    fn by_memory(&self, kind: CallKind, wire: &Wire, sides: &Sides) -> Option<Shared> {
        let prefix = match kind {
            CallKind::Allreduce => None,
            CallKind::Scan => Some(Prefix::Inclusive),
            CallKind::Exscan => Some(Prefix::Exclusive),
            _ => return None,
        };
        let Combine::Own(op) = wire.combine else {
            return None;
        };
        let (flat, ranks) = (&sides.flat, self.size);
        let (item, extent) = (flat.itemsize(), Extent::Whole(flat.count));
        (!self.immediate).then_some(Shared {
            rank: self.rank as usize,
            ranks,
            geometry: Geometry::within(extent, ranks, item, block_bytes(ranks)),
            goal: Goal::All,
            prefix,
            fold: Fold::new(op, flat.dtype, ranks, wire.mean).ok()?,
            item,
            input: Elements::Flat(sides.input.unwrap_or(sides.output)),
            output: Target::Whole(Elements::Flat(sides.output)),
            label: reduction::label(kind, 0, wire, flat.count as u64),
        })
    }
}

/// All elements of these counts, none of which is negative.
fn total(counts: &[i64]) -> Option<usize> {
    let add = |sum: i64, &count: &i64| sum.checked_add(count);
    usize::try_from(counts.iter().try_fold(0, add)?).ok()
}
