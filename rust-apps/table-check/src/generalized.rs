//! Generalized requests: completed from another thread, waited for among MPI's own, and cancelled.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{
    GeneralizedRequest, Mpi, Request, StatusArray, StatusBuf, StatusPtr, ThreadLevel,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::Duration;

pub fn all(suite: &mut Suite) {
    suite.check("generalized requests", complete);
    suite.check("generalized requests: cancel", cancel);
    suite.check("generalized requests from a progress thread", thread);
}

#[derive(Default)]
struct Seen {
    queried: AtomicI32,
    cancelled: AtomicI32,
    dropped: AtomicI32,
}

struct Operation {
    seen: Arc<Seen>,
    source: i32,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, SeqCst);
    }
}

impl GeneralizedRequest for Operation {
    unsafe fn query(&self, status: StatusPtr) -> Result<(), i32> {
        self.seen.queried.fetch_add(1, SeqCst);
        let mpi = Mpi::global().ok_or(-1)?;
        let int = mpi.datatype(mpi_runtime::Basic::Int).ok_or(-1)?;
        // SAFETY:
        // - MPI gives a writable status.
        unsafe {
            mpi.status_set(status, self.source, 99, mpi.constants().success);
            mpi.status_set_elements(status, int, 12).map_err(|_| -1)?;
            mpi.status_set_cancelled(status, self.seen.cancelled.load(SeqCst) > 0)
                .map_err(|_| -1)
        }
    }

    fn cancel(&self, complete: bool) -> Result<(), i32> {
        self.seen
            .cancelled
            .fetch_add(if complete { 100 } else { 1 }, SeqCst);
        Ok(())
    }
}

fn start(c: &Context) -> (Arc<Seen>, Request) {
    let seen = Arc::new(Seen::default());
    let request = c
        .mpi
        .grequest_start(Operation {
            seen: seen.clone(),
            source: c.rank,
        })
        .expect("grequest_start");
    (seen, request)
}

fn complete(c: &Context) {
    let mpi = c.mpi;
    let (seen, mut request) = start(c);
    let mut status = StatusBuf::new();
    // SAFETY:
    // - The request is completed once, and only then waited for.
    unsafe {
        assert_eq!(mpi.test(&mut request, IGNORE), Ok(false));
        mpi.grequest_complete(request).expect("grequest_complete");
        mpi.wait(&mut request, status.as_ptr()).expect("wait");
        assert_eq!(request, mpi.request_null());
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(12)));
        assert_eq!(mpi.status_source(status.as_ptr()), c.rank);
        assert_eq!(mpi.status_tag(status.as_ptr()), 99);
        assert_eq!(mpi.test_cancelled(status.as_ptr()), Ok(false));
    }
    assert!(seen.queried.load(SeqCst) >= 1);
    assert_eq!(seen.dropped.load(SeqCst), 1, "freed once");
}

fn cancel(c: &Context) {
    let mpi = c.mpi;
    let (seen, mut request) = start(c);
    let mut status = StatusBuf::new();
    // SAFETY:
    // - The request is completed once, and only then waited for.
    unsafe {
        mpi.cancel(request).expect("cancel");
        assert_eq!(
            seen.cancelled.load(SeqCst),
            1,
            "cancelled before it was complete"
        );
        mpi.grequest_complete(request).expect("grequest_complete");
        mpi.wait(&mut request, status.as_ptr()).expect("wait");
        assert_eq!(mpi.test_cancelled(status.as_ptr()), Ok(true));
    }
    assert_eq!(seen.dropped.load(SeqCst), 1);
}

fn thread(c: &Context) {
    let mpi = c.mpi;
    if mpi.query_thread() != Ok(ThreadLevel::Multiple) {
        return;
    }
    let (seen, request) = start(c);
    let finisher = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY:
        // - The main thread waits for this request and completes it in no other way.
        Mpi::global().map(|mpi| unsafe { mpi.grequest_complete(request) })
    });
    let mut received = [0];
    let mut statuses = StatusArray::new(mpi, 3);
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request; there is a status for each.
    unsafe {
        let mut requests = [
            mpi.irecv(output(&mut received), 1, c.int(), c.previous(), 8, c.comm)
                .expect("irecv"),
            request,
            mpi.isend(input(&[c.rank]), 1, c.int(), c.next(), 8, c.comm)
                .expect("isend"),
        ];
        mpi.waitall(&mut requests, statuses.as_ptr())
            .expect("waitall");
        assert_eq!(mpi.status_tag(statuses.get(1).expect("in range")), 99);
    }
    assert_eq!(finisher.join().expect("no panic"), Some(Ok(())));
    assert_eq!(received, [c.previous()]);
    assert_eq!(seen.dropped.load(SeqCst), 1);
}
