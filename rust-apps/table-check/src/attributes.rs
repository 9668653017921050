//! Attributes and their delete callbacks: on free, on delete, on replacement and at MPI_Finalize.

use crate::suite::{Context, Suite};
use libc::c_void;
use mpi_runtime::{Comm, Keyval, Mpi};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

static DELETED: AtomicI32 = AtomicI32::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);
static AT_FINALIZE: AtomicI32 = AtomicI32::new(0);

pub fn all(suite: &mut Suite) {
    suite.check("attributes and delete callbacks", lifetimes);
    suite.check(
        "a private duplicate freed by a delete callback",
        private_duplicate,
    );
    suite.check("the largest tag", tags);
}

/// # Safety
/// - `state` is a Box<u64>.
unsafe extern "C" fn count(state: *mut c_void) {
    // SAFETY:
    // - The value is what `set` below made, and MPI deletes it once.
    let value = unsafe { Box::from_raw(state.cast::<u64>()) };
    LAST.store(*value, SeqCst);
    DELETED.fetch_add(1, SeqCst);
}

fn set(c: &Context, comm: Comm, key: Keyval, value: u64) {
    // SAFETY:
    // - The value is the Box<u64> that `count` takes.
    unsafe {
        c.mpi
            .comm_set_attr(comm, key, Box::into_raw(Box::new(value)).cast())
            .expect("set_attr")
    };
}

fn get(c: &Context, comm: Comm, key: Keyval) -> Option<u64> {
    // SAFETY:
    // - Every value of this key is a live Box<u64>.
    c.mpi
        .comm_get_attr(comm, key)
        .expect("get_attr")
        .map(|value| unsafe { *value.cast::<u64>() })
}

fn lifetimes(c: &Context) {
    let mpi = c.mpi;
    // SAFETY:
    // - Every value of this key is a Box<u64>.
    let key = unsafe { mpi.comm_create_keyval(count) }.expect("create_keyval");
    assert_ne!(key.raw(), mpi.constants().keyval_invalid);
    let mut comm = mpi.comm_dup(c.comm).expect("dup");
    assert_eq!(get(c, comm, key), None);
    set(c, comm, key, 1);
    assert_eq!(get(c, comm, key), Some(1));

    set(c, comm, key, 2);
    assert_eq!(
        (DELETED.load(SeqCst), LAST.load(SeqCst)),
        (1, 1),
        "replacing deletes the old value"
    );
    mpi.comm_delete_attr(comm, key).expect("delete_attr");
    assert_eq!((DELETED.load(SeqCst), LAST.load(SeqCst)), (2, 2));
    assert_eq!(get(c, comm, key), None);

    set(c, comm, key, 3);
    let mut copy = mpi.comm_dup(comm).expect("dup");
    assert_eq!(get(c, copy, key), None, "a duplicate does not inherit");
    // SAFETY:
    // - Neither communicator is used again.
    unsafe {
        mpi.comm_free(&mut copy).expect("free");
        assert_eq!(DELETED.load(SeqCst), 2);
        // A freed key goes on serving the values that are set.
        mpi.comm_free_keyval(key).expect("free_keyval");
        mpi.comm_free(&mut comm).expect("free");
    }
    assert_eq!((DELETED.load(SeqCst), LAST.load(SeqCst)), (3, 3));
}

/// # Safety
/// - `state` is a Box<Comm> of a live communicator.
unsafe extern "C" fn free_private(state: *mut c_void) {
    // SAFETY:
    // - The value is what `private_duplicate` made, and nothing else uses that communicator.
    unsafe {
        let mut private = *Box::from_raw(state.cast::<Comm>());
        let freed = Mpi::global().map(|mpi| mpi.comm_free(&mut private));
        if freed == Some(Ok(())) {
            DELETED.fetch_add(100, SeqCst);
        }
    }
}

fn private_duplicate(c: &Context) {
    let mpi = c.mpi;
    let before = DELETED.load(SeqCst);
    // SAFETY:
    // - Every value of this key is a Box<Comm> that nothing else frees.
    let key = unsafe { mpi.comm_create_keyval(free_private) }.expect("create_keyval");
    for _ in 0..3 {
        let mut comm = mpi.comm_dup(c.comm).expect("dup");
        let private = mpi.comm_dup(comm).expect("dup");
        // SAFETY:
        // - As above; `comm` is not used again.
        unsafe {
            mpi.comm_set_attr(comm, key, Box::into_raw(Box::new(private)).cast())
                .expect("set_attr");
            mpi.comm_free(&mut comm).expect("free");
        }
    }
    assert_eq!(DELETED.load(SeqCst), before + 300);
    mpi.comm_free_keyval(key).expect("free_keyval");
}

fn tags(c: &Context) {
    let tag = c.mpi.tag_ub(c.comm).expect("tag_ub");
    assert!(tag >= 32767, "MPI promises at least 32767, this says {tag}");
}

/// # Safety
/// - None: it touches a static only.
unsafe extern "C" fn at_finalize(state: *mut c_void) {
    // MPI still answers here.
    let alive = Mpi::global().map(Mpi::finalized) == Some(Ok(false));
    AT_FINALIZE.store(if alive { state as usize as i32 } else { -1 }, SeqCst);
}

pub fn before_finalize(suite: &mut Suite) {
    suite.check("an attribute of MPI_COMM_SELF", |c| {
        // SAFETY:
        // - The callback takes any value.
        unsafe {
            let key = c
                .mpi
                .comm_create_keyval(at_finalize)
                .expect("create_keyval");
            c.mpi
                .comm_set_attr(c.mpi.comm_self(), key, std::ptr::without_provenance_mut(77))
                .expect("set_attr");
        }
        assert_eq!(AT_FINALIZE.load(SeqCst), 0);
    });
}

/// The last check of all: there is no MPI left to report a failure through.
pub fn after_finalize() {
    assert_eq!(
        AT_FINALIZE.load(SeqCst),
        77,
        "the delete callback runs inside MPI_Finalize"
    );
}
