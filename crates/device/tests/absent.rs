//! A machine without a CUDA driver: an ordinary error, and host memory works as ever.
#![allow(missing_docs, clippy::unwrap_used)]

use device::{DeviceError, cuda, driver, read, wait, write};
use dlpack_core::{Device, DeviceKind};

/// Asked without the crate under test.
fn driver_present() -> bool {
    // SAFETY:
    // - Loads and unloads the driver library, if there is one.
    cfg!(feature = "cuda") && unsafe { libloading::Library::new("libcuda.so.1") }.is_ok()
}

#[test]
fn no_driver_is_an_error_every_time() {
    for _ in 0..3 {
        match cuda() {
            Err(DeviceError::NoDriver { why }) => {
                assert!(!driver_present() && !why.is_empty());
                assert_eq!(wait(Device::cuda(0)), Err(DeviceError::NoDriver { why }));
            }
            // With a real driver, it starts or says in its own words why it does not.
            Err(DeviceError::Driver { call, .. }) => {
                assert!(driver_present() && call.starts_with("cu"))
            }
            Err(other) => panic!("{other}"),
            Ok(cuda) => assert!(driver_present() && cuda.device_count() > 0),
        }
    }
}

#[test]
fn host_memory_needs_no_driver() {
    for kind in [DeviceKind::CPU, DeviceKind::TPU_HOST] {
        let host = Device::new(kind, 3);
        assert!(driver(host).unwrap().is_none());
        wait(host).unwrap();
        let from = [1u8, 2, 3, 4];
        let mut to = [0u8; 6];
        // SAFETY:
        // - Both are host memory of at least 4 bytes, and apart.
        unsafe { read(host, to.as_mut_ptr(), from.as_ptr(), 4) }.unwrap();
        assert_eq!(to, [1, 2, 3, 4, 0, 0]);
        // SAFETY:
        // - As above: three bytes from the second on.
        unsafe { write(host, to.as_mut_ptr().add(1), from.as_ptr(), 3) }.unwrap();
        assert_eq!(to, [1, 1, 2, 3, 0, 0]);
    }
}

#[test]
fn kinds_without_a_row_are_out_of_reach() {
    for kind in [DeviceKind::ROCM, DeviceKind::METAL, DeviceKind(4711)] {
        let device = Device::new(kind, 0);
        assert_eq!(wait(device), Err(DeviceError::Unsupported { device }));
        let mut byte = 0u8;
        // SAFETY:
        // - Nothing is copied: the kind is refused first.
        let refused = unsafe { read(device, &raw mut byte, &raw const byte, 1) };
        assert!(refused.unwrap_err().to_string().contains("CPU"));
    }
}
