//! Point-to-point messages, blocking and immediate (MPI-4.1, chapter 3). Every one is a single MPI message.

use super::{Result, call, counted, with_table};
use crate::handle::NativeHandle;
use crate::{Comm, Datatype, Mpi, Request, StatusPtr};
use libc::c_int;

macro_rules! sends {
    ($($(#[$doc:meta])* $f:ident / $large:ident = $name:literal;)*) => { impl Mpi { $(
        #[doc = concat!("`", $name, "`")]
        $(#[$doc])*
        ///
        /// # Safety
        /// - `count` elements of `datatype` may be read at `buf`, and nothing writes them during the call.
        pub unsafe fn $f(&self, buf: *const u8, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
            counted!(self, $name, $f / $large [count] (buf.cast(), count, datatype.native(), dest, tag, comm.native()))
        }
    )* } };
}

sends! {
    send / send_c = "MPI_Send";
    /// (synchronous: completes when the receive has started)
    ssend / ssend_c = "MPI_Ssend";
    /// (from the buffer of [`buffer_attach`](Self::buffer_attach))
    bsend / bsend_c = "MPI_Bsend";
    /// (the receive must have been posted)
    rsend / rsend_c = "MPI_Rsend";
}

macro_rules! isends {
    ($($f:ident / $large:ident = $name:literal;)*) => { impl Mpi { $(
        #[doc = concat!("`", $name, "`")]
        ///
        /// # Safety
        /// - `count` elements of `datatype` may be read at `buf`, and nothing writes or frees them
        ///   until the request completes.
        pub unsafe fn $f(&self, buf: *const u8, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
            counted!(self, $name, $f / $large [count] (buf.cast(), count, datatype.native(), dest, tag, comm.native(), &mut request) => request)
                .map(Request::from_bits)
        }
    )* } };
}

isends! {
    isend / isend_c = "MPI_Isend";
    issend / issend_c = "MPI_Issend";
    ibsend / ibsend_c = "MPI_Ibsend";
    irsend / irsend_c = "MPI_Irsend";
}

impl Mpi {
    /// `MPI_Recv`
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be written at `buf`, and nothing else touches them during the call.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn recv(
        &self,
        buf: *mut u8,
        count: i64,
        datatype: Datatype,
        source: i32,
        tag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<()> {
        let status = self.status_argument(status);
        counted!(
            self,
            "MPI_Recv",
            recv / recv_c[count](
                buf.cast(),
                count,
                datatype.native(),
                source,
                tag,
                comm.native(),
                status
            )
        )
    }

    /// `MPI_Irecv`
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be written at `buf`, and nothing else touches or frees them
    ///   until the request completes.
    pub unsafe fn irecv(
        &self,
        buf: *mut u8,
        count: i64,
        datatype: Datatype,
        source: i32,
        tag: i32,
        comm: Comm,
    ) -> Result<Request> {
        counted!(self, "MPI_Irecv", irecv / irecv_c [count] (buf.cast(), count, datatype.native(), source, tag, comm.native(), &mut request) => request)
            .map(Request::from_bits)
    }

    /// `MPI_Sendrecv`
    ///
    /// # Safety
    /// - `sendcount` elements of `sendtype` may be read at `sendbuf`, and `recvcount` elements of `recvtype` written at
    ///   `recvbuf`; the two do not overlap, and nothing else touches them during the call.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn sendrecv(
        &self,
        sendbuf: *const u8,
        sendcount: i64,
        sendtype: Datatype,
        dest: i32,
        sendtag: i32,
        recvbuf: *mut u8,
        recvcount: i64,
        recvtype: Datatype,
        source: i32,
        recvtag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<()> {
        let status = self.status_argument(status);
        counted!(self, "MPI_Sendrecv", sendrecv / sendrecv_c [sendcount, recvcount] (
            sendbuf.cast(), sendcount, sendtype.native(), dest, sendtag,
            recvbuf.cast(), recvcount, recvtype.native(), source, recvtag, comm.native(), status,
        ))
    }

    /// `MPI_Isendrecv`; `None` where the library has none (it came with MPI-4.0).
    ///
    /// # Safety
    /// - As for [`sendrecv`](Self::sendrecv), until the request completes.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn isendrecv(
        &self,
        sendbuf: *const u8,
        sendcount: c_int,
        sendtype: Datatype,
        dest: i32,
        sendtag: i32,
        recvbuf: *mut u8,
        recvcount: c_int,
        recvtype: Datatype,
        source: i32,
        recvtag: i32,
        comm: Comm,
    ) -> Result<Option<Request>> {
        let (code, bits) = with_table!(self, |table| {
            let Some(isendrecv) = table.isendrecv else {
                return Ok(None);
            };
            let mut request = Default::default();
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - Handles are live ones of this library; the buffers are valid by this function's own contract.
            let code = unsafe {
                isendrecv(
                    sendbuf.cast(),
                    sendcount,
                    sendtype.native(),
                    dest,
                    sendtag,
                    recvbuf.cast(),
                    recvcount,
                    recvtype.native(),
                    source,
                    recvtag,
                    comm.native(),
                    &mut request,
                )
            };
            (code, request.to_bits())
        });
        self.check("MPI_Isendrecv", code)?;
        Ok(Some(Request::from_bits(bits)))
    }

    /// `MPI_Sendrecv_replace`
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be read and written at `buf`, and nothing else touches them during the call.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    #[allow(clippy::too_many_arguments, reason = "MPI's signature")]
    pub unsafe fn sendrecv_replace(
        &self,
        buf: *mut u8,
        count: i64,
        datatype: Datatype,
        dest: i32,
        sendtag: i32,
        source: i32,
        recvtag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<()> {
        let status = self.status_argument(status);
        counted!(
            self,
            "MPI_Sendrecv_replace",
            sendrecv_replace
                / sendrecv_replace_c[count](
                    buf.cast(),
                    count,
                    datatype.native(),
                    dest,
                    sendtag,
                    source,
                    recvtag,
                    comm.native(),
                    status,
                )
        )
    }

    /// `MPI_Buffer_attach`: room for [`bsend`](Self::bsend).
    ///
    /// # Safety
    /// - `size` bytes at `buffer` belong to MPI until [`buffer_detach`](Self::buffer_detach) returns.
    pub unsafe fn buffer_attach(&self, buffer: *mut u8, size: i64) -> Result<()> {
        counted!(
            self,
            "MPI_Buffer_attach",
            buffer_attach / buffer_attach_c[size](buffer.cast(), size)
        )
    }

    /// `MPI_Buffer_detach`: waits for buffered messages, and gives back the address and size attached.
    pub fn buffer_detach(&self) -> Result<(*mut u8, i64)> {
        let mut buffer: *mut u8 = std::ptr::null_mut();
        let mut wide = 0;
        let code = with_table!(self, |table| match table.buffer_detach_c {
            // SAFETY:
            // - The table holds the function of this prototype.
            // - Both pointers are valid for writes of an address and an MPI_Count.
            Some(detach) => unsafe { detach((&raw mut buffer).cast(), &mut wide) },
            None => {
                let mut size = 0;
                // SAFETY:
                // - The table holds the function of this prototype.
                // - Both pointers are valid for writes of an address and an int.
                let code = unsafe { (table.buffer_detach)((&raw mut buffer).cast(), &mut size) };
                wide = i64::from(size);
                code
            }
        });
        self.check("MPI_Buffer_detach", code)?;
        Ok((buffer, wide))
    }

    /// `MPI_Cancel`: asks that a request be cancelled. It must still be completed.
    ///
    /// # Safety
    /// - `request` is one of this library's, and has not been completed.
    pub unsafe fn cancel(&self, request: Request) -> Result<()> {
        // MPI_Cancel takes a pointer to the request, but leaves the handle as it is.
        call!(self, "MPI_Cancel", cancel(&mut native) => native from request.native()).0
    }

    /// `MPI_Test_cancelled`
    ///
    /// # Safety
    /// - `status` points at a status that this library filled.
    pub unsafe fn test_cancelled(&self, status: StatusPtr) -> Result<bool> {
        let mut flag = 0;
        call!(
            self,
            "MPI_Test_cancelled",
            test_cancelled(status.0, &mut flag)
        )?;
        Ok(flag != 0)
    }
}
