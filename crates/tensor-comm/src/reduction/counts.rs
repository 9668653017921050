//! How many elements each rank contributes to a reduction and receives of it.

use super::Significant;
use crate::arg::Arg;
use crate::call::{Call, CallKind};
use crate::comm::Comm;
use crate::direct;
use crate::error::{Result, value_error};
use crate::movement::{block_count, elements};

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
    pub(super) fn contributed(&self) -> usize {
        match self {
            Counts::Whole(n) => *n,
            Counts::Even(n, ranks) => n * ranks,
            Counts::Uneven(counts) => counts.iter().sum::<i64>() as usize,
        }
    }

    /// A number that stands for them.
    pub(super) fn number(&self) -> u64 {
        match self {
            Counts::Whole(n) | Counts::Even(n, _) => *n as u64,
            Counts::Uneven(counts) => direct::label(counts.iter().map(|&n| n as u64)),
        }
    }

    /// Each rank's block, where ranks have blocks of their own.
    pub(super) fn by_root(&self) -> Option<Vec<usize>> {
        match self {
            Counts::Whole(_) => None,
            Counts::Even(n, ranks) => Some(vec![*n; *ranks]),
            Counts::Uneven(counts) => Some(counts.iter().map(|&n| n as usize).collect()),
        }
    }

    /// First element and number of elements of each rank's block.
    pub(super) fn ranges(&self) -> Vec<(usize, usize)> {
        let mut at = 0;
        self.by_root()
            .unwrap_or_default()
            .into_iter()
            .map(|n| {
                at += n;
                (at - n, n)
            })
            .collect()
    }

    /// Elements of a rank's result.
    pub(super) fn received(&self, rank: usize) -> usize {
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
pub(super) fn recvcounts(comm: Comm, call: &Call) -> Result<Vec<i64>> {
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
