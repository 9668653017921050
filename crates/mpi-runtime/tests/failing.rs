//! What every method does with an error: it returns it, with the function's name.
//!
//! Tried on a library that a C compiler makes here of the names in the table, whose every function fails.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod c_library;

use mpi_runtime::{Error, GeneralizedRequest, Keyval, Mpi, StatusPtr, ThreadLevel, UserOp, Win};
use std::collections::BTreeSet;
use std::ptr::{null, null_mut};

const TABLE: &str = include_str!("../src/table.rs");
/// What the functions return, and those with counts of `MPI_Count`.
const CODES: (i32, i32) = (15, 17);
/// The first has nothing to fail; the second ends the process; the last says what others failed with.
const NOT_TRIED: [&str; 3] = ["MPI_Wtime", "MPI_Abort", "MPI_Error_class"];

fn names() -> Vec<&'static str> {
    let rows = TABLE.split(" = c\"").skip(1);
    rows.filter_map(|row| row.split('"').next()).collect()
}

fn library() -> std::path::PathBuf {
    let mut source = String::from("#include <string.h>\n");
    for name in names() {
        let code = if name.ends_with("_c") {
            CODES.1
        } else {
            CODES.0
        };
        source += &match name {
            // Once it works: the library must be known.
            "MPI_Get_library_version" => format!(
                "int {name}(char *text, int *length) {{ static int calls; strcpy(text, \"MPICH\"); *length = 5; return calls++ ? {code} : 0; }}\n"
            ),
            // As good libraries have them: the newer form stands for the older one.
            _ if name.ends_with("_x") => continue,
            _ => format!("int {name}(void) {{ return {code}; }}\n"),
        };
    }
    c_library::build("failing", "failing", &source)
}

/// Which functions have told their error.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    fn hears<T>(&mut self, name: &str, result: Result<T, Error>) {
        let error = result
            .err()
            .unwrap_or_else(|| panic!("{name} lost its error"));
        let error = *error.mpi().unwrap_or_else(|| panic!("{name}: {error}"));
        assert_eq!(error.call, name);
        let suffix = match error.code {
            code if code == CODES.0 => "",
            code if code == CODES.1 => "_c",
            code => panic!("{name} returned {code}"),
        };
        assert_eq!(
            error.class, error.code,
            "a code that has no class is its own"
        );
        self.0.insert(format!("{name}{suffix}"));
    }
}

struct Nothing;

impl GeneralizedRequest for Nothing {
    unsafe fn query(&self, _: StatusPtr) -> Result<(), i32> {
        Ok(())
    }

    fn cancel(&self, _: bool) -> Result<(), i32> {
        Ok(())
    }
}

impl UserOp for Nothing {
    unsafe fn reduce(_: *const u8, _: *mut u8, _: i64, _: mpi_runtime::Datatype) {}
}

unsafe extern "C" fn delete(_: *mut std::ffi::c_void) {}

#[test]
fn every_function_of_the_table_tells_its_error() {
    let mpi = Mpi::open(Some(&library())).unwrap();
    let mut told = Told::default();
    try_all(mpi, 1, &mut told);
    try_all(mpi, 1 << 40, &mut told);
    let missing: Vec<_> = names()
        .into_iter()
        .filter(|name| !NOT_TRIED.contains(name) && !name.ends_with("_x"))
        // Where only one form is called, it is the newer one.
        .filter(|name| !told.0.contains(*name) && !told.0.contains(&format!("{name}_c")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Calls methods that are named as MPI's functions are.
macro_rules! calls {
    ($told:ident, $mpi:ident: $($method:ident($($argument:expr),*);)*) => {
        $($told.hears(
            &named(stringify!($method)),
            // SAFETY:
            // - the library's functions look at nothing that they are given.
            #[allow(unused_unsafe, reason = "methods that are safe stand among those that are not")]
            unsafe { $mpi.$method($($argument),*) },
        );)*
    };
}

/// `MPI_Comm_rank` for `comm_rank`.
fn named(method: &str) -> String {
    let (first, rest) = method.split_at(1);
    format!("MPI_{}{rest}", first.to_uppercase())
}

/// Calls every method, with counts that choose between the two forms of a function.
fn try_all(mpi: &Mpi, count: i64, told: &mut Told) {
    let (comm, dt, op, group) = (
        mpi.comm_null(),
        mpi.datatype_null(),
        mpi.op_null(),
        mpi.group_null(),
    );
    let (request, message, handler) = (
        mpi.request_null(),
        mpi.message_null(),
        mpi.errhandler_null(),
    );
    // SAFETY:
    // - the library's functions look at nothing that they are given.
    let win = unsafe { Win::from_raw(0) };
    let (from, to, status, key) = (null(), null_mut(), StatusPtr::ignore(), Keyval::from_raw(0));
    told.hears("MPI_Grequest_start", mpi.grequest_start(Nothing));
    told.hears("MPIX_Comm_revoke", mpi.comm_revoke(comm));
    told.hears("MPI_Op_create", mpi.op_create::<Nothing>(false));
    calls! { told, mpi:
        comm_create_keyval(delete);
        comm_free_keyval(key);
        comm_set_attr(comm, key, null_mut());
        comm_get_attr(comm, key);
        comm_delete_attr(comm, key);
        barrier(comm);
        bcast(to, count, dt, 0, comm);
        gather(from, count, dt, to, count, dt, 0, comm);
        gatherv(from, count, dt, to, &[count], &[count], dt, 0, comm);
        scatter(from, count, dt, to, count, dt, 0, comm);
        scatterv(from, &[count], &[count], dt, to, count, dt, 0, comm);
        allgather(from, count, dt, to, count, dt, comm);
        allgatherv(from, count, dt, to, &[count], &[count], dt, comm);
        alltoall(from, count, dt, to, count, dt, comm);
        alltoallv(from, &[count], &[count], dt, to, &[count], &[count], dt, comm);
        alltoallw(from, (&[1], &[0], &[dt]), to, (&[1], &[0], &[dt]), comm);
        reduce(from, to, count, dt, op, 0, comm);
        allreduce(from, to, count, dt, op, comm);
        scan(from, to, count, dt, op, comm);
        exscan(from, to, count, dt, op, comm);
        reduce_scatter(from, to, &[count], dt, op, comm);
        reduce_scatter_block(from, to, count, dt, op, comm);
        reduce_local(from, to, count, dt, op);
        comm_rank(comm);
        comm_size(comm);
        comm_remote_size(comm);
        comm_test_inter(comm);
        comm_compare(comm, comm);
        comm_dup(comm);
        comm_idup(comm);
        comm_split(comm, 0, 0);
        comm_split_type(comm, 0, 0);
        comm_create_group(comm, group, 0);
        comm_free(&mut { comm });
        comm_group(comm);
        comm_remote_group(comm);
        intercomm_create(comm, 0, comm, 0, 0);
        intercomm_merge(comm, false);
        comm_set_errhandler(comm, handler);
        comm_get_errhandler(comm);
        comm_call_errhandler(comm, 0);
        errhandler_free(&mut { handler });
        startall(&mut [request]);
        wait(&mut { request }, status);
        test(&mut { request }, status);
        waitall(&mut [request], status);
        testall(&mut [request], status);
        waitany(&mut [request], status);
        testany(&mut [request], status);
        request_free(&mut { request });
        request_get_status(request, status);
        type_contiguous(count, dt);
        type_vector(count, count, count, dt);
        type_create_hvector(count, count, count, dt);
        type_create_hindexed(&[count], &[count], dt);
        type_create_struct(&[count], &[count], &[dt]);
        type_create_resized(dt, count, count);
        type_commit(dt);
        type_free(&mut { dt });
        type_size(dt);
        type_get_extent(dt);
        type_get_true_extent(dt);
        type_get_envelope(dt);
        init_thread(ThreadLevel::Multiple);
        finalize();
        initialized();
        finalized();
        query_thread();
        is_thread_main();
        get_version();
        get_library_version();
        get_processor_name();
        error_string(0);
        grequest_complete(request);
        group_size(group);
        group_rank(group);
        group_incl(group, &[0]);
        group_compare(group, group);
        group_translate_ranks(group, &[0], group);
        group_free(&mut { group });
        ibarrier(comm);
        ibcast(to, count, dt, 0, comm);
        igather(from, count, dt, to, count, dt, 0, comm);
        igatherv(from, count, dt, to, &[count], &[count], dt, 0, comm);
        iscatter(from, count, dt, to, count, dt, 0, comm);
        iscatterv(from, &[count], &[count], dt, to, count, dt, 0, comm);
        iallgather(from, count, dt, to, count, dt, comm);
        iallgatherv(from, count, dt, to, &[count], &[count], dt, comm);
        ialltoall(from, count, dt, to, count, dt, comm);
        ialltoallv(from, &[count], &[count], dt, to, &[count], &[count], dt, comm);
        ialltoallw(from, (&[1], &[0], &[dt]), to, (&[1], &[0], &[dt]), comm);
        ireduce(from, to, count, dt, op, 0, comm);
        iallreduce(from, to, count, dt, op, comm);
        iscan(from, to, count, dt, op, comm);
        iexscan(from, to, count, dt, op, comm);
        ireduce_scatter(from, to, &[count], dt, op, comm);
        ireduce_scatter_block(from, to, count, dt, op, comm);
        op_free(&mut { op });
        op_commutative(op);
        recv(to, count, dt, 0, 0, comm, status);
        irecv(to, count, dt, 0, 0, comm);
        sendrecv(from, count, dt, 0, 0, to, count, dt, 0, 0, comm, status);
        isendrecv(from, 1, dt, 0, 0, to, 1, dt, 0, 0, comm);
        sendrecv_replace(to, count, dt, 0, 0, 0, 0, comm, status);
        buffer_attach(to, count);
        buffer_detach();
        cancel(request);
        test_cancelled(status);
        probe(0, 0, comm, status);
        iprobe(0, 0, comm, status);
        mprobe(0, 0, comm, status);
        improbe(0, 0, comm, status);
        mrecv(to, count, dt, &mut { message }, status);
        imrecv(to, count, dt, &mut { message });
        get_count(status, dt);
        get_elements(status, dt);
        status_set_elements(status, dt, count);
        status_set_cancelled(status, false);
        send(from, count, dt, 0, 0, comm);
        ssend(from, count, dt, 0, 0, comm);
        bsend(from, count, dt, 0, 0, comm);
        rsend(from, count, dt, 0, 0, comm);
        isend(from, count, dt, 0, 0, comm);
        issend(from, count, dt, 0, 0, comm);
        ibsend(from, count, dt, 0, 0, comm);
        irsend(from, count, dt, 0, 0, comm);
        pack_size(1, dt, comm);
        pack(from, 1, dt, to, 1, 0, comm);
        unpack(from, 1, 0, to, 1, dt, comm);
        put(from, 1, dt, 0, 0, win);
        get(to, 1, dt, 0, 0, win);
        accumulate(from, 1, dt, 0, 0, op, win);
        win_flush(0, win);
        win_flush_local(0, win);
        win_flush_all(win);
        win_flush_local_all(win);
    }
}
