//! The table of function pointers: one typed prototype per MPI function, looked up by name.
//! Knows C signatures only; which handle numbers are meaningful is `abi`'s business.

use crate::handle::NativeHandle;
use crate::library::Library;
use libc::{c_char, c_double, c_int, c_void};

/// `const void *`
pub(crate) type In = *const c_void;
/// `void *`, and `MPI_Status *`
pub(crate) type Out = *mut c_void;
/// `MPI_Count` and `MPI_Aint` on every 64-bit ABI.
pub(crate) type Big = i64;
type Ints = *const c_int;
type Bigs = *const Big;
type IntOut = *mut c_int;

pub(crate) type UserFn<H> = unsafe extern "C" fn(Out, Out, *mut c_int, *mut H);
pub(crate) type UserFnC<H> = unsafe extern "C" fn(Out, Out, *mut Big, *mut H);
pub(crate) type CopyAttrFn<H> = unsafe extern "C" fn(H, c_int, Out, Out, Out, *mut c_int) -> c_int;
pub(crate) type DeleteAttrFn<H> = unsafe extern "C" fn(H, c_int, Out, Out) -> c_int;
pub(crate) type QueryFn = unsafe extern "C" fn(Out, Out) -> c_int;
pub(crate) type FreeFn = unsafe extern "C" fn(Out) -> c_int;
pub(crate) type CancelFn = unsafe extern "C" fn(Out, c_int) -> c_int;

macro_rules! table {
    (
        required { $($r:ident = $rs:literal ($($rt:ty),*) $(-> $rr:ty)?;)* }
        optional { $($o:ident = $os:literal ($($ot:ty),*);)* }
    ) => {
        pub(crate) struct Table<H: NativeHandle> {
            $(pub $r: unsafe extern "C" fn($($rt),*) -> table!(@ret $($rr)?),)*
            $(pub $o: Option<unsafe extern "C" fn($($ot),*) -> c_int>,)*
        }

        impl<H: NativeHandle> Table<H> {
            /// Looks every function up. The error is the name of the first required one that is missing.
            ///
            /// # Safety
            /// - `library` is an MPI library whose handles have the width of `H`.
            pub unsafe fn load(library: &Library) -> Result<Self, &'static str> {
                Ok(Table {
                    $($r: {
                        let pointer = library.symbol($rs).ok_or(crate::table::text($rs))?;
                        // SAFETY:
                        // - The symbol is the MPI function of this name, whose C prototype this row repeats.
                        // - Handles are `H` wide, by this function's own contract.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($rt),*) -> table!(@ret $($rr)?)>(pointer.as_ptr()) }
                    },)*
                    $($o: library.symbol($os).map(|pointer| {
                        // SAFETY:
                        // - The symbol is the MPI function of this name, whose C prototype this row repeats.
                        // - Handles are `H` wide, by this function's own contract.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ot),*) -> c_int>(pointer.as_ptr()) }
                    }),)*
                })
            }
        }

        /// Every field with the name that it is looked up by.
        #[cfg(test)]
        const ROWS: &[(&str, &std::ffi::CStr)] = &[$((stringify!($r), $rs),)* $((stringify!($o), $os),)*];
    };
    (@ret) => { c_int };
    (@ret $t:ty) => { $t };
}

/// The names are ASCII literals of this file.
pub(crate) fn text(name: &'static std::ffi::CStr) -> &'static str {
    name.to_str().unwrap_or("?")
}

table! {
    required {
        // environment
        init_thread = c"MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, IntOut);
        finalize = c"MPI_Finalize" ();
        initialized = c"MPI_Initialized" (IntOut);
        finalized = c"MPI_Finalized" (IntOut);
        query_thread = c"MPI_Query_thread" (IntOut);
        is_thread_main = c"MPI_Is_thread_main" (IntOut);
        get_version = c"MPI_Get_version" (IntOut, IntOut);
        get_library_version = c"MPI_Get_library_version" (*mut c_char, IntOut);
        get_processor_name = c"MPI_Get_processor_name" (*mut c_char, IntOut);
        wtime = c"MPI_Wtime" () -> c_double;
        abort = c"MPI_Abort" (H, c_int);
        error_class = c"MPI_Error_class" (c_int, IntOut);
        error_string = c"MPI_Error_string" (c_int, *mut c_char, IntOut);
        // communicators, groups, error handlers, attributes
        comm_rank = c"MPI_Comm_rank" (H, IntOut);
        comm_size = c"MPI_Comm_size" (H, IntOut);
        comm_remote_size = c"MPI_Comm_remote_size" (H, IntOut);
        comm_test_inter = c"MPI_Comm_test_inter" (H, IntOut);
        comm_compare = c"MPI_Comm_compare" (H, H, IntOut);
        comm_dup = c"MPI_Comm_dup" (H, *mut H);
        comm_idup = c"MPI_Comm_idup" (H, *mut H, *mut H);
        comm_split = c"MPI_Comm_split" (H, c_int, c_int, *mut H);
        comm_split_type = c"MPI_Comm_split_type" (H, c_int, c_int, H, *mut H);
        comm_create_group = c"MPI_Comm_create_group" (H, H, c_int, *mut H);
        comm_free = c"MPI_Comm_free" (*mut H);
        comm_group = c"MPI_Comm_group" (H, *mut H);
        comm_remote_group = c"MPI_Comm_remote_group" (H, *mut H);
        intercomm_create = c"MPI_Intercomm_create" (H, c_int, H, c_int, c_int, *mut H);
        intercomm_merge = c"MPI_Intercomm_merge" (H, c_int, *mut H);
        comm_set_errhandler = c"MPI_Comm_set_errhandler" (H, H);
        comm_get_errhandler = c"MPI_Comm_get_errhandler" (H, *mut H);
        comm_call_errhandler = c"MPI_Comm_call_errhandler" (H, c_int);
        errhandler_free = c"MPI_Errhandler_free" (*mut H);
        comm_create_keyval = c"MPI_Comm_create_keyval" (CopyAttrFn<H>, DeleteAttrFn<H>, IntOut, Out);
        comm_free_keyval = c"MPI_Comm_free_keyval" (IntOut);
        comm_set_attr = c"MPI_Comm_set_attr" (H, c_int, Out);
        comm_get_attr = c"MPI_Comm_get_attr" (H, c_int, Out, IntOut);
        comm_delete_attr = c"MPI_Comm_delete_attr" (H, c_int);
        group_size = c"MPI_Group_size" (H, IntOut);
        group_rank = c"MPI_Group_rank" (H, IntOut);
        group_incl = c"MPI_Group_incl" (H, c_int, Ints, *mut H);
        group_compare = c"MPI_Group_compare" (H, H, IntOut);
        group_translate_ranks = c"MPI_Group_translate_ranks" (H, c_int, Ints, H, IntOut);
        group_free = c"MPI_Group_free" (*mut H);
        // point-to-point
        send = c"MPI_Send" (In, c_int, H, c_int, c_int, H);
        ssend = c"MPI_Ssend" (In, c_int, H, c_int, c_int, H);
        bsend = c"MPI_Bsend" (In, c_int, H, c_int, c_int, H);
        rsend = c"MPI_Rsend" (In, c_int, H, c_int, c_int, H);
        recv = c"MPI_Recv" (Out, c_int, H, c_int, c_int, H, Out);
        sendrecv = c"MPI_Sendrecv" (In, c_int, H, c_int, c_int, Out, c_int, H, c_int, c_int, H, Out);
        sendrecv_replace = c"MPI_Sendrecv_replace" (Out, c_int, H, c_int, c_int, c_int, c_int, H, Out);
        isend = c"MPI_Isend" (In, c_int, H, c_int, c_int, H, *mut H);
        issend = c"MPI_Issend" (In, c_int, H, c_int, c_int, H, *mut H);
        ibsend = c"MPI_Ibsend" (In, c_int, H, c_int, c_int, H, *mut H);
        irsend = c"MPI_Irsend" (In, c_int, H, c_int, c_int, H, *mut H);
        irecv = c"MPI_Irecv" (Out, c_int, H, c_int, c_int, H, *mut H);
        probe = c"MPI_Probe" (c_int, c_int, H, Out);
        iprobe = c"MPI_Iprobe" (c_int, c_int, H, IntOut, Out);
        mprobe = c"MPI_Mprobe" (c_int, c_int, H, *mut H, Out);
        improbe = c"MPI_Improbe" (c_int, c_int, H, IntOut, *mut H, Out);
        mrecv = c"MPI_Mrecv" (Out, c_int, H, *mut H, Out);
        imrecv = c"MPI_Imrecv" (Out, c_int, H, *mut H, *mut H);
        buffer_attach = c"MPI_Buffer_attach" (Out, c_int);
        buffer_detach = c"MPI_Buffer_detach" (Out, IntOut);
        // completion and statuses
        wait = c"MPI_Wait" (*mut H, Out);
        waitall = c"MPI_Waitall" (c_int, *mut H, Out);
        waitany = c"MPI_Waitany" (c_int, *mut H, IntOut, Out);
        test = c"MPI_Test" (*mut H, IntOut, Out);
        testall = c"MPI_Testall" (c_int, *mut H, IntOut, Out);
        testany = c"MPI_Testany" (c_int, *mut H, IntOut, IntOut, Out);
        cancel = c"MPI_Cancel" (*mut H);
        startall = c"MPI_Startall" (c_int, *mut H);
        request_free = c"MPI_Request_free" (*mut H);
        request_get_status = c"MPI_Request_get_status" (H, IntOut, Out);
        test_cancelled = c"MPI_Test_cancelled" (In, IntOut);
        get_count = c"MPI_Get_count" (In, H, IntOut);
        get_elements = c"MPI_Get_elements" (In, H, IntOut);
        status_set_elements = c"MPI_Status_set_elements" (Out, H, c_int);
        status_set_cancelled = c"MPI_Status_set_cancelled" (Out, c_int);
        grequest_start = c"MPI_Grequest_start" (QueryFn, FreeFn, CancelFn, Out, *mut H);
        grequest_complete = c"MPI_Grequest_complete" (H);
        // collectives
        barrier = c"MPI_Barrier" (H);
        bcast = c"MPI_Bcast" (Out, c_int, H, c_int, H);
        gather = c"MPI_Gather" (In, c_int, H, Out, c_int, H, c_int, H);
        gatherv = c"MPI_Gatherv" (In, c_int, H, Out, Ints, Ints, H, c_int, H);
        scatter = c"MPI_Scatter" (In, c_int, H, Out, c_int, H, c_int, H);
        scatterv = c"MPI_Scatterv" (In, Ints, Ints, H, Out, c_int, H, c_int, H);
        allgather = c"MPI_Allgather" (In, c_int, H, Out, c_int, H, H);
        allgatherv = c"MPI_Allgatherv" (In, c_int, H, Out, Ints, Ints, H, H);
        alltoall = c"MPI_Alltoall" (In, c_int, H, Out, c_int, H, H);
        alltoallv = c"MPI_Alltoallv" (In, Ints, Ints, H, Out, Ints, Ints, H, H);
        alltoallw = c"MPI_Alltoallw" (In, Ints, Ints, *const H, Out, Ints, Ints, *const H, H);
        reduce = c"MPI_Reduce" (In, Out, c_int, H, H, c_int, H);
        allreduce = c"MPI_Allreduce" (In, Out, c_int, H, H, H);
        scan = c"MPI_Scan" (In, Out, c_int, H, H, H);
        exscan = c"MPI_Exscan" (In, Out, c_int, H, H, H);
        reduce_scatter = c"MPI_Reduce_scatter" (In, Out, Ints, H, H, H);
        reduce_scatter_block = c"MPI_Reduce_scatter_block" (In, Out, c_int, H, H, H);
        reduce_local = c"MPI_Reduce_local" (In, Out, c_int, H, H);
        ibarrier = c"MPI_Ibarrier" (H, *mut H);
        ibcast = c"MPI_Ibcast" (Out, c_int, H, c_int, H, *mut H);
        igather = c"MPI_Igather" (In, c_int, H, Out, c_int, H, c_int, H, *mut H);
        igatherv = c"MPI_Igatherv" (In, c_int, H, Out, Ints, Ints, H, c_int, H, *mut H);
        iscatter = c"MPI_Iscatter" (In, c_int, H, Out, c_int, H, c_int, H, *mut H);
        iscatterv = c"MPI_Iscatterv" (In, Ints, Ints, H, Out, c_int, H, c_int, H, *mut H);
        iallgather = c"MPI_Iallgather" (In, c_int, H, Out, c_int, H, H, *mut H);
        iallgatherv = c"MPI_Iallgatherv" (In, c_int, H, Out, Ints, Ints, H, H, *mut H);
        ialltoall = c"MPI_Ialltoall" (In, c_int, H, Out, c_int, H, H, *mut H);
        ialltoallv = c"MPI_Ialltoallv" (In, Ints, Ints, H, Out, Ints, Ints, H, H, *mut H);
        ialltoallw = c"MPI_Ialltoallw" (In, Ints, Ints, *const H, Out, Ints, Ints, *const H, H, *mut H);
        ireduce = c"MPI_Ireduce" (In, Out, c_int, H, H, c_int, H, *mut H);
        iallreduce = c"MPI_Iallreduce" (In, Out, c_int, H, H, H, *mut H);
        iscan = c"MPI_Iscan" (In, Out, c_int, H, H, H, *mut H);
        iexscan = c"MPI_Iexscan" (In, Out, c_int, H, H, H, *mut H);
        ireduce_scatter = c"MPI_Ireduce_scatter" (In, Out, Ints, H, H, H, *mut H);
        ireduce_scatter_block = c"MPI_Ireduce_scatter_block" (In, Out, c_int, H, H, H, *mut H);
        // windows
        put = c"MPI_Put" (In, c_int, H, c_int, Big, c_int, H, H);
        get = c"MPI_Get" (Out, c_int, H, c_int, Big, c_int, H, H);
        accumulate = c"MPI_Accumulate" (In, c_int, H, c_int, Big, c_int, H, H, H);
        win_flush = c"MPI_Win_flush" (c_int, H);
        win_flush_local = c"MPI_Win_flush_local" (c_int, H);
        win_flush_all = c"MPI_Win_flush_all" (H);
        win_flush_local_all = c"MPI_Win_flush_local_all" (H);
        // datatypes and operations
        pack = c"MPI_Pack" (In, c_int, H, Out, c_int, IntOut, H);
        unpack = c"MPI_Unpack" (In, c_int, IntOut, Out, c_int, H, H);
        pack_size = c"MPI_Pack_size" (c_int, H, H, IntOut);
        type_contiguous = c"MPI_Type_contiguous" (c_int, H, *mut H);
        type_vector = c"MPI_Type_vector" (c_int, c_int, c_int, H, *mut H);
        type_create_hvector = c"MPI_Type_create_hvector" (c_int, c_int, Big, H, *mut H);
        type_create_hindexed = c"MPI_Type_create_hindexed" (c_int, Ints, Bigs, H, *mut H);
        type_create_struct = c"MPI_Type_create_struct" (c_int, Ints, Bigs, *const H, *mut H);
        type_create_resized = c"MPI_Type_create_resized" (H, Big, Big, *mut H);
        type_commit = c"MPI_Type_commit" (*mut H);
        type_free = c"MPI_Type_free" (*mut H);
        type_size = c"MPI_Type_size" (H, IntOut);
        type_get_extent = c"MPI_Type_get_extent" (H, *mut Big, *mut Big);
        type_get_true_extent = c"MPI_Type_get_true_extent" (H, *mut Big, *mut Big);
        type_get_envelope = c"MPI_Type_get_envelope" (H, IntOut, IntOut, IntOut, IntOut);
        op_create = c"MPI_Op_create" (UserFn<H>, c_int, *mut H);
        op_free = c"MPI_Op_free" (*mut H);
        op_commutative = c"MPI_Op_commutative" (H, IntOut);
    }
    optional {
        comm_revoke = c"MPIX_Comm_revoke" (H);
        send_c = c"MPI_Send_c" (In, Big, H, c_int, c_int, H);
        ssend_c = c"MPI_Ssend_c" (In, Big, H, c_int, c_int, H);
        bsend_c = c"MPI_Bsend_c" (In, Big, H, c_int, c_int, H);
        rsend_c = c"MPI_Rsend_c" (In, Big, H, c_int, c_int, H);
        recv_c = c"MPI_Recv_c" (Out, Big, H, c_int, c_int, H, Out);
        sendrecv_c = c"MPI_Sendrecv_c" (In, Big, H, c_int, c_int, Out, Big, H, c_int, c_int, H, Out);
        sendrecv_replace_c = c"MPI_Sendrecv_replace_c" (Out, Big, H, c_int, c_int, c_int, c_int, H, Out);
        isendrecv = c"MPI_Isendrecv" (In, c_int, H, c_int, c_int, Out, c_int, H, c_int, c_int, H, *mut H);
        isend_c = c"MPI_Isend_c" (In, Big, H, c_int, c_int, H, *mut H);
        issend_c = c"MPI_Issend_c" (In, Big, H, c_int, c_int, H, *mut H);
        ibsend_c = c"MPI_Ibsend_c" (In, Big, H, c_int, c_int, H, *mut H);
        irsend_c = c"MPI_Irsend_c" (In, Big, H, c_int, c_int, H, *mut H);
        irecv_c = c"MPI_Irecv_c" (Out, Big, H, c_int, c_int, H, *mut H);
        mrecv_c = c"MPI_Mrecv_c" (Out, Big, H, *mut H, Out);
        imrecv_c = c"MPI_Imrecv_c" (Out, Big, H, *mut H, *mut H);
        buffer_attach_c = c"MPI_Buffer_attach_c" (Out, Big);
        buffer_detach_c = c"MPI_Buffer_detach_c" (Out, *mut Big);
        get_count_c = c"MPI_Get_count_c" (In, H, *mut Big);
        get_elements_c = c"MPI_Get_elements_c" (In, H, *mut Big);
        get_elements_x = c"MPI_Get_elements_x" (In, H, *mut Big);
        status_set_elements_c = c"MPI_Status_set_elements_c" (Out, H, Big);
        status_set_elements_x = c"MPI_Status_set_elements_x" (Out, H, Big);
        bcast_c = c"MPI_Bcast_c" (Out, Big, H, c_int, H);
        gather_c = c"MPI_Gather_c" (In, Big, H, Out, Big, H, c_int, H);
        gatherv_c = c"MPI_Gatherv_c" (In, Big, H, Out, Bigs, Bigs, H, c_int, H);
        scatter_c = c"MPI_Scatter_c" (In, Big, H, Out, Big, H, c_int, H);
        scatterv_c = c"MPI_Scatterv_c" (In, Bigs, Bigs, H, Out, Big, H, c_int, H);
        allgather_c = c"MPI_Allgather_c" (In, Big, H, Out, Big, H, H);
        allgatherv_c = c"MPI_Allgatherv_c" (In, Big, H, Out, Bigs, Bigs, H, H);
        alltoall_c = c"MPI_Alltoall_c" (In, Big, H, Out, Big, H, H);
        alltoallv_c = c"MPI_Alltoallv_c" (In, Bigs, Bigs, H, Out, Bigs, Bigs, H, H);
        reduce_c = c"MPI_Reduce_c" (In, Out, Big, H, H, c_int, H);
        allreduce_c = c"MPI_Allreduce_c" (In, Out, Big, H, H, H);
        scan_c = c"MPI_Scan_c" (In, Out, Big, H, H, H);
        exscan_c = c"MPI_Exscan_c" (In, Out, Big, H, H, H);
        reduce_scatter_c = c"MPI_Reduce_scatter_c" (In, Out, Bigs, H, H, H);
        reduce_scatter_block_c = c"MPI_Reduce_scatter_block_c" (In, Out, Big, H, H, H);
        reduce_local_c = c"MPI_Reduce_local_c" (In, Out, Big, H, H);
        ibcast_c = c"MPI_Ibcast_c" (Out, Big, H, c_int, H, *mut H);
        igather_c = c"MPI_Igather_c" (In, Big, H, Out, Big, H, c_int, H, *mut H);
        igatherv_c = c"MPI_Igatherv_c" (In, Big, H, Out, Bigs, Bigs, H, c_int, H, *mut H);
        iscatter_c = c"MPI_Iscatter_c" (In, Big, H, Out, Big, H, c_int, H, *mut H);
        iscatterv_c = c"MPI_Iscatterv_c" (In, Bigs, Bigs, H, Out, Big, H, c_int, H, *mut H);
        iallgather_c = c"MPI_Iallgather_c" (In, Big, H, Out, Big, H, H, *mut H);
        iallgatherv_c = c"MPI_Iallgatherv_c" (In, Big, H, Out, Bigs, Bigs, H, H, *mut H);
        ialltoall_c = c"MPI_Ialltoall_c" (In, Big, H, Out, Big, H, H, *mut H);
        ialltoallv_c = c"MPI_Ialltoallv_c" (In, Bigs, Bigs, H, Out, Bigs, Bigs, H, H, *mut H);
        ireduce_c = c"MPI_Ireduce_c" (In, Out, Big, H, H, c_int, H, *mut H);
        iallreduce_c = c"MPI_Iallreduce_c" (In, Out, Big, H, H, H, *mut H);
        iscan_c = c"MPI_Iscan_c" (In, Out, Big, H, H, H, *mut H);
        iexscan_c = c"MPI_Iexscan_c" (In, Out, Big, H, H, H, *mut H);
        ireduce_scatter_c = c"MPI_Ireduce_scatter_c" (In, Out, Bigs, H, H, H, *mut H);
        ireduce_scatter_block_c = c"MPI_Ireduce_scatter_block_c" (In, Out, Big, H, H, H, *mut H);
        type_contiguous_c = c"MPI_Type_contiguous_c" (Big, H, *mut H);
        type_vector_c = c"MPI_Type_vector_c" (Big, Big, Big, H, *mut H);
        type_create_hvector_c = c"MPI_Type_create_hvector_c" (Big, Big, Big, H, *mut H);
        type_create_hindexed_c = c"MPI_Type_create_hindexed_c" (Big, Bigs, Bigs, H, *mut H);
        type_create_struct_c = c"MPI_Type_create_struct_c" (Big, Bigs, Bigs, *const H, *mut H);
        type_size_c = c"MPI_Type_size_c" (H, *mut Big);
        type_size_x = c"MPI_Type_size_x" (H, *mut Big);
        type_get_envelope_c = c"MPI_Type_get_envelope_c" (H, *mut Big, *mut Big, *mut Big, *mut Big, IntOut);
        op_create_c = c"MPI_Op_create_c" (UserFnC<H>, c_int, *mut H);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that looked another function up would call it with the wrong arguments.
    #[test]
    fn every_field_is_named_like_its_function() {
        for (field, symbol) in ROWS {
            // Extensions of a library are called MPIX_.
            let name = text(symbol).to_lowercase().replacen("mpix_", "mpi_", 1);
            assert_eq!(format!("mpi_{field}"), name);
        }
    }
}
