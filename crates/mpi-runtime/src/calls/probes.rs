//! Looking at messages before they are received, and how much a status says was received.

use super::{Result, call, counted, with_table};
use crate::handle::NativeHandle;
use crate::{Comm, Datatype, Message, Mpi, Request, StatusPtr};
use libc::c_int;

impl Mpi {
    /// `MPI_Probe`
    ///
    /// # Safety
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn probe(&self, source: i32, tag: i32, comm: Comm, status: StatusPtr) -> Result<()> {
        let status = self.status_argument(status);
        call!(self, "MPI_Probe", probe(source, tag, comm.native(), status))
    }

    /// `MPI_Iprobe`: whether there is a message.
    ///
    /// # Safety
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn iprobe(
        &self,
        source: i32,
        tag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<bool> {
        let status = self.status_argument(status);
        let mut flag = 0;
        call!(
            self,
            "MPI_Iprobe",
            iprobe(source, tag, comm.native(), &mut flag, status)
        )?;
        Ok(flag != 0)
    }

    /// `MPI_Mprobe`: takes a message out of the queue; it must be received.
    ///
    /// # Safety
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn mprobe(
        &self,
        source: i32,
        tag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<Message> {
        let status = self.status_argument(status);
        call!(self, "MPI_Mprobe", mprobe(source, tag, comm.native(), &mut message, status) => message).map(Message::from_bits)
    }

    /// `MPI_Improbe`: takes a message out of the queue, if there is one.
    ///
    /// # Safety
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn improbe(
        &self,
        source: i32,
        tag: i32,
        comm: Comm,
        status: StatusPtr,
    ) -> Result<Option<Message>> {
        let status = self.status_argument(status);
        let mut flag = 0;
        let bits = call!(self, "MPI_Improbe", improbe(source, tag, comm.native(), &mut flag, &mut message, status) => message)?;
        Ok((flag != 0).then(|| Message::from_bits(bits)))
    }

    /// `MPI_Mrecv`
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be written at `buf`, and nothing else touches them during the call.
    /// - `message` has not been received yet; it becomes `MPI_MESSAGE_NULL`.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn mrecv(
        &self,
        buf: *mut u8,
        count: i64,
        datatype: Datatype,
        message: &mut Message,
        status: StatusPtr,
    ) -> Result<()> {
        let status = self.status_argument(status);
        let (result, bits) = counted!(self, "MPI_Mrecv", mrecv / mrecv_c [count] (
            buf.cast(), count, datatype.native(), &mut native, status,
        ) => native from message.native());
        *message = Message::from_bits(bits);
        result
    }

    /// `MPI_Imrecv`
    ///
    /// # Safety
    /// - `count` elements of `datatype` may be written at `buf`, and nothing else touches or frees them until the
    ///   request completes.
    /// - `message` has not been received yet; it becomes `MPI_MESSAGE_NULL`.
    pub unsafe fn imrecv(
        &self,
        buf: *mut u8,
        count: i64,
        datatype: Datatype,
        message: &mut Message,
    ) -> Result<Request> {
        let (code, bits, request) = with_table!(self, |table| {
            let mut native = message.native();
            let mut new = Default::default();
            let code = counted!(@call table, "MPI_Imrecv", imrecv / imrecv_c [count] (
                buf.cast(), count, datatype.native(), &mut native, &mut new
            ));
            (
                code,
                NativeHandle::to_bits(native),
                NativeHandle::to_bits(new),
            )
        });
        *message = Message::from_bits(bits);
        self.check("MPI_Imrecv", code)
            .map(|()| Request::from_bits(request))
    }

    /// `MPI_Get_count`: how many elements of `datatype` were received; `None` for `MPI_UNDEFINED` (the message is no
    /// whole number of them, or the number does not fit the library's integer).
    ///
    /// # Safety
    /// - `status` points at a status that this library filled.
    pub unsafe fn get_count(&self, status: StatusPtr, datatype: Datatype) -> Result<Option<i64>> {
        let code;
        let mut wide = 0;
        with_table!(self, |table| match table.get_count_c {
            // SAFETY:
            // - The table holds the function of this prototype; the status is valid by this function's own contract.
            Some(get) => code = unsafe { get(status.0, datatype.native(), &mut wide) },
            None => {
                let mut count = 0;
                // SAFETY:
                // - The table holds the function of this prototype; the status is valid by this function's own contract.
                code = unsafe { (table.get_count)(status.0, datatype.native(), &mut count) };
                wide = i64::from(count);
            }
        });
        self.check("MPI_Get_count", code)?;
        Ok(self.defined(wide))
    }

    /// `MPI_Get_elements`: how many basic elements were received; `None` for `MPI_UNDEFINED`. Counts beyond
    /// `i32::MAX` arrive whole (`MPI_Get_elements_x` where there is no `MPI_Get_elements_c`).
    ///
    /// # Safety
    /// - `status` points at a status that this library filled.
    pub unsafe fn get_elements(
        &self,
        status: StatusPtr,
        datatype: Datatype,
    ) -> Result<Option<i64>> {
        let code;
        let mut wide = 0;
        with_table!(
            self,
            |table| match table.get_elements_c.or(table.get_elements_x) {
                // SAFETY:
                // - The table holds the function of this prototype; the status is valid by this function's own contract.
                Some(get) => code = unsafe { get(status.0, datatype.native(), &mut wide) },
                None => {
                    let mut count = 0;
                    // SAFETY:
                    // - The table holds the function of this prototype; the status is valid by this function's own contract.
                    code = unsafe { (table.get_elements)(status.0, datatype.native(), &mut count) };
                    wide = i64::from(count);
                }
            }
        );
        self.check("MPI_Get_elements", code)?;
        Ok(self.defined(wide))
    }

    /// `MPI_Status_set_elements`: what [`get_elements`](Self::get_elements) will say.
    ///
    /// # Safety
    /// - `status` points at a writable status of this library.
    pub unsafe fn status_set_elements(
        &self,
        status: StatusPtr,
        datatype: Datatype,
        count: i64,
    ) -> Result<()> {
        let code = with_table!(self, |table| {
            if super::fits(count) {
                // SAFETY:
                // - The table holds the function of this prototype; the status is valid by this function's own contract.
                unsafe { (table.status_set_elements)(status.0, datatype.native(), count as c_int) }
            } else if let Some(set) = table.status_set_elements_c.or(table.status_set_elements_x) {
                // SAFETY:
                // - As above; the count is MPI_Count here.
                unsafe { set(status.0, datatype.native(), count) }
            } else {
                return Err(super::too_large(
                    "MPI_Status_set_elements",
                    &[("count", count)],
                ));
            }
        });
        self.check("MPI_Status_set_elements", code)
    }

    /// `MPI_Status_set_cancelled`
    ///
    /// # Safety
    /// - `status` points at a writable status of this library.
    pub unsafe fn status_set_cancelled(&self, status: StatusPtr, flag: bool) -> Result<()> {
        call!(
            self,
            "MPI_Status_set_cancelled",
            status_set_cancelled(status.0, c_int::from(flag))
        )
    }

    fn defined(&self, count: i64) -> Option<i64> {
        (count != i64::from(self.constants().undefined)).then_some(count)
    }
}
