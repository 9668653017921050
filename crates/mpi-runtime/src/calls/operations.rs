//! Own reduction operations (MPI-4.1, 6.9.5): one Rust signature over four native callbacks.

use super::with_table;
use super::{Result, call};
use crate::handle::NativeHandle;
use crate::mpi::AnyTable;
use crate::{Datatype, Mpi, Op};
use libc::{c_int, c_void};

/// A reduction operation of ours.
///
/// A type, not a closure: MPI's callback carries no state, so what tells operations apart is the function itself.
pub trait UserOp: 'static {
    /// `inout[i] = input[i] op inout[i]` for `len` elements of `datatype`. `input` is the operand of the lower rank.
    ///
    /// A panic in it ends the process.
    ///
    /// # Safety
    /// - `len` elements of `datatype` may be read at `input`, and read and written at `inout`.
    unsafe fn reduce(input: *const u8, inout: *mut u8, len: i64, datatype: Datatype);
}

impl Mpi {
    /// `MPI_Op_create`, or `MPI_Op_create_c` where the library has it, so that long vectors arrive whole.
    pub fn op_create<T: UserOp>(&self, commute: bool) -> Result<Op> {
        let commute = c_int::from(commute);
        let (code, op) = match &self.table {
            AnyTable::Int(table) => {
                let mut new: c_int = 0;
                let code = match table.op_create_c {
                    // SAFETY:
                    // - The table holds the function of this prototype; the callback has MPI_User_function_c's.
                    Some(create) => unsafe { create(large::<T, c_int>, commute, &mut new) },
                    // SAFETY:
                    // - The table holds the function of this prototype; the callback has MPI_User_function's.
                    None => unsafe { (table.op_create)(plain::<T, c_int>, commute, &mut new) },
                };
                (code, Op::from_native(new))
            }
            AnyTable::Pointer(table) => {
                let mut new: usize = 0;
                let code = match table.op_create_c {
                    // SAFETY:
                    // - The table holds the function of this prototype; the callback has MPI_User_function_c's.
                    Some(create) => unsafe { create(large::<T, usize>, commute, &mut new) },
                    // SAFETY:
                    // - The table holds the function of this prototype; the callback has MPI_User_function's.
                    None => unsafe { (table.op_create)(plain::<T, usize>, commute, &mut new) },
                };
                (code, Op::from_native(new))
            }
        };
        self.check("MPI_Op_create", code)?;
        Ok(op)
    }

    /// `MPI_Op_free`
    ///
    /// # Safety
    /// - Nothing uses a copy of the handle afterwards.
    pub unsafe fn op_free(&self, op: &mut Op) -> Result<()> {
        let (result, bits) =
            call!(self, "MPI_Op_free", op_free(&mut native) => native from op.native());
        *op = Op::from_bits(bits);
        result
    }

    /// `MPI_Op_commutative`
    pub fn op_commutative(&self, op: Op) -> Result<bool> {
        let mut flag = 0;
        call!(
            self,
            "MPI_Op_commutative",
            op_commutative(op.native(), &mut flag)
        )?;
        Ok(flag != 0)
    }
}

unsafe extern "C" fn plain<T: UserOp, H: NativeHandle>(
    input: *mut c_void,
    inout: *mut c_void,
    len: *mut c_int,
    datatype: *mut H,
) {
    // SAFETY:
    // - MPI calls this with pointers to the length and the datatype, and with vectors of that many elements.
    unsafe {
        T::reduce(
            input.cast(),
            inout.cast(),
            i64::from(*len),
            Datatype::from_native(*datatype),
        )
    }
}

unsafe extern "C" fn large<T: UserOp, H: NativeHandle>(
    input: *mut c_void,
    inout: *mut c_void,
    len: *mut i64,
    datatype: *mut H,
) {
    // SAFETY:
    // - MPI calls this with pointers to the length and the datatype, and with vectors of that many elements.
    unsafe {
        T::reduce(
            input.cast(),
            inout.cast(),
            *len,
            Datatype::from_native(*datatype),
        )
    }
}
