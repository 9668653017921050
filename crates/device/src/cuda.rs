//! The CUDA driver: devices, primary contexts, one own stream per device and thread, copies that have
//! finished when they return. Knows neither tensors nor frameworks.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use std::sync::OnceLock;

use crate::current::Current;
use crate::symbols::{self, Object, Status, Table};
use crate::{DeviceError, parked, stream};

/// A stream as frameworks take it: the driver's handle as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u64);

/// The driver of this process, initialised.
pub struct Cuda {
    pub(crate) table: Table,
    version: i32,
    /// One per device; retained once, for the life of the process.
    contexts: Box<[OnceLock<Context>]>,
}

/// A primary context. The runtime API of every framework uses the same one.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) Object);

// SAFETY:
// - A context is a handle of the driver, which any thread may use.
unsafe impl Send for Context {}
// SAFETY:
// - As above; it is never changed.
unsafe impl Sync for Context {}

/// The driver of this process. The first call initialises it, so make it only when device memory is met:
/// a process that forks afterwards cannot use CUDA in the child.
pub fn cuda() -> Result<&'static Cuda, DeviceError> {
    static CUDA: OnceLock<Result<Cuda, DeviceError>> = OnceLock::new();
    CUDA.get_or_init(Cuda::start).as_ref().map_err(Clone::clone)
}

impl Cuda {
    fn start() -> Result<Cuda, DeviceError> {
        let table = crate::loader::load()?;
        // SAFETY:
        // - 0 is the one value that is allowed.
        check(&table, "cuInit", unsafe { (table.init)(0) })?;
        let (mut version, mut count) = (0, 0);
        // SAFETY:
        // - The driver is initialised; the pointer is to a local.
        check(&table, "cuDriverGetVersion", unsafe {
            (table.driver_get_version)(&mut version)
        })?;
        // SAFETY:
        // - As above.
        check(&table, "cuDeviceGetCount", unsafe {
            (table.device_get_count)(&mut count)
        })?;
        let contexts = (0..count).map(|_| OnceLock::new()).collect();
        Ok(Cuda {
            table,
            version,
            contexts,
        })
    }

    /// The newest CUDA that this driver serves: 12040 is 12.4.
    pub fn driver_version(&self) -> i32 {
        self.version
    }

    /// How many devices this process sees.
    pub fn device_count(&self) -> i32 {
        self.contexts.len() as i32
    }

    /// The device's own number, by which processes that see different devices can tell which.
    pub fn device_uuid(&self, dev: i32) -> Result<[u8; 16], DeviceError> {
        let (mut device, mut uuid): (c_int, _) = (0, [0; 16]);
        // SAFETY:
        // - The pointer is to a local.
        self.check("cuDeviceGet", unsafe {
            (self.table.device_get)(&mut device, dev)
        })?;
        // SAFETY:
        // - `device` was just given by the driver; the pointer is to a local of 16 bytes.
        self.check("cuDeviceGetUuid", unsafe {
            (self.table.device_get_uuid)(&mut uuid, device)
        })?;
        Ok(uuid)
    }

    /// Our own non-blocking stream for this device and thread. Producers make it wait for their work.
    pub fn stream(&'static self, dev: i32) -> Result<StreamHandle, DeviceError> {
        stream::of_this_thread(self, dev).map(|stream| StreamHandle(stream.addr() as u64))
    }

    /// Makes `dev` current on this thread until the guard is dropped.
    pub fn current(&'static self, dev: i32) -> Result<Current, DeviceError> {
        Current::enter(self, dev)
    }

    /// Waits for all that our stream of this device and thread waits for. Does not return before.
    pub fn synchronize(&'static self, dev: i32) -> Result<(), DeviceError> {
        let _current = self.current(dev)?;
        self.wait(stream::of_this_thread(self, dev)?)
    }

    /// Waits for all work on a stream that somebody else owns.
    ///
    /// # Safety
    /// - `stream` is a live stream of `dev`, or a handle that the driver defines (0, 1, 2).
    pub unsafe fn synchronize_stream(
        &'static self,
        stream: u64,
        dev: i32,
    ) -> Result<(), DeviceError> {
        let _current = self.current(dev)?;
        self.wait(handle(stream))
    }

    /// Is a graph being captured, so that nothing may wait for this stream? The default streams of each device have
    /// the same handles, so it is asked with `dev` current.
    ///
    /// # Safety
    /// - `stream` is a live stream of `dev`, or a handle that the driver defines (0, 1, 2).
    pub unsafe fn is_capturing(&'static self, stream: u64, dev: i32) -> Result<bool, DeviceError> {
        let _current = self.current(dev)?;
        let mut status = symbols::CAPTURE_NONE;
        // SAFETY:
        // - `stream` is live by the caller's promise; the pointer is to a local.
        match unsafe { (self.table.stream_is_capturing)(handle(stream), &mut status) } {
            symbols::ERROR_CAPTURE_IMPLICIT => Ok(true),
            code => {
                self.check("cuStreamIsCapturing", code)?;
                Ok(status != symbols::CAPTURE_NONE)
            }
        }
    }

    pub(crate) fn wait(&self, stream: Object) -> Result<(), DeviceError> {
        // SAFETY:
        // - `stream` is one of ours, which live for ever, or live by the promise of `synchronize_stream`.
        self.check("cuStreamSynchronize", unsafe {
            (self.table.stream_synchronize)(stream)
        })?;
        parked::passed(StreamHandle(stream.addr() as u64));
        Ok(())
    }

    /// The primary context of a device, retained on first use.
    pub(crate) fn context(&self, dev: i32) -> Result<Context, DeviceError> {
        let slot = usize::try_from(dev)
            .ok()
            .and_then(|index| self.contexts.get(index));
        let slot = slot.ok_or(DeviceError::NoSuchDevice {
            id: dev,
            count: self.device_count(),
        })?;
        if let Some(context) = slot.get() {
            return Ok(*context);
        }
        let (mut device, mut context): (c_int, Object) = (0, ptr::null_mut());
        // SAFETY:
        // - The pointer is to a local.
        self.check("cuDeviceGet", unsafe {
            (self.table.device_get)(&mut device, dev)
        })?;
        // SAFETY:
        // - `device` was just given by the driver; the pointer is to a local.
        let code = unsafe { (self.table.primary_ctx_retain)(&mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        // Two threads at once retain the same context twice, which does no harm. A failure is tried again.
        Ok(*slot.get_or_init(|| Context(context)))
    }

    pub(crate) fn check(&self, call: &'static str, code: Status) -> Result<(), DeviceError> {
        check(&self.table, call, code)
    }
}

/// The driver's object behind an integer handle.
pub(crate) fn handle(stream: u64) -> Object {
    ptr::with_exposed_provenance_mut(stream as usize)
}

fn check(table: &Table, call: &'static str, code: Status) -> Result<(), DeviceError> {
    match code {
        symbols::SUCCESS => Ok(()),
        code if symbols::ERRORS_OF_CAPTURE.contains(&code) => Err(DeviceError::Capturing { call }),
        code => Err(DeviceError::Driver {
            call,
            code,
            name: text(table.get_error_name, code),
            text: text(table.get_error_string, code),
        }),
    }
}

fn text(ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, code: Status) -> String {
    let mut words: *const c_char = ptr::null();
    // SAFETY:
    // - Any number may be asked about; the pointer is to a local.
    let asked = unsafe { ask(code, &mut words) };
    if asked != symbols::SUCCESS || words.is_null() {
        return "unknown to this driver".to_owned();
    }
    // SAFETY:
    // - The driver gave a static string.
    unsafe { CStr::from_ptr(words) }
        .to_string_lossy()
        .into_owned()
}
