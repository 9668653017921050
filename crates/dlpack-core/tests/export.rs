//! Memory of ours as a managed tensor: what a consumer reads, and when the owner goes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlpack_core::{DType, Device, DoorError, Foreign, View, export};

/// Memory whose end is counted.
struct Owner {
    data: Vec<f64>,
    ended: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn exported(
    strides: Option<&[i64]>,
    readonly: bool,
    ended: &Arc<AtomicUsize>,
) -> Result<Foreign, DoorError> {
    let mut owner = Owner {
        data: (0..6).map(f64::from).collect(),
        ended: Arc::clone(ended),
    };
    let data = owner.data.as_mut_ptr().cast();
    // SAFETY:
    // - Six numbers are behind `data`, which every stride used here stays within.
    let view =
        unsafe { View::from_parts(data, &[3, 2], strides, DType::F64, Device::CPU, readonly) }?;
    // SAFETY:
    // - The vector's heap memory stays where it is when the owner is moved.
    unsafe { export(&view, owner) }
}

#[test]
fn a_consumer_reads_what_the_view_said() {
    let ended = Arc::default();
    for (strides, readonly) in [(None, false), (Some(&[8i64, 24][..]), true)] {
        let foreign = exported(strides, readonly, &ended).unwrap();
        let view = foreign.view().unwrap();
        assert_eq!(view.layout().shape(), [3, 2]);
        assert_eq!(view.layout().strides(), strides.unwrap_or(&[16, 8]));
        assert_eq!(
            (view.dtype(), view.device(), view.readonly()),
            (DType::F64, Device::CPU, readonly)
        );
        // SAFETY:
        // - Element (0, 1) is 8 or 24 bytes on, within the six numbers.
        let at = unsafe {
            *view
                .data()
                .offset(view.layout().strides()[1] as isize)
                .cast::<f64>()
        };
        assert_eq!(at, if readonly { 3.0 } else { 1.0 });
    }
    assert_eq!(ended.load(Ordering::SeqCst), 2);
}

#[test]
fn the_deleter_ends_the_owner_once_on_any_thread() {
    let ended = Arc::default();
    let managed = exported(None, false, &ended)
        .unwrap()
        .into_versioned()
        .unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    let address = managed.expose_provenance();
    let consumer = std::thread::spawn(move || {
        let managed = std::ptr::with_exposed_provenance_mut::<
            dlpack_core::abi::DLManagedTensorVersioned,
        >(address);
        // SAFETY:
        // - The structure is live, and this is the one call.
        unsafe { (*managed).deleter.unwrap()(managed) }
    });
    consumer.join().unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn what_dlpack_cannot_say_is_refused_and_the_owner_goes() {
    let ended = Arc::default();
    // Nine bytes a row: no whole number of elements.
    let error = exported(Some(&[9, 8]), false, &ended).unwrap_err();
    assert!(matches!(error, DoorError::DType { .. }), "{error}");
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    // SAFETY:
    // - Nothing is behind an empty view.
    let own = unsafe {
        View::from_parts(
            std::ptr::null_mut(),
            &[0],
            None,
            DType::raw(3),
            Device::CPU,
            false,
        )
    };
    // SAFETY:
    // - As above.
    let refused = unsafe { export(&own.unwrap(), ()) };
    assert!(matches!(refused, Err(DoorError::DType { .. })));
}
