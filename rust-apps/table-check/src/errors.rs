//! What MPI reports comes back as an error with its class, and what MPI cannot be given is refused before it.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Error, StatusArray};

pub fn all(suite: &mut Suite) {
    suite.check("codes, classes and texts", classes);
    suite.check("truncation, alone and among several requests", truncation);
    suite.check("error handlers", handlers);
    suite.check("counts beyond a C int", counts);
}

fn class(result: Result<(), Error>) -> i32 {
    match result {
        Err(Error::Mpi(error)) => error.class,
        other => panic!("an MPI error was expected, this is {other:?}"),
    }
}

fn classes(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let value = [1i32];
    let mut out = [0i32];
    // SAFETY:
    // - Every buffer is a local array as long as its count, if the call gets as far as the buffer.
    unsafe {
        assert_eq!(
            class(mpi.send(input(&value), 1, c.int(), c.size + 3, 0, c.comm)),
            k.err_rank
        );
        assert_eq!(
            class(mpi.send(input(&value), 1, c.int(), 0, -77, c.comm)),
            k.err_tag
        );
        assert_eq!(
            class(mpi.send(input(&value), -1, c.int(), 0, 0, c.comm)),
            k.err_count
        );
        assert_eq!(
            class(mpi.send(input(&value), 1, mpi.datatype_null(), 0, 0, c.comm)),
            k.err_type
        );
        assert_eq!(
            class(mpi.bcast(output(&mut out), 1, c.int(), c.size, c.comm)),
            k.err_root
        );
        assert_eq!(
            class(mpi.allreduce(
                input(&value),
                output(&mut out),
                1,
                c.int(),
                mpi.op_null(),
                c.comm
            )),
            k.err_op
        );
    }
    assert_eq!(
        mpi.comm_rank(mpi.comm_null())
            .map_err(|error| class(Err(error))),
        Err(k.err_comm)
    );

    // SAFETY:
    // - The rank is refused before the buffer is looked at.
    let error = unsafe { mpi.send(input(&value), 1, c.int(), c.size, 0, c.comm) }
        .expect_err("no such rank");
    let reported = *error.mpi().expect("MPI reports it");
    assert_eq!(reported.call, "MPI_Send");
    assert_eq!(mpi.error_class(reported.code), Ok(reported.class));
    assert_eq!(mpi.error_string(reported.code), Ok(reported.text()));
    assert!(
        reported.text().to_lowercase().contains("rank"),
        "{}",
        reported.text()
    );
    assert!(error.to_string().starts_with("MPI_Send: "), "{error}");

    // Asking for what does not exist ends in an error or an answer, and never in a loop.
    let _ = mpi.error_class(i32::MAX);
    let _ = mpi.error_string(i32::MIN);
    assert_eq!(mpi.error_class(k.success), Ok(k.success));
}

fn truncation(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let values = [c.rank; 4];
    let (mut short, mut fits) = ([0i32; 2], [0i32; 4]);
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request; there is a status for each.
    unsafe {
        let mut send = mpi
            .isend(input(&values), 4, c.int(), c.next(), 1, c.comm)
            .expect("isend");
        let result = mpi.recv(
            output(&mut short),
            2,
            c.int(),
            c.previous(),
            1,
            c.comm,
            IGNORE,
        );
        assert_eq!(class(result), k.err_truncate);
        // Whether the sender learns of it is the library's choice.
        let _ = mpi.wait(&mut send, IGNORE);
        c.barrier();

        let mut sends = [
            mpi.isend(input(&values), 4, c.int(), c.next(), 2, c.comm)
                .expect("isend"),
            mpi.isend(input(&values), 4, c.int(), c.next(), 3, c.comm)
                .expect("isend"),
        ];
        let mut statuses = StatusArray::new(mpi, 2);
        let mut receives = [
            mpi.irecv(output(&mut fits), 4, c.int(), c.previous(), 2, c.comm)
                .expect("irecv"),
            mpi.irecv(output(&mut short), 2, c.int(), c.previous(), 3, c.comm)
                .expect("irecv"),
        ];
        let result = mpi.waitall(&mut receives, statuses.as_ptr());
        assert_eq!(class(result), k.err_in_status);
        let of_second = mpi.status_error(statuses.get(1).expect("in range"));
        assert_eq!(mpi.error_class(of_second), Ok(k.err_truncate));
        let of_first = mpi.status_error(statuses.get(0).expect("in range"));
        if of_first == k.err_pending {
            // MPI may give up at the first failure and leave the rest to be waited for again.
            mpi.wait(&mut receives[0], IGNORE).expect("wait");
        } else {
            assert_eq!(of_first, k.success);
        }
        assert_eq!(fits, [c.previous(); 4]);
        let _ = mpi.waitall(&mut sends, IGNORE);
    }
}

fn handlers(c: &Context) {
    let mpi = c.mpi;
    let mut comm = mpi.comm_dup(c.comm).expect("dup");
    let mut handler = mpi.comm_get_errhandler(comm).expect("get_errhandler");
    assert_eq!(
        handler,
        mpi.errors_return(),
        "a duplicate inherits the handler"
    );
    // SAFETY:
    // - The handle is not used again.
    unsafe { mpi.errhandler_free(&mut handler).expect("free") };
    assert_eq!(handler, mpi.errhandler_null());

    mpi.comm_set_errhandler(comm, mpi.errors_are_fatal())
        .expect("set_errhandler");
    assert_eq!(mpi.comm_get_errhandler(comm), Ok(mpi.errors_are_fatal()));
    mpi.comm_set_errhandler(comm, mpi.errors_return())
        .expect("set_errhandler");
    // Under MPI_ERRORS_RETURN calling the handler does nothing.
    mpi.comm_call_errhandler(comm, mpi.constants().err_truncate)
        .expect("call_errhandler");
    // SAFETY:
    // - The communicator is not used again.
    unsafe { mpi.comm_free(&mut comm).expect("free") };
}

fn counts(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let beyond = i64::from(i32::MAX) + 1;
    let byte = c.datatype(mpi_runtime::Basic::Byte);
    // To no process nothing is read, so that the count alone is tried.
    // SAFETY:
    // - A message to MPI_PROC_NULL does not touch the buffer.
    let sent = unsafe { mpi.send(input(&[0u8]), beyond, byte, k.proc_null, 0, c.comm) };
    // SAFETY:
    // - MPI_COMM_SELF has no other rank; zero counts read and write nothing, and the displacement is never used.
    let gathered = unsafe {
        let mut nothing = [0u8];
        mpi.gatherv(
            input(&[0u8]),
            0,
            byte,
            output(&mut nothing),
            &[0],
            &[beyond],
            byte,
            0,
            mpi.comm_self(),
        )
    };
    let contiguous = mpi.type_contiguous(beyond, byte);
    if mpi.has_large_counts() {
        assert_eq!(sent, Ok(()));
        assert_eq!(gathered, Ok(()));
        let mut datatype = contiguous.expect("contiguous");
        assert_eq!(mpi.type_size(datatype), Ok(beyond));
        assert_eq!(
            mpi.type_get_envelope(datatype).expect("envelope").combiner,
            k.combiner_contiguous
        );
        // SAFETY:
        // - The handle is not used again.
        unsafe { mpi.type_free(&mut datatype).expect("free") };
        return;
    }
    let refused = |call, argument| Error::CountTooLarge {
        call,
        argument,
        value: beyond,
        limit: i64::from(i32::MAX),
    };
    assert_eq!(sent, Err(refused("MPI_Send", "count")));
    assert_eq!(gathered, Err(refused("MPI_Gatherv", "displs")));
    assert_eq!(
        contiguous.expect_err("no large counts"),
        refused("MPI_Type_contiguous", "count")
    );
}
