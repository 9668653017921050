//! One-sided operations (MPI-4.1, chapter 12) of elements of one datatype, as many as a C int counts.

use super::{Result, call, with_table};
use crate::{Datatype, Mpi, Op, Win};

impl Mpi {
    /// `MPI_Put` of as many elements of the same datatype on both sides.
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be read at `origin` until the operation has ended, and nobody writes them.
    pub unsafe fn put(
        &self,
        origin: *const u8,
        count: i32,
        datatype: Datatype,
        target: i32,
        displ: i64,
        win: Win,
    ) -> Result<()> {
        call!(
            self,
            "MPI_Put",
            put(
                origin.cast(),
                count,
                datatype.native(),
                target,
                displ,
                count,
                datatype.native(),
                win.native()
            )
        )
    }

    /// `MPI_Get` of as many elements of the same datatype on both sides.
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be written at `origin` until the operation has ended, and nothing else touches them.
    pub unsafe fn get(
        &self,
        origin: *mut u8,
        count: i32,
        datatype: Datatype,
        target: i32,
        displ: i64,
        win: Win,
    ) -> Result<()> {
        call!(
            self,
            "MPI_Get",
            get(
                origin.cast(),
                count,
                datatype.native(),
                target,
                displ,
                count,
                datatype.native(),
                win.native()
            )
        )
    }

    /// `MPI_Accumulate` of as many elements of the same datatype on both sides.
    ///
    /// # Safety
    /// - As for [`put`](Self::put); `op` is a predefined one.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn accumulate(
        &self,
        origin: *const u8,
        count: i32,
        datatype: Datatype,
        target: i32,
        displ: i64,
        op: Op,
        win: Win,
    ) -> Result<()> {
        call!(
            self,
            "MPI_Accumulate",
            accumulate(
                origin.cast(),
                count,
                datatype.native(),
                target,
                displ,
                count,
                datatype.native(),
                op.native(),
                win.native()
            )
        )
    }

    /// `MPI_Win_flush`
    pub fn win_flush(&self, rank: i32, win: Win) -> Result<()> {
        call!(self, "MPI_Win_flush", win_flush(rank, win.native()))
    }

    /// `MPI_Win_flush_local`
    pub fn win_flush_local(&self, rank: i32, win: Win) -> Result<()> {
        call!(
            self,
            "MPI_Win_flush_local",
            win_flush_local(rank, win.native())
        )
    }

    /// `MPI_Win_flush_all`
    pub fn win_flush_all(&self, win: Win) -> Result<()> {
        call!(self, "MPI_Win_flush_all", win_flush_all(win.native()))
    }

    /// `MPI_Win_flush_local_all`
    pub fn win_flush_local_all(&self, win: Win) -> Result<()> {
        call!(
            self,
            "MPI_Win_flush_local_all",
            win_flush_local_all(win.native())
        )
    }
}
