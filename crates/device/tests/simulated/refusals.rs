//! What a driver can answer besides success.

use device::{DeviceError, cuda};

use crate::harness::{Simulated, with};

#[test]
fn a_device_that_is_not_there_is_an_error() {
    with(
        "refusals::a_device_that_is_not_there_is_an_error",
        &[],
        &[("SIMULATED_DEVICES", "1")],
        || {
            let cuda = cuda().unwrap();
            for id in [-1, 1, i32::MAX] {
                let why = cuda.stream(id).unwrap_err();
                assert_eq!(why, DeviceError::NoSuchDevice { id, count: 1 });
            }
        },
    );
}

#[test]
fn a_driver_without_devices_is_an_error() {
    with(
        "refusals::a_driver_without_devices_is_an_error",
        &[],
        &[("SIMULATED_DEVICES", "0")],
        || {
            let why = cuda().err().unwrap().to_string();
            assert!(
                why.contains("cuInit") && why.contains("CUDA_ERROR_NO_DEVICE (100)"),
                "{why}"
            );
        },
    );
}

#[test]
fn an_error_number_from_the_future_is_an_error() {
    let env = [("SIMULATED_FAILURE", "cuMemcpyDtoHAsync:98765")];
    with(
        "refusals::an_error_number_from_the_future_is_an_error",
        &[],
        &env,
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            let memory = driver.alloc(8, 0);
            let mut host = [0u8; 8];
            // SAFETY:
            // - `memory` is 8 bytes of device 0; `host` is ours.
            let why = unsafe { cuda.copy_to_host(host.as_mut_ptr(), memory, 8, 0) }.unwrap_err();
            assert!(
                matches!(
                    why,
                    DeviceError::Driver {
                        code: 98765,
                        call: "cuMemcpyDtoHAsync",
                        ..
                    }
                ),
                "{why}"
            );
            assert_eq!(driver.current(), -1);
        },
    );
}

#[test]
fn a_driver_that_lacks_a_function_is_an_error() {
    with(
        "refusals::a_driver_that_lacks_a_function_is_an_error",
        &["without-pointer-attributes"],
        &[],
        || {
            let why = cuda().err().unwrap();
            assert_eq!(
                why,
                DeviceError::MissingSymbol {
                    name: "cuPointerGetAttributes"
                }
            );
            // Asked before the first call, not in the middle of one.
            assert_eq!(Simulated::get().calls("cuInit"), 0);
        },
    );
}
