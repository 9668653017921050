//! Communicators and their error handlers (MPI-4.1, chapters 7 and 9.3).

use super::{Result, call, with_table};
use crate::abi::Special;
use crate::calls::groups::Comparison;
use crate::handle::NativeHandle;
use crate::{Comm, Errhandler, Group, Mpi, Request};
use libc::c_int;

impl Mpi {
    /// `MPI_Comm_rank`
    #[inline]
    pub fn comm_rank(&self, comm: Comm) -> Result<i32> {
        let mut rank = 0;
        call!(self, "MPI_Comm_rank", comm_rank(comm.native(), &mut rank))?;
        Ok(rank)
    }

    /// `MPI_Comm_size`: of the local group.
    #[inline]
    pub fn comm_size(&self, comm: Comm) -> Result<i32> {
        let mut size = 0;
        call!(self, "MPI_Comm_size", comm_size(comm.native(), &mut size))?;
        Ok(size)
    }

    /// `MPI_Comm_remote_size`: an error on an intracommunicator.
    pub fn comm_remote_size(&self, comm: Comm) -> Result<i32> {
        let mut size = 0;
        call!(
            self,
            "MPI_Comm_remote_size",
            comm_remote_size(comm.native(), &mut size)
        )?;
        Ok(size)
    }

    /// `MPI_Comm_test_inter`: whether it is an intercommunicator.
    pub fn comm_test_inter(&self, comm: Comm) -> Result<bool> {
        let mut flag = 0;
        call!(
            self,
            "MPI_Comm_test_inter",
            comm_test_inter(comm.native(), &mut flag)
        )?;
        Ok(flag != 0)
    }

    /// `MPI_Comm_compare`
    pub fn comm_compare(&self, comm1: Comm, comm2: Comm) -> Result<Comparison> {
        let mut result = 0;
        call!(
            self,
            "MPI_Comm_compare",
            comm_compare(comm1.native(), comm2.native(), &mut result)
        )?;
        Ok(Comparison::from_native(result, self.constants()))
    }

    /// `MPI_Comm_dup`. Collective.
    pub fn comm_dup(&self, comm: Comm) -> Result<Comm> {
        call!(self, "MPI_Comm_dup", comm_dup(comm.native(), &mut new) => new).map(Comm::from_bits)
    }

    /// `MPI_Comm_idup`. Collective; the new communicator exists when the request completes.
    pub fn comm_idup(&self, comm: Comm) -> Result<(PendingComm, Request)> {
        // The library may write the handle as late as at completion, so its place must be stable.
        let slot: *mut u64 = Box::into_raw(Box::new(self.comm_null().raw()));
        let pending = PendingComm { slot };
        call!(self, "MPI_Comm_idup", comm_idup(comm.native(), slot.cast(), &mut request) => request)
            .map(|bits| (pending, Request::from_bits(bits)))
    }

    /// `MPI_Comm_split`; `MPI_COMM_NULL` for the colour `MPI_UNDEFINED`. Collective.
    pub fn comm_split(&self, comm: Comm, color: i32, key: i32) -> Result<Comm> {
        call!(self, "MPI_Comm_split", comm_split(comm.native(), color, key, &mut new) => new)
            .map(Comm::from_bits)
    }

    /// `MPI_Comm_split_type` with `MPI_INFO_NULL`. Collective.
    pub fn comm_split_type(&self, comm: Comm, split_type: i32, key: i32) -> Result<Comm> {
        let info = self.special(Special::InfoNull);
        call!(self, "MPI_Comm_split_type",
            comm_split_type(comm.native(), split_type, key, NativeHandle::from_bits(info), &mut new) => new)
        .map(Comm::from_bits)
    }

    /// `MPI_Comm_create_group`. Collective over the group only.
    pub fn comm_create_group(&self, comm: Comm, group: Group, tag: i32) -> Result<Comm> {
        call!(self, "MPI_Comm_create_group", comm_create_group(comm.native(), group.native(), tag, &mut new) => new)
            .map(Comm::from_bits)
    }

    /// `MPI_Comm_free`. Collective; calls the delete callbacks of attributes.
    ///
    /// # Safety
    /// - Nothing uses a copy of the handle afterwards: the library reuses its value at once.
    pub unsafe fn comm_free(&self, comm: &mut Comm) -> Result<()> {
        let (result, bits) =
            call!(self, "MPI_Comm_free", comm_free(&mut native) => native from comm.native());
        *comm = Comm::from_bits(bits);
        result
    }

    /// `MPI_Comm_group`: of an intercommunicator, the local one. The caller frees it.
    pub fn comm_group(&self, comm: Comm) -> Result<Group> {
        call!(self, "MPI_Comm_group", comm_group(comm.native(), &mut group) => group)
            .map(Group::from_bits)
    }

    /// `MPI_Comm_remote_group`. The caller frees it.
    pub fn comm_remote_group(&self, comm: Comm) -> Result<Group> {
        call!(self, "MPI_Comm_remote_group", comm_remote_group(comm.native(), &mut group) => group)
            .map(Group::from_bits)
    }

    /// `MPI_Intercomm_create`. Collective over both groups.
    pub fn intercomm_create(
        &self,
        local_comm: Comm,
        local_leader: i32,
        peer_comm: Comm,
        remote_leader: i32,
        tag: i32,
    ) -> Result<Comm> {
        call!(self, "MPI_Intercomm_create",
            intercomm_create(local_comm.native(), local_leader, peer_comm.native(), remote_leader, tag, &mut new) => new)
        .map(Comm::from_bits)
    }

    /// `MPI_Intercomm_merge`. Collective over both groups.
    pub fn intercomm_merge(&self, intercomm: Comm, high: bool) -> Result<Comm> {
        call!(self, "MPI_Intercomm_merge", intercomm_merge(intercomm.native(), c_int::from(high), &mut new) => new)
            .map(Comm::from_bits)
    }

    /// `MPI_Comm_set_errhandler`
    pub fn comm_set_errhandler(&self, comm: Comm, errhandler: Errhandler) -> Result<()> {
        call!(
            self,
            "MPI_Comm_set_errhandler",
            comm_set_errhandler(comm.native(), errhandler.native())
        )
    }

    /// `MPI_Comm_get_errhandler`. The caller frees it.
    pub fn comm_get_errhandler(&self, comm: Comm) -> Result<Errhandler> {
        call!(self, "MPI_Comm_get_errhandler", comm_get_errhandler(comm.native(), &mut handler) => handler)
            .map(Errhandler::from_bits)
    }

    /// `MPI_Comm_call_errhandler`: does with an error what the communicator's handler does with its own. Returns only
    /// if that handler does.
    pub fn comm_call_errhandler(&self, comm: Comm, errorcode: i32) -> Result<()> {
        call!(
            self,
            "MPI_Comm_call_errhandler",
            comm_call_errhandler(comm.native(), errorcode)
        )
    }

    /// `MPIX_Comm_revoke`; nothing where the library has none. Local, and heard by every rank.
    pub fn comm_revoke(&self, comm: Comm) -> Result<()> {
        let code = with_table!(self, |table| match table.comm_revoke {
            // SAFETY:
            // - The table holds the function of this prototype; the handle is a live one of this library.
            Some(revoke) => unsafe { revoke(comm.native()) },
            None => 0,
        });
        self.check("MPIX_Comm_revoke", code)
    }

    /// `MPI_Errhandler_free`
    ///
    /// # Safety
    /// - Nothing uses a copy of the handle afterwards.
    pub unsafe fn errhandler_free(&self, errhandler: &mut Errhandler) -> Result<()> {
        let (result, bits) = call!(self, "MPI_Errhandler_free", errhandler_free(&mut native) => native from errhandler.native());
        *errhandler = Errhandler::from_bits(bits);
        result
    }
}

/// The place where `MPI_Comm_idup` puts the new handle.
///
/// Dropped before [`into_comm`](Self::into_comm) it leaves its 8 bytes allocated, because the library may still
/// write them.
#[derive(Debug)]
pub struct PendingComm {
    slot: *mut u64,
}

// SAFETY:
// - The slot is a heap allocation that only this value (and MPI, until completion) refers to.
unsafe impl Send for PendingComm {}

impl PendingComm {
    /// The new communicator.
    ///
    /// # Safety
    /// - The request that came with this has completed.
    pub unsafe fn into_comm(self, mpi: &Mpi) -> Comm {
        // SAFETY:
        // - `slot` came from Box::into_raw, and consuming `self` makes this the only time it is taken back.
        // - The request has completed, so the library no longer writes it.
        let bits = unsafe { *Box::from_raw(self.slot) };
        // A C int fills the half at the slot's own address, which is the low half on little-endian machines only.
        let bits = if mpi.handle_bytes() == 4 {
            u64::from(first_word(bits))
        } else {
            bits
        };
        Comm::from_bits(bits)
    }
}

fn first_word(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}
