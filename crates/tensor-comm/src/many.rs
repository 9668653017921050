//! Many tensors reduced as few messages.
//!
//! Tensors of one dtype are laid end to end, in the order given, and cut where a bucket is full; what a
//! bucket holds follows from dtypes and element counts, which all ranks share. A large tensor travels
//! alone, from its own memory where it can.

use dlpack_core::{DType, View};

use crate::agreed::Place;
use crate::arg::{Arg, Part};
use crate::brief::Brief;
use crate::call::{Call, CallKind, Op};
use crate::collective::plan;
use crate::comm::Comm;
use crate::direct;
use crate::error::{Error, Result, value_error};
use crate::ground::fingerprint::Fingerprint;
use crate::ground::gate::Gate;
use crate::host::Host;
use crate::pack::{pack, unpack};
use crate::scratch::Scratch;
use crate::side::may_alias;
use crate::trace::{self, Taken};

/// Bytes of a bucket at most: large enough to be worth an algorithm, small enough for the cache.
const BUCKET_BYTES: usize = 1 << 20;
/// A tensor of so many bytes travels alone.
const ALONE_BYTES: usize = 1 << 20;

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
pub fn all_reduce_many(comm: &Comm, tensors: &[View], op: Op) -> Result<()> {
    let gate = Gate::open(*comm, CallKind::Allreduce)?;
    let _watched = gate.watch(|| Brief::of_many(tensors, op));
    let mut span = gate.trace(|| Brief::of_many(tensors, op));
    trace::takes(&mut span, || Taken {
        algorithm: "buckets",
        ..Taken::default()
    });
    let done = pass_and_reduce(&gate, tensors, op);
    trace::ended(&mut span, done)
}

fn pass_and_reduce(gate: &Gate, tensors: &[View], op: Op) -> Result<()> {
    let comm = &gate.comm();
    let ready = check(*comm, tensors).and_then(|()| {
        let buckets = buckets(tensors);
        // Everything that a call can refuse is refused before the first one is made.
        for bucket in &buckets {
            describe(*comm, tensors, bucket, op, Some(gate.place()))?;
        }
        // Nor may a rank that others wait for find out that it has no memory: what is had here stays with the thread.
        let room = buckets.iter().filter(|bucket| bucket.tensors.len() > 1);
        let room = room.map(|bucket| {
            let views = bucket.tensors.iter().filter_map(|&i| tensors.get(i));
            views.map(bytes).sum::<usize>()
        });
        let room = room.max().unwrap_or(0);
        drop((Scratch::new(room)?, Scratch::new(direct::USUAL_ROOM)?));
        Ok(buckets)
    });
    let buckets = match ready {
        Ok(buckets) => buckets,
        Err(why) => return Err(gate.refuse(why)),
    };
    gate.pass_as(|sequence, settings| Fingerprint::of_many(tensors, op, sequence, settings))?;
    for bucket in &buckets {
        if describe(*comm, tensors, bucket, op, Some(gate.place()))? {
            gate.agree_place()?;
        }
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
    let mut order: Vec<usize> = (0..tensors.len())
        .filter(|&i| tensors[i].numel() > 0 && tensors[i].layout().is_c_contiguous())
        .collect();
    order.sort_unstable_by_key(|&i| tensors[i].data() as usize);
    for pair in order.windows(2) {
        let (a, b) = (&tensors[pair[0]], &tensors[pair[1]]);
        if a.device() == b.device() && may_alias(a, b) {
            return Err(value_error!(
                "allreduce_many: tensors {} and {} share memory, so one of them would be reduced twice; give each only once",
                pair[0].min(pair[1]),
                pair[0].max(pair[1])
            ));
        }
    }
    Ok(())
}

fn bytes(view: &View) -> usize {
    view.numel().saturating_mul(view.itemsize())
}

/// Divides tensors into buckets, by dtypes and element counts alone.
fn buckets(tensors: &[View]) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut open: Vec<(DType, Bucket)> = Vec::new();
    for (i, view) in tensors.iter().enumerate() {
        let n = view.numel();
        if n == 0 {
            continue;
        }
        if bytes(view) >= ALONE_BYTES {
            buckets.push(Bucket {
                tensors: vec![i],
                elements: n,
            });
            continue;
        }
        let at = match open.iter().position(|(dtype, _)| *dtype == view.dtype()) {
            Some(at) => at,
            None => {
                open.push((view.dtype(), Bucket::empty()));
                open.len() - 1
            }
        };
        let bucket = &mut open[at].1;
        if (bucket.elements + n) * view.itemsize() > BUCKET_BYTES {
            buckets.push(std::mem::replace(bucket, Bucket::empty()));
        }
        bucket.tensors.push(i);
        bucket.elements += n;
    }
    buckets.extend(open.into_iter().map(|(_, bucket)| bucket));
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

/// Whether the reduction of a bucket hangs on where the ranks run; refuses what has no meaning.
fn describe(
    comm: Comm,
    tensors: &[View],
    bucket: &Bucket,
    op: Op,
    place: Option<Place>,
) -> Result<bool> {
    let Some(view) = bucket.tensors.first().and_then(|&i| tensors.get(i)) else {
        return Ok(false);
    };
    let mut call = in_place(view.clone(), op);
    // Only the dtype is taken from it.
    call.send = Arg::InPlace;
    let agreed = crate::Agreed::of(&call, bucket.elements, comm.facts(place)?);
    Ok(crate::wire(&agreed)?.open)
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
    let reduce = |view: View| plan(comm, &in_place(view, op), Some(gate.place()))?.run(comm, gate);
    let (Some(first), false) = (views.first(), views.len() == 1) else {
        return views.first().map_or(Ok(()), |&view| reduce(view.clone()));
    };
    let flat = Scratch::new(views.iter().map(|view| bytes(view)).sum())?;
    let mut places = Vec::with_capacity(views.len());
    let mut at = flat.ptr();
    for view in &views {
        let host = Host::of(view, &[(0, view.numel())], true)?;
        // SAFETY:
        // - the door checked the layout, and the caller holds the memory.
        // - the scratch memory has room for all tensors of the bucket, and is none of them.
        unsafe { pack(view.layout(), host.data(), 0, view.numel(), at) };
        places.push((host, at));
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
    for (view, (host, at)) in views.iter().zip(places) {
        // SAFETY:
        // - as above; the door found the tensor writable and without overlap (`check`).
        unsafe { unpack(view.layout(), host.data(), 0, view.numel(), at) };
        host.commit(view, &[(0, view.numel())])?;
    }
    Ok(())
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
        let found: Vec<(Vec<usize>, usize)> = buckets(&tensors)
            .into_iter()
            .map(|bucket| (bucket.tensors, bucket.elements))
            .collect();
        assert_eq!(
            found,
            [
                (vec![0], 300_000),
                (vec![1, 4], 101_000),
                (vec![5], 200_000),
                (vec![3, 6], 16)
            ]
        );
    }
}
