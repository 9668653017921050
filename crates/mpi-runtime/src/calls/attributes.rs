//! Attributes of communicators (MPI-4.1, 7.7), with one Rust callback for every ABI.

use super::{Result, call, with_table};
use crate::handle::NativeHandle;
use crate::{Comm, Mpi};
use libc::{c_int, c_void};

/// Called when an attribute is deleted: by `MPI_Comm_free`, by [`Mpi::comm_delete_attr`], when it is set anew, and,
/// for attributes of `MPI_COMM_SELF`, at the start of `MPI_Finalize`.
///
/// Its argument is the value of the attribute. It runs inside an MPI call and may itself call MPI.
/// A panic in it ends the process.
pub type AttributeDelete = unsafe extern "C" fn(state: *mut c_void);

/// An attribute key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keyval(pub(crate) c_int);

impl Keyval {
    /// A key by its number, such as `constants().tag_ub` or one that another language made.
    pub const fn from_raw(raw: i32) -> Keyval {
        Keyval(raw)
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl Mpi {
    /// `MPI_Comm_create_keyval`. Duplicates of a communicator do not get the attribute, and `delete` gets the value of each
    /// one that goes away.
    ///
    /// # Safety
    /// - `delete` may be called with every value that [`comm_set_attr`](Self::comm_set_attr) is given with this key,
    ///   by whichever thread is in an MPI call that deletes it.
    pub unsafe fn comm_create_keyval(&self, delete: AttributeDelete) -> Result<Keyval> {
        // MPI hands `extra_state` to the callbacks: it carries the Rust function, so that one trampoline serves all.
        let extra_state = delete as *mut c_void;
        let mut keyval = 0;
        let code = match &self.table {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width, and so are the callbacks.
            // - `extra_state` is an AttributeDelete, as `delete_attribute` demands.
            crate::mpi::AnyTable::Int(table) => unsafe {
                (table.comm_create_keyval)(
                    copy_nothing::<c_int>,
                    delete_attribute::<c_int>,
                    &mut keyval,
                    extra_state,
                )
            },
            // SAFETY:
            // - As above, for pointer-wide handles.
            crate::mpi::AnyTable::Pointer(table) => unsafe {
                (table.comm_create_keyval)(
                    copy_nothing::<usize>,
                    delete_attribute::<usize>,
                    &mut keyval,
                    extra_state,
                )
            },
        };
        self.check("MPI_Comm_create_keyval", code)?;
        Ok(Keyval(keyval))
    }

    /// `MPI_Comm_free_keyval`: attributes that are set keep working until they are deleted.
    pub fn comm_free_keyval(&self, keyval: Keyval) -> Result<()> {
        let mut native = keyval.0;
        call!(self, "MPI_Comm_free_keyval", comm_free_keyval(&mut native))
    }

    /// `MPI_Comm_set_attr`
    ///
    /// # Safety
    /// - `value` is what readers and the delete callback of this key expect, and lives until that callback.
    pub unsafe fn comm_set_attr(
        &self,
        comm: Comm,
        keyval: Keyval,
        value: *mut c_void,
    ) -> Result<()> {
        call!(
            self,
            "MPI_Comm_set_attr",
            comm_set_attr(comm.native(), keyval.0, value)
        )
    }

    /// `MPI_Comm_get_attr`
    #[inline]
    pub fn comm_get_attr(&self, comm: Comm, keyval: Keyval) -> Result<Option<*mut c_void>> {
        let mut value: *mut c_void = std::ptr::null_mut();
        let mut flag = 0;
        call!(
            self,
            "MPI_Comm_get_attr",
            comm_get_attr(comm.native(), keyval.0, (&raw mut value).cast(), &mut flag)
        )?;
        Ok((flag != 0).then_some(value))
    }

    /// `MPI_Comm_delete_attr`
    pub fn comm_delete_attr(&self, comm: Comm, keyval: Keyval) -> Result<()> {
        call!(
            self,
            "MPI_Comm_delete_attr",
            comm_delete_attr(comm.native(), keyval.0)
        )
    }

    /// The largest tag of a communicator (attribute `MPI_TAG_UB`).
    pub fn tag_ub(&self, comm: Comm) -> Result<i32> {
        let value = self.comm_get_attr(comm, Keyval(self.constants().tag_ub))?;
        // SAFETY:
        // - MPI says that the value of this predefined attribute is the address of an int, valid as long as MPI is.
        Ok(value.map_or(32767, |address| unsafe { address.cast::<c_int>().read() }))
    }
}

unsafe extern "C" fn copy_nothing<H: NativeHandle>(
    _comm: H,
    _keyval: c_int,
    _extra_state: *mut c_void,
    _value: *mut c_void,
    _new_value: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY:
    // - MPI passes a pointer to an int that the callback sets.
    unsafe { flag.write(0) };
    0
}

/// # Safety
/// - `extra_state` is an [`AttributeDelete`].
unsafe extern "C" fn delete_attribute<H: NativeHandle>(
    _comm: H,
    _keyval: c_int,
    value: *mut c_void,
    extra_state: *mut c_void,
) -> c_int {
    // SAFETY:
    // - `extra_state` was made from an AttributeDelete in `comm_create_keyval`.
    // - The value is one that was set with this key: the contract of that function covers it.
    unsafe { std::mem::transmute::<*mut c_void, AttributeDelete>(extra_state)(value) };
    0
}
