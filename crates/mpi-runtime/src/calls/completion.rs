//! Starting and completing requests (MPI-4.1, 3.7 and 3.9): starts, waits, tests and frees.

use super::{Result, call, with_requests, with_table};
use crate::{Mpi, Request, StatusPtr};
use libc::c_int;

impl Mpi {
    /// `MPI_Startall`: begins persistent operations.
    ///
    /// # Safety
    /// - Each request is a persistent one that has not been freed, and the buffers of its operation are valid until it is
    ///   complete.
    pub unsafe fn startall(&self, requests: &mut [Request]) -> Result<()> {
        let count = self.requests_count("MPI_Startall", requests)?;
        let code = with_table!(self, |table| with_requests(requests, |array| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - `array` holds `count` live requests.
            unsafe { (table.startall)(count, array) }
        }));
        self.check("MPI_Startall", code)
    }

    /// `MPI_Wait`. The request becomes `MPI_REQUEST_NULL`, or inactive if it is persistent, on errors too.
    ///
    /// # Safety
    /// - `request` has not been completed or freed through a copy of the handle.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn wait(&self, request: &mut Request, status: StatusPtr) -> Result<()> {
        let status = self.status_argument(status);
        let (result, bits) =
            call!(self, "MPI_Wait", wait(&mut native, status) => native from request.native());
        *request = Request::from_bits(bits);
        result
    }

    /// `MPI_Test`: whether the request was completed.
    ///
    /// # Safety
    /// - `request` has not been completed or freed through a copy of the handle.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn test(&self, request: &mut Request, status: StatusPtr) -> Result<bool> {
        let status = self.status_argument(status);
        let mut flag = 0;
        let (result, bits) = call!(self, "MPI_Test", test(&mut native, &mut flag, status) => native from request.native());
        *request = Request::from_bits(bits);
        result.map(|()| flag != 0)
    }

    /// `MPI_Waitall`. After an error of class `MPI_ERR_IN_STATUS` the statuses, if given, say which request failed.
    ///
    /// # Safety
    /// - No request has been completed or freed through a copy of its handle.
    /// - `statuses` is [`StatusPtr::ignore`] or as many writable statuses as there are requests
    ///   ([`StatusArray`](crate::StatusArray)).
    pub unsafe fn waitall(&self, requests: &mut [Request], statuses: StatusPtr) -> Result<()> {
        let count = self.requests_count("MPI_Waitall", requests)?;
        let statuses = self.status_argument(statuses);
        let code = with_table!(self, |table| with_requests(requests, |array| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - `array` holds `count` live requests; the statuses are valid by this function's own contract.
            unsafe { (table.waitall)(count, array, statuses) }
        }));
        self.check("MPI_Waitall", code)
    }

    /// `MPI_Testall`: whether all were completed; if not, none was.
    ///
    /// # Safety
    /// - No request has been completed or freed through a copy of its handle.
    /// - `statuses` is [`StatusPtr::ignore`] or as many writable statuses as there are requests.
    pub unsafe fn testall(&self, requests: &mut [Request], statuses: StatusPtr) -> Result<bool> {
        let count = self.requests_count("MPI_Testall", requests)?;
        let statuses = self.status_argument(statuses);
        let mut flag = 0;
        let code = with_table!(self, |table| with_requests(requests, |array| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - `array` holds `count` live requests; the statuses are valid by this function's own contract.
            unsafe { (table.testall)(count, array, &mut flag, statuses) }
        }));
        self.check("MPI_Testall", code)?;
        Ok(flag != 0)
    }

    /// `MPI_Waitany`: the index of the request that was completed; `None` if none is active.
    ///
    /// # Safety
    /// - No request has been completed or freed through a copy of its handle.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn waitany(
        &self,
        requests: &mut [Request],
        status: StatusPtr,
    ) -> Result<Option<usize>> {
        let count = self.requests_count("MPI_Waitany", requests)?;
        let status = self.status_argument(status);
        let mut index = 0;
        let code = with_table!(self, |table| with_requests(requests, |array| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - `array` holds `count` live requests; the status is valid by this function's own contract.
            unsafe { (table.waitany)(count, array, &mut index, status) }
        }));
        self.check("MPI_Waitany", code)?;
        Ok(usize::try_from(index).ok())
    }

    /// `MPI_Testany`: `None` if none of the active requests is complete; else the index of the one that was completed,
    /// or `Some(None)` if none is active.
    ///
    /// # Safety
    /// - No request has been completed or freed through a copy of its handle.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn testany(
        &self,
        requests: &mut [Request],
        status: StatusPtr,
    ) -> Result<Option<Option<usize>>> {
        let count = self.requests_count("MPI_Testany", requests)?;
        let status = self.status_argument(status);
        let (mut index, mut flag) = (0, 0);
        let code = with_table!(self, |table| with_requests(requests, |array| {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - `array` holds `count` live requests; the status is valid by this function's own contract.
            unsafe { (table.testany)(count, array, &mut index, &mut flag, status) }
        }));
        self.check("MPI_Testany", code)?;
        Ok((flag != 0).then(|| usize::try_from(index).ok()))
    }

    /// `MPI_Request_free`: lets an operation finish unseen.
    ///
    /// # Safety
    /// - `request` has not been completed or freed through a copy of the handle.
    /// - The buffers of the operation stay valid until it has finished, which nothing will report.
    pub unsafe fn request_free(&self, request: &mut Request) -> Result<()> {
        let (result, bits) = call!(self, "MPI_Request_free", request_free(&mut native) => native from request.native());
        *request = Request::from_bits(bits);
        result
    }

    /// `MPI_Request_get_status`: whether the operation is complete, without completing the request.
    ///
    /// # Safety
    /// - `request` has not been completed or freed through a copy of the handle.
    /// - `status` is [`StatusPtr::ignore`] or a writable status of this library.
    pub unsafe fn request_get_status(&self, request: Request, status: StatusPtr) -> Result<bool> {
        let status = self.status_argument(status);
        let mut flag = 0;
        call!(
            self,
            "MPI_Request_get_status",
            request_get_status(request.native(), &mut flag, status)
        )?;
        Ok(flag != 0)
    }

    fn requests_count(&self, call: &'static str, requests: &[Request]) -> Result<c_int> {
        c_int::try_from(requests.len()).map_err(|_| {
            super::too_large(
                call,
                &[("count", i64::try_from(requests.len()).unwrap_or(i64::MAX))],
            )
        })
    }
}
