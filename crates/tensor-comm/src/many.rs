//! Many tensors reduced as few messages.
//!
//! Ranks that share memory reduce all small tensors of one dtype as one, from where they lie. Elsewhere tensors of
//! one dtype are laid end to end, in the order given, and cut where a bucket is full; a large tensor travels
//! alone, from its own memory where it can. What travels together follows from dtypes and element counts,
//! which all ranks share.

use dlpack_core::{DType, View};

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
use crate::host::Host;
use crate::pack::{pack, unpack};
use crate::scratch::Scratch;
use crate::side::may_alias;
use crate::trace::{self, Taken};
use crate::wire::{Combine, Element, Wire, wire};

/// Bytes of a bucket at most: large enough to be worth an algorithm, small enough for the cache.
const BUCKET_BYTES: usize = 1 << 20;
/// A tensor of so many bytes travels alone.
const ALONE_BYTES: usize = 1 << 20;

/// Tells a fused reduction from every single one.
const MANY: u64 = 1;

/// All tensors of one dtype, by index.
#[derive(Debug)]
struct Group {
    dtype: DType,
    tensors: Vec<usize>,
    elements: usize,
}

/// Tensors that travel together, by index.
#[derive(Debug, PartialEq, Eq)]
struct Bucket {
    tensors: Vec<usize>,
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
/// - Until this returns, every view describes memory that is there, and that nobody else reads or writes.
pub unsafe fn all_reduce_many(comm: &Comm, tensors: &[View], op: Op) -> Result<()> {
    let gate = Gate::open(*comm, CallKind::Allreduce)?;
    let _watched = gate.watch(|| Brief::of_many(tensors, op));
    let mut span = gate.trace(|| Brief::of_many(tensors, op));
    let mut taken = Taken::default();
    let done = pass_and_reduce(&gate, tensors, op, &mut taken);
    trace::takes(&mut span, || taken);
    trace::ended(&mut span, done)
}

/// Notes what becomes of the elements of `group` under `wire`.
fn note(taken: &mut Taken, tensors: &[View], group: &[usize], wire: &Wire, bucket: bool) {
    let shared = wire.algorithm == Algorithm::Shared;
    let any = |ask: fn(&View) -> bool| group.iter().filter_map(|&i| tensors.get(i)).any(ask);
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

fn pass_and_reduce(gate: &Gate, tensors: &[View], op: Op, taken: &mut Taken) -> Result<()> {
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
            let view = &tensors[bucket.tensors[0]];
            let wire = describe(*comm, view.dtype(), bucket.elements, op, standing)?;
            let as_it_lies = view.layout().is_c_contiguous();
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
        let together = |group: &Group| group.elements * group.dtype.itemsize().unwrap_or(1);
        let packed = groups.iter().map(together).max().unwrap_or(0);
        let rooms = (Scratch::new(packed)?, Scratch::new(direct::USUAL_ROOM)?);
        drop((rooms, Scratch::new(apart)?));
        Ok((groups, alone))
    });
    let (groups, alone) = match ready {
        Ok(groups) => groups,
        Err(why) => return Err(gate.refuse(why)),
    };
    gate.pass_as(|sequence, settings| Fingerprint::of_many(tensors, op, sequence, settings))?;
    taken.algorithm = "none";
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
        for bucket in buckets(tensors, group) {
            run(*comm, gate, tensors, &bucket, op)?;
        }
    }
    for bucket in &alone {
        let dtype = tensors[bucket.tensors[0]].dtype();
        let wire = describe(*comm, dtype, bucket.elements, op, gate.standing())?;
        note(taken, tensors, &bucket.tensors, &wire, false);
        run(*comm, gate, tensors, bucket, op)?;
    }
    Ok(())
}

fn check(comm: Comm, tensors: &[View]) -> Result<()> {
    if comm.facts(None)?.one_call {
        return Err(value_error!(
            "allreduce_many: it is dlmpi's own and needs dlmpi on every rank of an intracommunicator; reduce the tensors one by one"
        ));
    }
    for view in tensors {
        view.check_writable()?;
        if view.packed_numel().is_some() {
            return Err(value_error!(
                "allreduce_many: {} is moved, never reduced",
                view.dtype()
            ));
        }
    }
    // Only neighbours in memory can overlap; layouts with gaps may lie within each other lawfully.
    let mut places: Vec<(usize, usize)> = (tensors.iter().enumerate())
        .filter(|(_, view)| view.numel() > 0 && view.layout().is_c_contiguous())
        .map(|(i, view)| (view.data().addr(), i))
        .collect();
    // They often are.
    if !places.is_sorted() {
        places.sort_unstable();
    }
    for pair in places.windows(2) {
        let (i, j) = (pair[0].1, pair[1].1);
        let (a, b) = (&tensors[i], &tensors[j]);
        if a.device() == b.device() && may_alias(a, b) {
            return Err(value_error!(
                "allreduce_many: tensors {} and {} share memory, so one of them would be reduced twice; give each only once",
                i.min(j),
                i.max(j)
            ));
        }
    }
    Ok(())
}

fn bytes(view: &View) -> usize {
    view.numel().saturating_mul(view.itemsize())
}

/// Those that travel alone.
fn alone(tensors: &[View]) -> Vec<Bucket> {
    let large = |(_, view): &(usize, &View)| bytes(view) >= ALONE_BYTES;
    let bucket = |(i, view): (usize, &View)| Bucket {
        tensors: vec![i],
        elements: view.numel(),
    };
    tensors
        .iter()
        .enumerate()
        .filter(large)
        .map(bucket)
        .collect()
}

/// Divides the others by their dtypes, in the order in which these come.
fn groups(tensors: &[View]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let small = |view: &View| view.numel() > 0 && bytes(view) < ALONE_BYTES;
    for (i, view) in tensors.iter().enumerate().filter(|(_, view)| small(view)) {
        let at = match groups.iter().position(|group| group.dtype == view.dtype()) {
            Some(at) => at,
            None => {
                groups.push(Group {
                    dtype: view.dtype(),
                    tensors: Vec::new(),
                    elements: 0,
                });
                groups.len() - 1
            }
        };
        groups[at].tensors.push(i);
        groups[at].elements += view.numel();
    }
    groups
}

/// Divides a group into buckets, by element counts alone.
fn buckets(tensors: &[View], group: &Group) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut open = Bucket::empty();
    for &i in &group.tensors {
        let (n, item) = (tensors[i].numel(), tensors[i].itemsize());
        if (open.elements + n) * item > BUCKET_BYTES {
            buckets.push(std::mem::replace(&mut open, Bucket::empty()));
        }
        open.tensors.push(i);
        open.elements += n;
    }
    if !open.tensors.is_empty() {
        buckets.push(open);
    }
    buckets
}

impl Bucket {
    fn empty() -> Bucket {
        Bucket {
            tensors: Vec::new(),
            elements: 0,
        }
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
fn share(gate: &Gate, tensors: &[View], group: &Group, wire: &Wire) -> Result<()> {
    let Combine::Own(op) = wire.combine else {
        return Err(value_error!("allreduce_many: no kernel to combine"));
    };
    let (comm, item) = (gate.comm(), group.dtype.itemsize().unwrap_or(1));
    let (rank, ranks) = (comm.rank()? as usize, comm.size()?);
    let plain =
        |view: &View| view.layout().is_c_contiguous() && view.device().is_host_addressable();
    let views = || group.tensors.iter().filter_map(|&i| tensors.get(i));
    let apart: Vec<&View> = views().filter(|view| !plain(view)).collect();
    let packed = Scratch::new(apart.iter().map(|view| bytes(view)).sum())?;
    let hosts = Host::of_all(&apart)?;
    let mut waiting = apart.iter().copied().zip(&hosts);
    let (mut at, mut first) = (packed.ptr(), 0);
    let mut places = Vec::new();
    let mut pieces = Vec::with_capacity(group.tensors.len());
    for view in views() {
        let mut piece = Piece {
            at: view.data(),
            first,
            bytes: bytes(view),
        };
        if !plain(view)
            && let Some((view, host)) = waiting.next()
        {
            // SAFETY:
            // - the door checked the layout, and the caller holds the memory.
            // - the scratch memory has room for all tensors that are packed, and is none of them.
            unsafe { pack(view.layout(), host.data(), 0, view.numel(), at) };
            places.push((view, host, at));
            piece.at = at;
            at = at.wrapping_add(piece.bytes);
        }
        first += piece.bytes;
        pieces.push(piece);
    }
    let counts = views().map(|view| view.numel() as u64);
    let label = label([wire.label(), MANY].into_iter().chain(counts));
    let all = Elements::Pieces(pieces.into());
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
    bring_home(&places)
}

/// Unpacks results into their tensors.
fn bring_home(places: &[(&View, &Host, *mut u8)]) -> Result<()> {
    for (view, host, at) in places {
        // SAFETY:
        // - `at` holds the tensor's elements; the door found it writable and without overlap (`check`).
        unsafe { unpack(view.layout(), host.data(), 0, view.numel(), *at) };
    }
    Host::commit_all(places.iter().map(|place| (place.0, place.1)))
}

fn in_place(view: View, op: Op) -> Call {
    let mut call = Call::new(CallKind::Allreduce);
    call.send = Arg::InPlace;
    call.recv = Arg::Part(Part::whole(view));
    call.op = Some(op);
    call
}

/// Reduces one bucket.
fn run(comm: Comm, gate: &Gate, tensors: &[View], bucket: &Bucket, op: Op) -> Result<()> {
    let views: Vec<&View> = bucket
        .tensors
        .iter()
        .filter_map(|&i| tensors.get(i))
        .collect();
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
    let (Some(first), false) = (views.first(), views.len() == 1) else {
        return views.first().map_or(Ok(()), |&view| reduce(view.clone()));
    };
    let flat = Scratch::new(views.iter().map(|view| bytes(view)).sum())?;
    let mut places = Vec::with_capacity(views.len());
    let mut at = flat.ptr();
    let hosts = Host::of_all(&views)?;
    for (view, host) in views.iter().copied().zip(&hosts) {
        // SAFETY:
        // - the door checked the layout, and the caller holds the memory.
        // - the scratch memory has room for all tensors of the bucket, and is none of them.
        unsafe { pack(view.layout(), host.data(), 0, view.numel(), at) };
        places.push((view, host, at));
        at = at.wrapping_add(bytes(view));
    }
    // SAFETY:
    // - the scratch memory holds so many elements of this dtype, and outlives the view.
    reduce(unsafe {
        View::from_parts(
            flat.ptr(),
            &[bucket.elements as i64],
            None,
            first.dtype(),
            dlpack_core::Device::CPU,
            false,
        )
    }?)?;
    bring_home(&places)
}

/// Numbers a fused reduction that this rank refuses before it could be described, as [`crate::refuse`].
pub fn refuse_many(comm: &Comm, why: Error) -> Error {
    crate::refuse(comm, CallKind::Allreduce, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlpack_core::Device;

    fn view(address: usize, n: i64, dtype: DType) -> View {
        // SAFETY:
        // - the view is only looked at, never acted on, so no byte of it need exist.
        unsafe { View::from_parts(address as *mut u8, &[n], None, dtype, Device::CPU, false) }
            .expect("a lawful layout")
    }

    #[test]
    fn small_tensors_share_buckets_and_large_ones_travel_alone() {
        let tensors: Vec<View> = [
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
            .flat_map(|group| buckets(&tensors, group))
            .chain(alone(&tensors))
            .map(|bucket| (bucket.tensors, bucket.elements))
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
