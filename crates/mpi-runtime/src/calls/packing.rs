//! Packing (MPI-4.1, 5.2), of as many elements and bytes as C ints count.

use super::{Result, call, with_table};
use crate::{Comm, Datatype, Mpi};
use libc::c_int;

impl Mpi {
    /// `MPI_Pack_size`: the most bytes that `count` elements take.
    pub fn pack_size(&self, count: i32, datatype: Datatype, comm: Comm) -> Result<i32> {
        let mut size: c_int = 0;
        call!(
            self,
            "MPI_Pack_size",
            pack_size(count, datatype.native(), comm.native(), &mut size)
        )?;
        Ok(size)
    }

    /// `MPI_Pack`: the position behind what was packed.
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be read at `inbuf`, and `outsize` bytes written at `outbuf`; nothing else touches
    ///   these during the call.
    /// - What [`pack_size`](Self::pack_size) says fits from byte `position` on.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn pack(
        &self,
        inbuf: *const u8,
        count: i32,
        datatype: Datatype,
        outbuf: *mut u8,
        outsize: i32,
        mut position: i32,
        comm: Comm,
    ) -> Result<i32> {
        call!(
            self,
            "MPI_Pack",
            pack(
                inbuf.cast(),
                count,
                datatype.native(),
                outbuf.cast(),
                outsize,
                &mut position,
                comm.native()
            )
        )?;
        Ok(position)
    }

    /// `MPI_Unpack`: the position behind what was unpacked.
    ///
    /// # Safety
    /// - `insize` bytes may be read at `inbuf`, and `count` elements of `datatype` written at `outbuf`; nothing else touches
    ///   these during the call.
    /// - What [`pack_size`](Self::pack_size) says is there from byte `position` on.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn unpack(
        &self,
        inbuf: *const u8,
        insize: i32,
        mut position: i32,
        outbuf: *mut u8,
        count: i32,
        datatype: Datatype,
        comm: Comm,
    ) -> Result<i32> {
        call!(
            self,
            "MPI_Unpack",
            unpack(
                inbuf.cast(),
                insize,
                &mut position,
                outbuf.cast(),
                count,
                datatype.native(),
                comm.native()
            )
        )?;
        Ok(position)
    }
}
