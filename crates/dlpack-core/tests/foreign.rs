//! Who calls the deleter, how often, and what is read of a structure that is not ours to read.
#![allow(missing_docs, clippy::unwrap_used)]

use core::ffi::c_void;
use core::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlpack_core::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use dlpack_core::{DType, Device, DoorError, Foreign};

/// What a producer keeps behind `manager_ctx`. Freed with the structure, so that a second call is a
/// use after free for valgrind and the sanitizer, besides a wrong count.
struct Owner {
    shape: Vec<i64>,
    data: Vec<f32>,
    calls: &'static AtomicUsize,
}

fn owner(calls: &'static AtomicUsize) -> Box<Owner> {
    Box::new(Owner {
        shape: vec![2, 3],
        data: vec![0.0; 6],
        calls,
    })
}

fn tensor(owner: &mut Owner) -> DLTensor {
    DLTensor {
        data: owner.data.as_mut_ptr().cast(),
        device: DLDevice {
            device_type: 1,
            device_id: 0,
        },
        ndim: owner.shape.len() as i32,
        dtype: DLDataType {
            code: 2,
            bits: 32,
            lanes: 1,
        },
        shape: owner.shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    }
}

unsafe extern "C" fn delete_versioned(this: *mut DLManagedTensorVersioned) {
    // SAFETY:
    // - `this` and its context are the boxes of `versioned`.
    unsafe {
        let this = Box::from_raw(this);
        let owner = Box::from_raw(this.manager_ctx.cast::<Owner>());
        owner.calls.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn delete_legacy(this: *mut DLManagedTensor) {
    // SAFETY:
    // - `this` and its context are the boxes of `legacy`.
    unsafe {
        let this = Box::from_raw(this);
        let owner = Box::from_raw(this.manager_ctx.cast::<Owner>());
        owner.calls.fetch_add(1, Ordering::SeqCst);
    }
}

fn versioned(calls: &'static AtomicUsize, flags: u64) -> *mut DLManagedTensorVersioned {
    let mut owner = owner(calls);
    let dl_tensor = tensor(&mut owner);
    Box::into_raw(Box::new(DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 0 },
        manager_ctx: Box::into_raw(owner).cast(),
        deleter: Some(delete_versioned),
        flags,
        dl_tensor,
    }))
}

fn legacy(calls: &'static AtomicUsize) -> *mut DLManagedTensor {
    let mut owner = owner(calls);
    let dl_tensor = tensor(&mut owner);
    Box::into_raw(Box::new(DLManagedTensor {
        dl_tensor,
        manager_ctx: Box::into_raw(owner).cast(),
        deleter: Some(delete_legacy),
    }))
}

fn take_versioned(ptr: *mut DLManagedTensorVersioned) -> Foreign {
    // SAFETY:
    // - `ptr` is NULL or a live structure that only this object releases.
    unsafe { Foreign::from_versioned(ptr.cast()) }
}

#[test]
fn versioned_is_read_and_released_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let foreign = take_versioned(versioned(&CALLS, 0));
    for _ in 0..3 {
        let view = foreign.view().unwrap();
        assert_eq!(view.layout().shape(), [2, 3]);
        assert_eq!(view.layout().strides(), [12, 4]);
        assert_eq!((view.dtype(), view.device()), (DType::F32, Device::CPU));
        assert!(!view.readonly() && !view.copied());
        view.check_writable().unwrap();
    }
    assert_eq!(CALLS.load(Ordering::SeqCst), 0);
    drop(foreign);
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}

#[test]
fn legacy_is_read_and_released_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    // SAFETY:
    // - A live structure that only this object releases.
    let foreign = unsafe { Foreign::from_legacy(legacy(&CALLS).cast()) };
    let view = foreign.view().unwrap();
    assert_eq!((view.numel(), view.itemsize()), (6, 4));
    assert!(!view.readonly());
    drop(foreign);
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}

#[test]
fn flags_decide_what_may_be_written() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let readonly = take_versioned(versioned(&CALLS, 1)).view().unwrap();
    assert!(readonly.readonly());
    assert!(matches!(
        readonly.check_writable(),
        Err(DoorError::ReadOnly { .. })
    ));
    readonly.with_readonly(false).check_writable().unwrap();
    let copied = take_versioned(versioned(&CALLS, 2)).view().unwrap();
    assert!(copied.copied() && !copied.readonly());
    assert!(matches!(
        copied.check_writable(),
        Err(DoorError::Copied { .. })
    ));
    let unknown = take_versioned(versioned(&CALLS, 8)).view();
    assert_eq!(unknown.unwrap_err(), DoorError::UnknownFlags { flags: 8 });
    assert_eq!(CALLS.load(Ordering::SeqCst), 3);
}

#[test]
fn a_refused_tensor_is_released_too() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let ptr = versioned(&CALLS, 0);
    // SAFETY:
    // - `ptr` is live and not yet shared.
    unsafe { (*ptr).dl_tensor.ndim = -1 };
    let foreign = take_versioned(ptr);
    assert!(matches!(foreign.view(), Err(DoorError::Layout(_))));
    assert_eq!(CALLS.load(Ordering::SeqCst), 0);
    drop(foreign);
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_between_does_not_lose_the_release() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let outcome = std::panic::catch_unwind(|| {
        let foreign = take_versioned(versioned(&CALLS, 0));
        let numel = foreign.view().unwrap().numel();
        assert_eq!(numel, 0, "meant to fail");
    });
    assert!(outcome.is_err());
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}

#[test]
fn it_may_be_released_on_another_thread() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let foreign = take_versioned(versioned(&CALLS, 0));
    let view = foreign.view().unwrap();
    std::thread::spawn(move || drop(foreign)).join().unwrap();
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    // A description outlives what it describes; only acting on it would be wrong.
    assert_eq!(view.clone().numel(), 6);
}

/// What stays where it is in every major version, and nothing behind it: reading further is out of bounds.
#[repr(C)]
struct Head {
    version: DLPackVersion,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Head)>,
}

#[test]
fn another_major_version_is_released_unread() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn delete(this: *mut Head) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY:
        // - `this` is the box below.
        drop(unsafe { Box::from_raw(this) });
    }
    for major in [0, 2, u32::MAX] {
        let head = Head {
            version: DLPackVersion { major, minor: 7 },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete),
        };
        let before = CALLS.load(Ordering::SeqCst);
        let foreign = take_versioned(Box::into_raw(Box::new(head)).cast());
        assert_eq!(
            foreign.view().unwrap_err(),
            DoorError::Version { major, minor: 7 }
        );
        drop(foreign);
        assert_eq!(CALLS.load(Ordering::SeqCst), before + 1);
    }
}

#[test]
fn a_newer_minor_version_is_read() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let ptr = versioned(&CALLS, 0);
    // SAFETY:
    // - `ptr` is live and not yet shared.
    unsafe { (*ptr).version.minor = 99 };
    assert_eq!(take_versioned(ptr).view().unwrap().numel(), 6);
}

#[test]
fn without_a_deleter_nothing_is_called() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let ptr = versioned(&CALLS, 0);
    // SAFETY:
    // - `ptr` is live and not yet shared.
    unsafe { (*ptr).deleter = None };
    let foreign = take_versioned(ptr);
    assert_eq!(foreign.view().unwrap().numel(), 6);
    drop(foreign);
    assert_eq!(CALLS.load(Ordering::SeqCst), 0);
    // SAFETY:
    // - Nobody released it.
    unsafe { delete_versioned(ptr) };

    let ptr = legacy(&CALLS);
    // SAFETY:
    // - `ptr` is live and not yet shared.
    unsafe { (*ptr).deleter = None };
    // SAFETY:
    // - A live structure that only this object releases.
    drop(unsafe { Foreign::from_legacy(ptr.cast()) });
    // SAFETY:
    // - Nobody released it.
    unsafe { delete_legacy(ptr) };
    assert_eq!(CALLS.load(Ordering::SeqCst), 2);
}

#[test]
fn a_leaked_tensor_is_not_released() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let ptr = versioned(&CALLS, 0);
    take_versioned(ptr).into_leaked();
    assert_eq!(CALLS.load(Ordering::SeqCst), 0);
    // SAFETY:
    // - Nobody released it.
    unsafe { delete_versioned(ptr) };
}

#[test]
fn null_structures_are_refused() {
    // SAFETY:
    // - NULL is allowed.
    let both = unsafe {
        [
            Foreign::from_versioned(ptr::null_mut()),
            Foreign::from_legacy(ptr::null_mut()),
        ]
    };
    for foreign in both {
        assert_eq!(foreign.view().unwrap_err(), DoorError::NullTensor);
    }
}
