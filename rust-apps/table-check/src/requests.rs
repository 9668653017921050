//! Waits, tests, frees and cancels, on one request and on many.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Request, StatusArray, StatusBuf};

pub fn all(suite: &mut Suite) {
    suite.check("test and get_status", test);
    suite.check("waitall and testall with statuses", many);
    suite.check("waitany and testany", any);
    suite.check("free and cancel", free_and_cancel);
}

fn test(c: &Context) {
    let mpi = c.mpi;
    let mut received = [0i32];
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request.
    unsafe {
        let mut request = mpi
            .irecv(output(&mut received), 1, c.int(), c.previous(), 1, c.comm)
            .expect("irecv");
        assert_eq!(
            mpi.test(&mut request, IGNORE),
            Ok(false),
            "nobody has sent yet"
        );
        assert_ne!(request, mpi.request_null());
        c.barrier();
        let mut send = mpi
            .isend(input(&[c.rank + 5]), 1, c.int(), c.next(), 1, c.comm)
            .expect("isend");
        while !mpi
            .request_get_status(request, status.as_ptr())
            .expect("get_status")
        {}
        assert_ne!(
            request,
            mpi.request_null(),
            "get_status leaves the request alone"
        );
        assert_eq!(mpi.status_tag(status.as_ptr()), 1);
        while !mpi.test(&mut request, status.as_ptr()).expect("test") {}
        assert_eq!(request, mpi.request_null());
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(1)));
        mpi.wait(&mut send, IGNORE).expect("wait");
        assert_eq!(received, [c.previous() + 5]);
        // An empty status: any source, any tag, nothing.
        mpi.wait(&mut request, status.as_ptr())
            .expect("wait on the null request");
        assert_eq!(
            mpi.status_source(status.as_ptr()),
            mpi.constants().any_source
        );
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(0)));
    }
}

/// More requests than the table converts without allocating, of different lengths.
const MANY: usize = 40;

fn many(c: &Context) {
    let mpi = c.mpi;
    for round in 0..2 {
        let values: Vec<i32> = (0..MANY as i32).map(|i| i + c.rank).collect();
        let mut received = vec![-1i32; MANY * MANY];
        let mut statuses = StatusArray::new(mpi, 2 * MANY);
        let mut requests: Vec<Request> = Vec::new();
        // SAFETY:
        // - Every buffer is as long as its count and outlives its request; block `i` of `received` is `MANY` long.
        // - There is a status for every request.
        unsafe {
            for (i, block) in received.chunks_mut(MANY).enumerate() {
                requests.push(
                    mpi.irecv(
                        output(block),
                        MANY as i64,
                        c.int(),
                        c.previous(),
                        i as i32,
                        c.comm,
                    )
                    .expect("irecv"),
                );
            }
            for i in (0..MANY).rev() {
                requests.push(
                    mpi.isend(
                        input(&values),
                        i as i64,
                        c.int(),
                        c.next(),
                        i as i32,
                        c.comm,
                    )
                    .expect("isend"),
                );
            }
            if round == 0 {
                mpi.waitall(&mut requests, statuses.as_ptr())
                    .expect("waitall");
            } else {
                while !mpi
                    .testall(&mut requests, statuses.as_ptr())
                    .expect("testall")
                {}
            }
            assert!(
                requests
                    .iter()
                    .all(|request| *request == mpi.request_null())
            );
            for i in 0..MANY {
                let status = statuses.get(i).expect("in range");
                assert_eq!(mpi.status_tag(status), i as i32);
                assert_eq!(mpi.status_source(status), c.previous());
                assert_eq!(mpi.get_count(status, c.int()), Ok(Some(i as i64)));
            }
            assert_eq!(statuses.get(2 * MANY), None);
        }
        for (i, block) in received.chunks(MANY).enumerate() {
            let expected: Vec<i32> = (0..MANY)
                .map(|j| if j < i { j as i32 + c.previous() } else { -1 })
                .collect();
            assert_eq!(block, expected);
        }
    }
}

fn any(c: &Context) {
    let mpi = c.mpi;
    let mut received = [0i32; 3];
    let (first, rest) = received.split_at_mut(1);
    let (second, third) = rest.split_at_mut(1);
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request.
    unsafe {
        let mut requests = [
            mpi.irecv(output(first), 1, c.int(), c.previous(), 60, c.comm)
                .expect("irecv"),
            mpi.irecv(output(second), 1, c.int(), c.previous(), 61, c.comm)
                .expect("irecv"),
            mpi.irecv(output(third), 1, c.int(), c.previous(), 62, c.comm)
                .expect("irecv"),
        ];
        assert_eq!(
            mpi.testany(&mut requests, IGNORE),
            Ok(None),
            "nobody has sent yet"
        );
        c.barrier();
        mpi.send(input(&[61]), 1, c.int(), c.next(), 61, c.comm)
            .expect("send");
        assert_eq!(mpi.waitany(&mut requests, status.as_ptr()), Ok(Some(1)));
        assert_eq!(mpi.status_tag(status.as_ptr()), 61);
        assert_eq!(requests[1], mpi.request_null());
        c.barrier();
        mpi.send(input(&[62]), 1, c.int(), c.next(), 62, c.comm)
            .expect("send");
        let index = loop {
            if let Some(index) = mpi
                .testany(&mut requests, status.as_ptr())
                .expect("testany")
            {
                break index;
            }
        };
        assert_eq!(index, Some(2));
        c.barrier();
        mpi.send(input(&[60]), 1, c.int(), c.next(), 60, c.comm)
            .expect("send");
        assert_eq!(mpi.waitany(&mut requests, IGNORE), Ok(Some(0)));
        assert_eq!(
            mpi.waitany(&mut requests, IGNORE),
            Ok(None),
            "none is active"
        );
        assert_eq!(
            mpi.testany(&mut requests, IGNORE),
            Ok(Some(None)),
            "none is active"
        );
    }
    assert_eq!(received, [60, 61, 62]);
}

fn free_and_cancel(c: &Context) {
    let mpi = c.mpi;
    let mut received = [0i32];
    let mut status = StatusBuf::new();
    let value = [c.rank];
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its operation: the barrier comes after
    //   every receive.
    unsafe {
        let mut request = mpi
            .irecv(output(&mut received), 1, c.int(), c.previous(), 70, c.comm)
            .expect("irecv");
        mpi.cancel(request).expect("cancel");
        mpi.wait(&mut request, status.as_ptr()).expect("wait");
        assert_eq!(
            mpi.test_cancelled(status.as_ptr()),
            Ok(true),
            "a receive that nobody answers can be cancelled"
        );

        let mut request = mpi
            .isend(input(&value), 1, c.int(), c.next(), 71, c.comm)
            .expect("isend");
        mpi.request_free(&mut request).expect("free");
        assert_eq!(request, mpi.request_null());
        mpi.recv(
            output(&mut received),
            1,
            c.int(),
            c.previous(),
            71,
            c.comm,
            IGNORE,
        )
        .expect("recv");
        c.barrier();
    }
    assert_eq!(received, [c.previous()]);
}
