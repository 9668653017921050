//! What a driver can answer besides success.

use device::{DeviceError, Rows, cuda};

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

/// The driver cannot be started, whichever call fails: said in words that name it, again and again.
fn start_fails() {
    let call = std::env::var("SIMULATED_FAILURE").unwrap();
    let call = call.split(':').next().unwrap();
    for _ in 0..2 {
        let why = cuda().err().unwrap().to_string();
        assert!(why.contains(call) && why.contains("719"), "{why}");
    }
    device::wait(dlpack_core::Device::CPU).unwrap();
}

macro_rules! starts {
    ($($name:ident: $call:literal;)+) => {$(
        #[test]
        fn $name() {
            let env = [("SIMULATED_FAILURE", concat!($call, ":719"))];
            with(concat!("refusals::", stringify!($name)), &[], &env, start_fails);
        }
    )+};
}

starts! {
    the_driver_does_not_start: "cuInit";
    the_driver_tells_no_version: "cuDriverGetVersion";
    the_driver_counts_no_devices: "cuDeviceGetCount";
}

/// A device that cannot be used now may be used later.
#[test]
fn a_device_that_fails_is_tried_again() {
    with(
        "refusals::a_device_that_fails_is_tried_again",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            for call in ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuStreamCreate"] {
                driver.fail(call);
                let why = cuda.stream(1).unwrap_err().to_string();
                assert!(why.contains(call), "{why}");
                assert_eq!(driver.current(), -1);
            }
            cuda.synchronize(1).unwrap();
            driver.fail("cuMemHostAlloc");
            assert!(device::Pinned::new(cuda, 8, 1).is_err());
            assert_eq!(device::Pinned::new(cuda, 8, 1).unwrap().len(), 8);
        },
    );
}

/// What the start and the first copy call, in the order of the first failure.
fn everything() -> Result<(), DeviceError> {
    let (cuda, driver) = (cuda()?, Simulated::get());
    let memory = driver.alloc(8, 0);
    let host = device::Pinned::new(cuda, 8, 0)?;
    // SAFETY:
    // - `memory` is 8 bytes of device 0; the pinned memory is ours, kept until the lane was waited for.
    unsafe {
        cuda.copy_to_host(host.as_ptr(), memory, 8, 0)?;
        let lane = cuda.lane(0)?;
        lane.take(memory, host.as_ptr(), Rows::line(8))?;
        cuda.lane(0)?.follow(&lane.mark()?)?;
        lane.mark()?.reached()?;
        lane.mark()?.wait()?;
    }
    cuda.pointer_attributes(memory).map(drop)
}

macro_rules! each_call_that_fails_is_named {
    ($($test:ident: $call:literal;)*) => {$(
        #[test]
        fn $test() {
            let env = [("SIMULATED_FAILURE", concat!($call, ":719"))];
            with(concat!("refusals::", stringify!($test)), &[], &env, || {
                let why = everything().unwrap_err().to_string();
                assert!(why.contains($call) && why.contains("LAUNCH_FAILED"), "{why}");
                // Host memory needs no driver.
                device::wait(dlpack_core::Device::CPU).unwrap();
            });
        }
    )*};
}

each_call_that_fails_is_named! {
    init: "cuInit";
    driver_version: "cuDriverGetVersion";
    device_count: "cuDeviceGetCount";
    device_get: "cuDeviceGet";
    context_retained: "cuDevicePrimaryCtxRetain";
    context_asked: "cuCtxGetCurrent";
    context_set: "cuCtxSetCurrent";
    stream_made: "cuStreamCreate";
    stream_waited_for: "cuStreamSynchronize";
    stream_follows: "cuStreamWaitEvent";
    event_made: "cuEventCreate";
    event_recorded: "cuEventRecord";
    event_asked: "cuEventQuery";
    event_waited_for: "cuEventSynchronize";
    copied_to_host: "cuMemcpyDtoHAsync";
    copied_to_device: "cuMemcpyHtoDAsync";
    pinned: "cuMemHostAlloc";
    pointer: "cuPointerGetAttributes";
}
