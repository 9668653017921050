//! What comes before what, on which stream, and under which context.

use std::thread;

use device::{DeviceError, Pinned, cuda};
use dlpack_core::{Device, DeviceKind};

use crate::harness::{Simulated, to_host, with};

#[test]
fn copies_come_after_the_producers_work() {
    with(
        "order::copies_come_after_the_producers_work",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            assert_eq!((cuda.device_count(), cuda.driver_version()), (2, 12040));
            for dev in [1, 0, 1] {
                let memory = driver.alloc(10_000, dev);
                driver.launch(cuda.stream(dev).unwrap().0, memory, 7, 10_000, dev);
                assert_eq!(to_host(cuda, memory, 10_000, dev), [7; 10_000]);
                // The way back, and inside the device.
                let sent: Vec<u8> = (0..200).collect();
                // SAFETY:
                // - Inside `memory`; `sent` is ours.
                unsafe { cuda.copy_to_device(memory + 100, sent.as_ptr(), 200, dev) }.unwrap();
                // SAFETY:
                // - Both inside `memory`, and apart.
                unsafe { cuda.copy_on_device(memory + 5000, memory + 100, 200, dev) }.unwrap();
                assert_eq!(
                    to_host(cuda, memory + 4999, 202, dev),
                    [&[7], &sent[..], &[7]].concat()
                );
            }
        },
    );
}

#[test]
fn any_device_is_waited_for_by_its_row() {
    with(
        "order::any_device_is_waited_for_by_its_row",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            let gpu = Device::cuda(1);
            let memory = driver.alloc(64, 1);
            driver.launch(cuda.stream(1).unwrap().0, memory, 9, 64, 1);
            let mut host = [0u8; 64];
            let at = std::ptr::with_exposed_provenance_mut::<u8>(memory as usize);
            // SAFETY:
            // - `memory` is 64 bytes of `gpu`; `host` is ours.
            unsafe { device::read(gpu, host.as_mut_ptr(), at, 64) }.unwrap();
            assert_eq!(host, [9; 64]);
            // SAFETY:
            // - As above.
            unsafe { device::write(gpu, at, [1u8; 64].as_ptr(), 64) }.unwrap();
            assert_eq!(to_host(cuda, memory, 64, 1), [1; 64]);

            // Pinned memory is the host's, but a kernel may be writing to it.
            let pinned = Pinned::new(cuda, 64, 0).unwrap();
            driver.launch(
                cuda.stream(0).unwrap().0,
                pinned.as_ptr().addr() as u64,
                5,
                64,
                0,
            );
            // SAFETY:
            // - `pinned` is host memory of 64 bytes; `host` is ours.
            unsafe {
                device::read(
                    Device::new(DeviceKind::CUDA_HOST, 0),
                    host.as_mut_ptr(),
                    pinned.as_ptr(),
                    64,
                )
            }
            .unwrap();
            assert_eq!(host, [5; 64]);

            let waits = driver.calls("cuStreamSynchronize");
            device::wait(Device::CPU).unwrap();
            assert_eq!(driver.calls("cuStreamSynchronize"), waits);
            device::wait(gpu).unwrap();
            assert_eq!(driver.calls("cuStreamSynchronize"), waits + 1);
        },
    );
}

#[test]
fn what_was_current_is_current_again() {
    with("order::what_was_current_is_current_again", &[], &[], || {
        let (cuda, driver) = (cuda().unwrap(), Simulated::get());
        let memory = driver.alloc(8, 1);
        for before in [-1, 0, 1] {
            driver.set_current(before);
            to_host(cuda, memory, 8, 1);
            cuda.synchronize(1).unwrap();
            drop(Pinned::new(cuda, 1 << 20, 1).unwrap());
            assert_eq!(driver.current(), before);
            {
                let _outer = cuda.current(0).unwrap();
                let inner = cuda.current(1).unwrap();
                assert_eq!(driver.current(), 1);
                drop(inner);
                assert_eq!(driver.current(), 0);
            }
            assert_eq!(driver.current(), before);
            // After an error too.
            let stream = cuda.stream(1).unwrap().0;
            driver.set_current(1);
            driver.capture(stream, true);
            driver.set_current(before);
            assert!(cuda.synchronize(1).is_err());
            driver.set_current(1);
            driver.capture(stream, false);
            driver.set_current(before);
            assert_eq!(driver.current(), before);
        }
    });
}

#[test]
fn one_stream_per_device_and_thread() {
    with("order::one_stream_per_device_and_thread", &[], &[], || {
        let (cuda, driver) = (cuda().unwrap(), Simulated::get());
        let mine = [cuda.stream(0).unwrap(), cuda.stream(1).unwrap()];
        assert_ne!(mine[0], mine[1]);
        assert_eq!(mine, [cuda.stream(0).unwrap(), cuda.stream(1).unwrap()]);
        // Handles 0, 1 and 2 mean something else to every framework.
        assert!(mine.iter().all(|stream| stream.0 > 2));
        let other = thread::spawn(move || cuda.stream(0).unwrap())
            .join()
            .unwrap();
        assert!(!mine.contains(&other));
        // A thread that ends leaves its stream to the next one.
        for _ in 0..20 {
            assert_eq!(
                thread::spawn(move || cuda.stream(0).unwrap())
                    .join()
                    .unwrap(),
                other
            );
        }
        assert_eq!(driver.calls("cuStreamCreate"), 3);
        assert_eq!(driver.calls("cuDevicePrimaryCtxRetain"), 2);
    });
}

#[test]
fn nothing_waits_during_a_capture() {
    with("order::nothing_waits_during_a_capture", &[], &[], || {
        let (cuda, driver) = (cuda().unwrap(), Simulated::get());
        let stream = cuda.stream(0).unwrap().0;
        let _current = cuda.current(0).unwrap();
        // SAFETY:
        // - Our own stream, and the legacy one.
        let capturing = || unsafe { [stream, 0].map(|s| cuda.is_capturing(s, 0).unwrap()) };
        assert_eq!(capturing(), [false, false]);
        driver.capture(stream, true);
        assert_eq!(capturing(), [true, true]);
        let why = cuda.synchronize(0).unwrap_err();
        assert_eq!(
            why,
            DeviceError::Capturing {
                call: "cuStreamSynchronize"
            }
        );
        assert!(why.to_string().contains("capture"));
    });
}

#[test]
fn a_stream_of_somebody_elses_can_be_waited_for() {
    with(
        "order::a_stream_of_somebody_elses_can_be_waited_for",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            // First, or ours would be the one that the thread leaves behind.
            let ours = cuda.stream(1).unwrap();
            let theirs = thread::spawn(move || cuda.stream(1).unwrap())
                .join()
                .unwrap();
            let memory = driver.alloc(16, 1);
            assert_ne!(theirs, ours);
            driver.launch(theirs.0, memory, 3, 16, 1);
            assert_eq!(
                to_host(cuda, memory, 16, 1),
                [0; 16],
                "nobody waited for that stream yet"
            );
            // SAFETY:
            // - A live stream of device 1.
            unsafe { cuda.synchronize_stream(theirs.0, 1) }.unwrap();
            assert_eq!(to_host(cuda, memory, 16, 1), [3; 16]);
        },
    );
}

#[test]
fn pinned_buffers_are_used_again_within_bounds() {
    with(
        "order::pinned_buffers_are_used_again_within_bounds",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            let first = Pinned::new(cuda, 100_000, 0).unwrap();
            assert_eq!(first.len(), 100_000);
            // SAFETY:
            // - The buffer has that many bytes and nobody else uses it.
            unsafe { first.as_ptr().write_bytes(1, first.len()) };
            let address = first.as_ptr();
            let second = Pinned::new(cuda, 100_000, 0).unwrap();
            assert_ne!(second.as_ptr(), address);
            drop(first);
            // Of the same size when rounded.
            assert_eq!(Pinned::new(cuda, 131_072, 1).unwrap().as_ptr(), address);
            assert_eq!(
                (
                    driver.calls("cuMemHostAlloc"),
                    driver.calls("cuMemFreeHost")
                ),
                (2, 0)
            );
            // More than the pool keeps goes back to the driver.
            drop(Pinned::new(cuda, (1 << 30) + 1, 0).unwrap());
            assert_eq!(driver.calls("cuMemFreeHost"), 1);
            // And so does what has been unused longest: the first buffer.
            for _ in 0..2 {
                drop(Pinned::new(cuda, 1 << 30, 0).unwrap());
                assert_eq!(driver.calls("cuMemFreeHost"), 2);
            }
            let last = Pinned::new(cuda, 100_000, 0).unwrap();
            assert_eq!(driver.calls("cuMemHostAlloc"), 5);
            drop((last, second));
        },
    );
}

#[test]
fn addresses_are_known_by_what_is_behind_them() {
    with(
        "order::addresses_are_known_by_what_is_behind_them",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            let memory = driver.alloc(100, 1);
            assert_eq!(
                cuda.pointer_attributes(memory + 50),
                Ok(Some(Device::cuda(1)))
            );
            let pinned = Pinned::new(cuda, 10, 0).unwrap();
            let found = cuda.pointer_attributes(pinned.as_ptr().addr() as u64);
            assert_eq!(found, Ok(Some(Device::new(DeviceKind::CUDA_HOST, 0))));
            let local = 0u8;
            assert_eq!(
                cuda.pointer_attributes((&raw const local).addr() as u64),
                Ok(None)
            );
        },
    );
}
