//! What of a call must be equal on all ranks, as numbers to compare and words to show.

use dlpack_core::{DType, TypeCode};

use crate::arg::Arg;
use crate::brief::{Brief, has_root};
use crate::call::{Call, CallKind, Kind, Op};
use crate::comm::{Comm, Role};
use crate::error::Error;
use crate::foreign::Told;
use crate::movement::{block_count, elements};

/// Fields of a fingerprint.
pub(crate) const FIELDS: usize = 7;
/// Bytes of the words that are shown on a disagreement.
pub(crate) const WORDS: usize = 384;

/// The kind of a reduction of many tensors, apart from every [`CallKind`].
const MANY: u64 = 1 << 8;

/// One call's fingerprint. A field that this rank cannot know is `None` and agrees with everything.
#[derive(Debug, Clone)]
pub(crate) struct Fingerprint {
    pub fields: [Option<u64>; FIELDS],
    /// What this rank called, or why it refused.
    pub words: String,
}

impl Fingerprint {
    /// Of a call that this rank is ready to make.
    pub fn of(comm: Comm, call: &Call, sequence: u64, settings: u64) -> Fingerprint {
        let view = call.send.view().or(call.recv.view());
        let dtype = view.map(|view| view.dtype());
        let amount = amount(comm, call);
        let fields = [
            Some(sequence),
            Some(settings),
            Some(call.kind as u64),
            dtype
                .filter(|dtype| call.kind.is_reduction() || !is_bytes(*dtype))
                .map(dtype_word),
            amount,
            call.op.map(op_word),
            has_root(call.kind).then_some(call.root as u32 as u64),
        ];
        Fingerprint {
            fields,
            words: words(call, amount),
        }
    }

    /// Of a reduction of many tensors at once, given their dtypes and element counts.
    pub fn of_many(
        tensors: impl Iterator<Item = (DType, usize)>,
        op: Op,
        sequence: u64,
        settings: u64,
    ) -> Fingerprint {
        let (mut all, mut elements) = (0, 0);
        let list: Vec<i64> = tensors
            .inspect(|(_, count)| {
                all += 1;
                elements += count;
            })
            .flat_map(|(dtype, count)| [dtype_word(dtype) as i64, count as i64])
            .collect();
        let mut fields = [None; FIELDS];
        fields[..6].copy_from_slice(&[
            Some(sequence),
            Some(settings),
            Some(MANY),
            None,
            Some(digest(&list, 1)),
            Some(op_word(op)),
        ]);
        Fingerprint {
            fields,
            words: Brief::of_many(all, elements, op).to_string(),
        }
    }

    /// Of a call that goes to MPI as the caller described it, by a derived datatype.
    pub fn of_raw(kind: Kind, sequence: u64, settings: u64) -> Fingerprint {
        Fingerprint {
            words: format!("{} by a datatype of the caller's", kind.name()),
            ..Fingerprint::of_foreign(kind, &Told::default(), sequence, settings)
        }
    }

    /// Of a call that somebody else carries out.
    pub fn of_foreign(kind: Kind, told: &Told, sequence: u64, settings: u64) -> Fingerprint {
        let fields = [
            Some(sequence),
            Some(settings),
            Some(kind.word()),
            None,
            told.same.as_deref().map(|words| fnv(words.bytes())),
            told.op.map(op_word),
            told.root.map(|root| root as u32 as u64),
        ];
        let mut words = told.brief(kind).to_string();
        if let Some(same) = &told.same {
            words += &format!(", {same}");
        }
        Fingerprint { fields, words }
    }

    /// Of a call that this rank refuses.
    pub fn refused(kind: Kind, sequence: u64, settings: u64, why: &Error) -> Fingerprint {
        Fingerprint {
            words: format!("{} refused: {why}", kind.name()),
            ..Fingerprint::of_raw(kind, sequence, settings)
        }
    }
}

/// What MPI makes equal on all ranks, in bytes of one block; of recvcounts that all ranks give, a digest.
fn amount(comm: Comm, call: &Call) -> Option<u64> {
    use CallKind::*;
    let ranks = comm.size().ok()?;
    let bytes = |arg: &Arg, count: usize| Some((count * arg.view()?.itemsize()) as u64);
    let whole = |arg: &Arg| bytes(arg, elements(arg));
    let block = |arg: &Arg| bytes(arg, block_count(arg, "", ranks).ok()?);
    let root = has_root(call.kind) && comm.role(call.root).ok()? == Role::Root;
    match call.kind {
        Bcast | Allreduce | Scan | Exscan => whole(&call.recv).or_else(|| whole(&call.send)),
        Reduce => whole(&call.send).or_else(|| whole(&call.recv)),
        Gather if root => block(&call.recv),
        Gather => whole(&call.send),
        Scatter if root => block(&call.send),
        Scatter => whole(&call.recv),
        Allgather | Alltoall => block(&call.recv),
        ReduceScatterBlock => match call.send {
            Arg::InPlace => block(&call.recv),
            _ => whole(&call.recv),
        },
        Allgatherv => match &call.recv {
            Arg::Blocks(blocks) => Some(digest(blocks.counts(), blocks.view().itemsize())),
            _ => None,
        },
        // Without counts the ranks are asked for them, which all or none must do.
        ReduceScatter => match &call.recvcounts {
            Some(counts) => Some(digest(counts, 1)),
            None => whole(&call.send),
        },
        Barrier | Gatherv | Scatterv | Alltoallv => None,
    }
}

/// Over the counts in bytes: equal lists give equal words.
fn digest(counts: &[i64], itemsize: usize) -> u64 {
    let bytes = |&count: &i64| (count as u64).wrapping_mul(itemsize as u64).to_le_bytes();
    fnv(counts.iter().flat_map(bytes))
}

/// FNV-1a over bytes.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn is_bytes(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8) || dtype.code == TypeCode::RAW
}

fn dtype_word(dtype: DType) -> u64 {
    u64::from(dtype.code.0) | (u64::from(dtype.bits) << 8) | (u64::from(dtype.lanes) << 16)
}

fn op_word(op: Op) -> u64 {
    match op {
        Op::Builtin(op) => op as u64,
        Op::Avg => 1 << 8,
        Op::Native(_) => 1 << 9,
    }
}

fn words(call: &Call, amount: Option<u64>) -> String {
    use CallKind::{Allgather, Alltoall, Gather, Scatter};
    let mut words = Brief::of(call).to_string();
    if let (Some(amount), Gather | Scatter | Allgather | Alltoall) = (amount, call.kind) {
        words += &format!(", {amount} bytes a block");
    }
    words
}
