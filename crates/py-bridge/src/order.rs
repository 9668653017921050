//! Stream order of one call: which of our streams the exported tensors were ordered on, and the one
//! wait before their memory is touched. Knows streams by number and device only, no framework.

use device::DeviceError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::errors::{ExportError, ExportResult};

/// What a call needs of a device's driver. CUDA's is [`Driver`]; tests bring their own.
pub trait Streams: Sync {
    /// Our own non-blocking stream of this thread on CUDA device `dev`.
    ///
    /// # Errors
    /// No driver, no such device.
    fn stream(&self, dev: i32) -> Result<u64, DeviceError>;

    /// Calls `f` with `dev` as the current device and restores what was current before.
    ///
    /// # Errors
    /// No driver, no such device.
    fn on_device(&self, dev: i32, f: &mut dyn FnMut()) -> Result<(), DeviceError>;

    /// Waits for everything on our stream of this thread on `dev`.
    ///
    /// # Errors
    /// What the driver reports.
    fn synchronize(&self, dev: i32) -> Result<(), DeviceError>;

    /// Waits for a stream that a producer named.
    ///
    /// # Errors
    /// What the driver reports.
    fn synchronize_stream(&self, stream: u64, dev: i32) -> Result<(), DeviceError>;

    /// Makes our stream of this thread wait for one that a producer named.
    ///
    /// # Errors
    /// What the driver reports.
    fn follow(&self, stream: u64, dev: i32) -> Result<(), DeviceError>;

    /// Is a CUDA graph being captured on a stream of `dev` that a producer named?
    ///
    /// # Errors
    /// What the driver reports.
    fn is_capturing(&self, stream: u64, dev: i32) -> Result<bool, DeviceError>;
}

/// The CUDA driver of this process.
pub struct Driver;

impl Streams for Driver {
    fn stream(&self, dev: i32) -> Result<u64, DeviceError> {
        Ok(device::cuda()?.stream(dev)?.0)
    }

    fn on_device(&self, dev: i32, f: &mut dyn FnMut()) -> Result<(), DeviceError> {
        let _current = device::cuda()?.current(dev)?;
        f();
        Ok(())
    }

    fn synchronize(&self, dev: i32) -> Result<(), DeviceError> {
        device::cuda()?.synchronize(dev)
    }

    fn synchronize_stream(&self, stream: u64, dev: i32) -> Result<(), DeviceError> {
        // SAFETY:
        // - `stream` comes from the producer of a live tensor on `dev`, which keeps its current stream.
        unsafe { device::cuda()?.synchronize_stream(stream, dev) }
    }

    fn follow(&self, stream: u64, dev: i32) -> Result<(), DeviceError> {
        // SAFETY:
        // - As above.
        unsafe { device::cuda()?.follow(stream, dev) }
    }

    fn is_capturing(&self, stream: u64, dev: i32) -> Result<bool, DeviceError> {
        // SAFETY:
        // - As above.
        unsafe { device::cuda()?.is_capturing(stream, dev) }
    }
}

/// Collects what one call has to wait for. Empty for host memory, and then free of cost.
pub struct StreamOrder {
    streams: &'static dyn Streams,
    ours: SmallVec<[i32; 2]>,
    theirs: SmallVec<[(u64, i32); 2]>,
    /// Whether a framework has pinned host memory, once asked.
    pins: Option<bool>,
}

impl Default for StreamOrder {
    fn default() -> Self {
        StreamOrder::new(&Driver)
    }
}

impl StreamOrder {
    /// An order on these streams.
    pub fn new(streams: &'static dyn Streams) -> StreamOrder {
        StreamOrder {
            streams,
            ours: SmallVec::new(),
            theirs: SmallVec::new(),
            pins: None,
        }
    }

    /// Whether a framework may have pinned host memory, by `ask` at the first tensor of a call: what pins later pins
    /// none of its tensors.
    ///
    /// # Errors
    /// As `ask`.
    #[inline]
    pub fn pins(&mut self, ask: impl FnOnce() -> ExportResult<bool>) -> ExportResult<bool> {
        match self.pins {
            Some(pins) => Ok(pins),
            None => ask().inspect(|&pins| self.pins = Some(pins)),
        }
    }

    /// Our stream on `dev`, for a producer to order its work on; waited for in [`StreamOrder::wait`].
    ///
    /// # Errors
    /// [`ExportError::Buffer`] when there is no such device.
    pub fn stream(&mut self, dev: i32) -> ExportResult<u64> {
        let stream = self.streams.stream(dev).map_err(refused)?;
        if !self.ours.contains(&dev) {
            self.ours.push(dev);
        }
        Ok(stream)
    }

    /// Also waits for a stream that the producer named.
    pub fn wait_for(&mut self, stream: u64, dev: i32) {
        if !self.theirs.contains(&(stream, dev)) {
            self.theirs.push((stream, dev));
        }
    }

    /// Calls `f` with `dev` current: producers record events on the current device.
    ///
    /// # Errors
    /// [`ExportError::Buffer`] when there is no such device.
    pub fn on_device<R>(&self, dev: i32, f: impl FnOnce() -> R) -> ExportResult<R> {
        let (mut f, mut result) = (Some(f), None);
        self.streams
            .on_device(dev, &mut || result = f.take().map(|f| f()))
            .map_err(refused)?;
        result.ok_or_else(|| ExportError::Buffer(format!("cuda:{dev} could not be made current")))
    }

    /// Refuses while the producer's stream is being captured: waiting would spoil the capture.
    ///
    /// # Errors
    /// [`ExportError::Buffer`] in words.
    pub fn refuse_capture(&self, stream: u64, dev: i32) -> ExportResult<()> {
        match self.streams.is_capturing(stream, dev).map_err(refused)? {
            true => Err(ExportError::Buffer(
                "a CUDA graph is being captured on its stream, and MPI calls cannot be part of a graph; move the call out of the capture"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Whether the exports ordered nothing, as those of host memory do not.
    pub fn is_empty(&self) -> bool {
        self.ours.is_empty() && self.theirs.is_empty()
    }

    /// Waits until everything that the exports ordered has happened, detached from the interpreter.
    ///
    /// # Errors
    /// `RuntimeError`: what the driver reports, e.g. an earlier kernel that failed.
    #[inline]
    pub fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        py.detach(|| self.wait_for_devices())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// One wait per device: where it has several streams, ours is made to wait for the others.
    fn wait_for_devices(&self) -> Result<(), DeviceError> {
        let mut devices = self.ours.clone();
        for &(_, dev) in &self.theirs {
            if !devices.contains(&dev) {
                devices.push(dev);
            }
        }
        for dev in devices {
            let named = || self.theirs.iter().filter(|named| named.1 == dev);
            if let (false, Some(&(stream, _)), 1) =
                (self.ours.contains(&dev), named().next(), named().count())
            {
                self.streams.synchronize_stream(stream, dev)?;
                continue;
            }
            for &(stream, _) in named() {
                self.streams.follow(stream, dev)?;
            }
            self.streams.synchronize(dev)?;
        }
        Ok(())
    }
}

fn refused(error: DeviceError) -> ExportError {
    ExportError::Buffer(error.to_string())
}
