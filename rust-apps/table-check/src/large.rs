//! More than 2^31 bytes in one message: by a derived datatype on every MPI, and by count where the
//! library has large counts. Needs about 5 GB of memory per rank.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Basic, StatusBuf};

pub fn all(suite: &mut Suite) {
    suite.check("more than 2^31 bytes by a derived datatype", derived);
    if suite.has_large_counts() {
        suite.check("more than 2^31 bytes by count", counted);
    } else {
        suite.ignore(
            "more than 2^31 bytes by count",
            "this MPI has no large counts",
        );
    }
}

const BYTES: usize = (1 << 31) + 8;

/// A byte that depends on every bit of its place: a period of 251 is prime to every power of two.
fn byte(i: usize) -> u8 {
    (i % 251) as u8
}

fn message() -> Vec<u8> {
    let mut period: Vec<u8> = (0..251).map(byte).collect();
    period.reserve_exact(BYTES);
    while period.len() < BYTES {
        // Whole periods are copied, so that the pattern goes on.
        let take = (period.len() - period.len() % 251).min(BYTES - period.len());
        period.extend_from_within(..take);
    }
    period
}

/// Looks at both ends, at every page, and at what lies around 2^31.
fn check(received: &[u8]) {
    let places = (0..BYTES)
        .step_by(4096)
        .chain(0..64)
        .chain(BYTES - 64..BYTES)
        .chain((1 << 31) - 64..BYTES);
    for i in places {
        assert_eq!(received[i], byte(i), "byte {i}");
    }
}

fn derived(c: &Context) {
    let mpi = c.mpi;
    let byte = c.datatype(Basic::Byte);
    // 2^31 bytes as 2^20 x 2048, and 8 more behind them.
    let mut block = mpi.type_contiguous(1 << 20, byte).expect("contiguous");
    let mut whole = mpi
        .type_create_struct(&[2048, 8], &[0, 1 << 31], &[block, byte])
        .expect("struct");
    mpi.type_commit(whole).expect("commit");
    assert_eq!(mpi.type_size(whole), Ok(BYTES as i64));
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Both buffers hold the BYTES bytes of the datatype.
    // - The datatypes are not used after they are freed.
    unsafe {
        if c.rank == 0 {
            mpi.send(input(&message()), 1, whole, 1, 5, c.comm)
                .expect("send");
        } else if c.rank == 1 {
            let mut received = vec![0u8; BYTES];
            mpi.recv(
                output(&mut received),
                1,
                whole,
                0,
                5,
                c.comm,
                status.as_ptr(),
            )
            .expect("recv");
            assert_eq!(
                mpi.get_elements(status.as_ptr(), whole),
                Ok(Some(BYTES as i64))
            );
            check(&received);
        }
        mpi.type_free(&mut whole).expect("free");
        mpi.type_free(&mut block).expect("free");
    }
}

fn counted(c: &Context) {
    let mpi = c.mpi;
    let byte = c.datatype(Basic::Byte);
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Every buffer holds BYTES bytes.
    unsafe {
        let mut data = if c.rank == 0 {
            message()
        } else {
            vec![0u8; BYTES]
        };
        if c.rank == 0 {
            mpi.send(input(&data), BYTES as i64, byte, 1, 6, c.comm)
                .expect("send");
        } else if c.rank == 1 {
            mpi.recv(
                output(&mut data),
                BYTES as i64,
                byte,
                0,
                6,
                c.comm,
                status.as_ptr(),
            )
            .expect("recv");
            assert_eq!(mpi.get_count(status.as_ptr(), byte), Ok(Some(BYTES as i64)));
            check(&data);
            data.fill(0);
        }
        mpi.bcast(output(&mut data), BYTES as i64, byte, 0, c.comm)
            .expect("bcast");
        check(&data);
        drop(data);
        mpi.send(input(&[0u8]), 0, byte, mpi.constants().proc_null, 0, c.comm)
            .expect("send");
        mpi.recv(
            output(&mut [0u8]),
            0,
            byte,
            mpi.constants().proc_null,
            0,
            c.comm,
            IGNORE,
        )
        .expect("recv");
    }
}
