//! Many tensors reduced as few messages.
//!
//! Ranks that share memory reduce all small tensors of one dtype as one, from where they lie. Elsewhere tensors of
//! one dtype are laid end to end, in the order given, and cut where a bucket is full; a large tensor travels
//! alone, from its own memory where it can. What travels together follows from dtypes and element counts,
//! which all ranks share.

mod list;
mod packed;

use dlpack_core::{DType, Device, View};

use list::Tensor;
pub use list::Tensors;
use packed::Packed;

use crate::agreed::{Agreed, Standing};
use crate::algorithm::Algorithm;
use crate::arg::{Arg, Part};
use crate::brief::Brief;
use crate::call::{Call, CallKind, Op};
use crate::collective::plan;
use crate::comm::Comm;
use crate::direct::{
    self, Elements, Extent, Fold, Geometry, Goal, Piece, Shared, Target, block_bytes, label,
};
use crate::error::{Error, Result, value_error};
use crate::ground::fingerprint::Fingerprint;
use crate::ground::gate::Gate;
use crate::scratch::Scratch;
use crate::trace::{self, Taken};
use crate::wire::{Combine, Element, Wire, wire};

/// Bytes of a bucket at most: large enough to be worth an algorithm, small enough for the cache.
const BUCKET_BYTES: usize = 1 << 20;
/// A tensor of so many bytes travels alone.
const ALONE_BYTES: usize = 1 << 20;

/// Tells a fused reduction from every single one.
const MANY: u64 = 1;

/// Tensors of one dtype that are reduced together, in order.
#[derive(Debug)]
struct Group {
    dtype: DType,
    tensors: Vec<Tensor>,
    elements: usize,
}

/// Reduces every tensor over all ranks, in place, as `Allreduce` does one of them. All ranks give as many
/// tensors, with the same dtypes and element counts in the same order.
///
/// # Errors
/// As [`crate::run`]; besides [`Error::Value`] where two tensors share memory, and where exactly one plain
/// MPI call per collective was asked for.
///
/// # Safety
/// - Until this returns, every tensor of the list is memory that is there, and that nobody else reads or writes.
pub unsafe fn all_reduce_many(comm: &Comm, tensors: &Tensors, op: Op) -> Result<()> {
    let gate = Gate::open(*comm, CallKind::Allreduce)?;
    let brief = || {
        let elements = tensors.iter().map(|tensor| tensor.elements).sum();
        Brief::of_many(tensors.len(), elements, op)
    };
    let _watched = gate.watch(brief);
    let mut span = gate.trace(brief);
    let mut taken = Taken::default();
    let done = pass_and_reduce(&gate, tensors, op, &mut taken);
    trace::takes(&mut span, || taken);
    trace::ended(&mut span, done)
}

/// Notes what becomes of the elements of `group` under `wire`.
fn note(taken: &mut Taken, tensors: &Tensors, group: &[Tensor], wire: &Wire, bucket: bool) {
    let shared = wire.algorithm == Algorithm::Shared;
    let any = |ask: fn(&View) -> bool| {
        let mut views = group.iter().filter_map(|tensor| tensors.view(tensor));
        views.any(ask)
    };
    taken.stage |= any(|view| !view.device().is_host_addressable());
    taken.pack |= any(|view| !view.layout().is_c_contiguous()) || (bucket && !shared);
    taken.software |=
        matches!(wire.combine, Combine::Own(_)) || matches!(wire.element, Element::Widened { .. });
    taken.algorithm = match taken.algorithm {
        "buckets" => "buckets",
        _ if shared => "shared memory",
        _ => "buckets",
    };
}

fn pass_and_reduce(gate: &Gate, tensors: &Tensors, op: Op, taken: &mut Taken) -> Result<()> {
    let comm = &gate.comm();
    let ready = check(*comm, tensors).and_then(|()| {
        let (groups, alone) = (groups(tensors), alone(tensors));
        // Everything that a call can refuse is refused before the first one is made.
        let standing = gate.standing();
        for group in &groups {
            describe(*comm, group.dtype, group.elements, op, standing)?;
        }
        let mut apart = 0;
        for bucket in &alone {
            let wire = describe(*comm, bucket.dtype, bucket.elements, op, standing)?;
            let mut views = bucket
                .tensors
                .iter()
                .filter_map(|tensor| tensors.view(tensor));
            let as_it_lies = views.all(|view| view.layout().is_c_contiguous());
            if !as_it_lies || matches!(wire.element, Element::Widened { .. }) {
                let item = wire.element.dtype().itemsize().unwrap_or(1);
                let most = match wire.element {
                    Element::Widened { .. } => wire.slice.unwrap_or(usize::MAX),
                    Element::Memory(_) => usize::MAX,
                };
                apart = apart.max(bucket.elements.min(most).saturating_mul(item));
            }
        }
        // Nor may a rank that others wait for find out that it has no memory: what is had here stays with the thread.
        let packed = groups.iter().map(Group::bytes).max().unwrap_or(0);
        let rooms = (Scratch::new(packed)?, Scratch::new(direct::USUAL_ROOM)?);
        drop((rooms, Scratch::new(apart)?));
        Ok((groups, alone))
    });
    let (groups, alone) = match ready {
        Ok(groups) => groups,
        Err(why) => return Err(gate.refuse(why)),
    };
    gate.pass_as(|sequence, settings| {
        let list = tensors.iter().map(|tensor| (tensor.dtype, tensor.elements));
        Fingerprint::of_many(list, op, sequence, settings)
    })?;
    taken.algorithm = "none";
    if comm.size()? == 1 {
        // Each tensor is its own sum.
        return Ok(());
    }
    for group in &groups {
        let standing = gate.standing();
        let described = |standing| describe(*comm, group.dtype, group.elements, op, standing);
        let mut wire = described(standing)?;
        if wire.open {
            wire = gate.settle(standing, |wire| wire.open, described)?;
        }
        note(taken, tensors, &group.tensors, &wire, true);
        if wire.algorithm == Algorithm::Shared {
            share(gate, tensors, group, &wire)?;
            continue;
        }
        for bucket in buckets(group) {
            run(*comm, gate, tensors, &bucket, op)?;
        }
    }
    for bucket in &alone {
        let wire = describe(*comm, bucket.dtype, bucket.elements, op, gate.standing())?;
        note(taken, tensors, &bucket.tensors, &wire, false);
        run(*comm, gate, tensors, bucket, op)?;
    }
    Ok(())
}

fn check(comm: Comm, tensors: &Tensors) -> Result<()> {
    if comm.facts(None)?.one_call {
        return Err(value_error!(
            "allreduce_many: it is dlmpi's own and needs dlmpi on every rank of an intracommunicator; reduce the tensors one by one"
        ));
    }
    for view in tensors.views() {
        view.check_writable()?;
        if view.packed_numel().is_some() {
            return Err(value_error!(
                "allreduce_many: {} is moved, never reduced",
                view.dtype()
            ));
        }
    }
    match tensors.alias() {
        None => Ok(()),
        Some((i, j)) => Err(value_error!(
            "allreduce_many: tensors {i} and {j} share memory, so one of them would be reduced twice; give each only once"
        )),
    }
}

/// Those that travel alone.
fn alone(tensors: &Tensors) -> Vec<Group> {
    let large = tensors
        .iter()
        .filter(|tensor| tensor.bytes() >= ALONE_BYTES);
    large.map(|tensor| Group::of(*tensor)).collect()
}

/// Divides the others by their dtypes, in the order in which these come.
fn groups(tensors: &Tensors) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let small = |tensor: &&Tensor| tensor.elements > 0 && tensor.bytes() < ALONE_BYTES;
    for tensor in tensors.iter().filter(small) {
        match groups.iter_mut().find(|group| group.dtype == tensor.dtype) {
            Some(group) => group.push(*tensor),
            None => {
                let mut group = Group::of(*tensor);
                // Most lists are of one dtype.
                group.tensors.reserve(tensors.len());
                groups.push(group);
            }
        }
    }
    groups
}

/// Divides a group into buckets, by element counts alone.
fn buckets(group: &Group) -> Vec<Group> {
    let mut buckets: Vec<Group> = Vec::new();
    for &tensor in &group.tensors {
        match buckets.last_mut() {
            Some(open) if open.bytes() + tensor.bytes() <= BUCKET_BYTES => open.push(tensor),
            _ => buckets.push(Group::of(tensor)),
        }
    }
    buckets
}

impl Group {
    fn of(tensor: Tensor) -> Group {
        Group {
            dtype: tensor.dtype,
            tensors: vec![tensor],
            elements: tensor.elements,
        }
    }

    fn push(&mut self, tensor: Tensor) {
        self.elements += tensor.elements;
        self.tensors.push(tensor);
    }

    fn bytes(&self) -> usize {
        self.elements * self.dtype.itemsize().unwrap_or(1)
    }
}

/// What goes over the wire in the reduction of so many elements; refuses what has no meaning.
fn describe(comm: Comm, dtype: DType, elements: usize, op: Op, standing: Standing) -> Result<Wire> {
    wire(&Agreed {
        kind: CallKind::Allreduce,
        dtype: Some(dtype),
        elements,
        op: Some(op.into()),
        // Tensors in many places are not read by others.
        facts: comm.facts(Some(Standing {
            reads: false,
            ..standing
        }))?,
    })
}

/// Reduces a group through the memory that the ranks share, from and into the tensors' own memory.
fn share(gate: &Gate, tensors: &Tensors, group: &Group, wire: &Wire) -> Result<()> {
    let Combine::Own(op) = wire.combine else {
        return Err(value_error!("allreduce_many: no kernel to combine"));
    };
    let (comm, item) = (gate.comm(), group.dtype.itemsize().unwrap_or(1));
    let (rank, ranks) = (comm.rank()? as usize, comm.size()?);
    let packed = Packed::of(tensors, &group.tensors, false)?;
    let (mut places, mut first) = (packed.places.iter(), 0);
    let pieces = group.tensors.iter().map(|tensor| {
        let place = tensors.view(tensor).and_then(|_| places.next());
        let piece = Piece {
            at: place.map_or(tensor.data, |place| place.at),
            first,
            bytes: tensor.elements * item,
        };
        first += piece.bytes;
        piece
    });
    let all = Elements::Pieces(pieces.collect());
    let counts = group.tensors.iter().map(|tensor| tensor.elements as u64);
    let label = label([wire.label(), MANY].into_iter().chain(counts));
    let shared = Shared {
        rank,
        ranks,
        geometry: Geometry::within(
            Extent::Whole(group.elements),
            ranks,
            item,
            block_bytes(ranks),
        ),
        goal: Goal::All,
        prefix: None,
        fold: Fold::new(op, group.dtype, ranks, wire.mean)?,
        item,
        input: all.clone(),
        output: Target::Whole(all),
        label,
    };
    // SAFETY:
    // - the pieces are tensors that the caller holds, writable and apart from each other (`check`), or our own.
    gate.with_arena(|arena, idle| unsafe { shared.run(arena, idle) })?;
    packed.bring_home()
}

fn in_place(view: View, op: Op) -> Call {
    let mut call = Call::new(CallKind::Allreduce);
    call.send = Arg::InPlace;
    call.recv = Arg::Part(Part::whole(view));
    call.op = Some(op);
    call
}

/// Reduces one bucket.
fn run(comm: Comm, gate: &Gate, tensors: &Tensors, bucket: &Group, op: Op) -> Result<()> {
    let reduce = |view: View| {
        let call = in_place(view, op);
        let standing = gate.standing();
        let made = |standing| plan(comm, &call, Some(standing));
        let mut ready = made(standing)?;
        if ready.open {
            drop(ready);
            ready = gate.settle(standing, |plan| plan.open, made)?;
        }
        ready.run(comm, gate)
    };
    // SAFETY:
    // - so many elements of this dtype lie there, for as long as they are reduced.
    let flat = |data, elements: usize| unsafe {
        let shape = [elements as i64];
        View::from_parts(data, &shape, None, bucket.dtype, Device::CPU, false)
    };
    if let [one] = &bucket.tensors[..] {
        return reduce(match tensors.view(one) {
            Some(view) => view.clone(),
            None => flat(one.data, one.elements)?,
        });
    }
    let packed = Packed::of(tensors, &bucket.tensors, true)?;
    reduce(flat(packed.room.ptr(), bucket.elements)?)?;
    packed.bring_home()
}

/// Numbers a fused reduction that this rank refuses before it could be described, as [`crate::refuse`].
pub fn refuse_many(comm: &Comm, why: Error) -> Error {
    crate::refuse(comm, CallKind::Allreduce, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(address: usize, n: i64, dtype: DType) -> View {
        // SAFETY:
        // - the view is only looked at, never acted on, so no byte of it need exist.
        unsafe { View::from_parts(address as *mut u8, &[n], None, dtype, Device::CPU, false) }
            .expect("a lawful layout")
    }

    #[test]
    fn small_tensors_share_buckets_and_large_ones_travel_alone() {
        let tensors: Tensors = [
            (300_000, DType::F32),
            (1000, DType::F32),
            (0, DType::F32),
            (7, DType::BF16),
            (100_000, DType::F32),
            (200_000, DType::F32),
            (9, DType::BF16),
        ]
        .iter()
        .enumerate()
        .map(|(i, &(n, dtype))| view((i + 1) << 24, n, dtype))
        .collect();
        let found: Vec<(Vec<usize>, usize)> = groups(&tensors)
            .iter()
            .flat_map(buckets)
            .chain(alone(&tensors))
            .map(|bucket| {
                let places = bucket.tensors.iter().map(|tensor| tensor.data.addr());
                (places.map(|at| (at >> 24) - 1).collect(), bucket.elements)
            })
            .collect();
        assert_eq!(
            found,
            [
                (vec![1, 4], 101_000),
                (vec![5], 200_000),
                (vec![3, 6], 16),
                (vec![0], 300_000)
            ]
        );
    }
}
