//! Copies between host and device and inside a device, on our stream, finished when they return (those of lanes: queued
//! only). Knows nothing of what is copied.

use core::ffi::c_void;

use crate::symbols::{Copy2D, MEMORY_DEVICE, MEMORY_HOST, Object, Place, Status};
use crate::{Cuda, DeviceError, stream};

/// The driver takes no greater distance between rows.
const LARGEST_PITCH: usize = i32::MAX as usize;

/// Rows of bytes, as far from each other on both sides of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Where the first row begins, relative to the address given for each side.
    pub first: usize,
    /// Bytes of a row.
    pub width: usize,
    /// How many there are.
    pub rows: usize,
    /// From one row to the next; at least `width`.
    pub pitch: usize,
}

impl Rows {
    /// One row from the start on.
    pub fn line(width: usize) -> Rows {
        Rows {
            first: 0,
            width,
            rows: 1,
            pitch: width,
        }
    }
}

/// Which way.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    ToHost,
    ToDevice,
    OnDevice,
}

impl Cuda {
    /// Copies from the device, behind everything our stream waits for. The bytes are there when this returns.
    ///
    /// # Safety
    /// - `n` bytes at `src` are memory of `dev`; `n` bytes at `dst` are writable host memory that nobody else uses, after
    ///   an error for ever.
    pub unsafe fn copy_to_host(
        &'static self,
        dst: *mut u8,
        src: u64,
        n: usize,
        dev: i32,
    ) -> Result<(), DeviceError> {
        self.copy(Way::ToHost, dst.expose_provenance() as u64, src, n, dev)
    }

    /// Copies to the device, behind everything our stream waits for. Kernels launched later see the bytes.
    ///
    /// # Safety
    /// - `n` bytes at `dst` are memory of `dev` that nobody else uses; `n` bytes at `src` are readable host memory, after
    ///   an error for ever.
    pub unsafe fn copy_to_device(
        &'static self,
        dst: u64,
        src: *const u8,
        n: usize,
        dev: i32,
    ) -> Result<(), DeviceError> {
        self.copy(Way::ToDevice, dst, src.expose_provenance() as u64, n, dev)
    }

    /// Copies inside a device, behind everything our stream waits for.
    ///
    /// # Safety
    /// - `n` bytes at `src` and at `dst` are memory of `dev`, do not overlap, and nobody else uses those at `dst`.
    pub unsafe fn copy_on_device(
        &'static self,
        dst: u64,
        src: u64,
        n: usize,
        dev: i32,
    ) -> Result<(), DeviceError> {
        self.copy(Way::OnDevice, dst, src, n, dev)
    }

    /// Queues rows from the device, which keep their distances; [`Cuda::synchronize`] on this thread waits for them.
    ///
    /// # Safety
    /// - As for [`Cuda::copy_to_host`], of every row, until that has returned; after an error for ever.
    pub unsafe fn queue_to_host(
        &'static self,
        dst: *mut u8,
        src: u64,
        rows: impl IntoIterator<Item = Rows>,
        dev: i32,
    ) -> Result<(), DeviceError> {
        self.queue(Way::ToHost, dst.expose_provenance() as u64, src, rows, dev)
            .map(drop)
    }

    /// Queues rows to the device, which keep their distances; [`Cuda::synchronize`] on this thread waits for them.
    ///
    /// # Safety
    /// - As for [`Cuda::copy_to_device`], of every row, until that has returned; after an error for ever.
    pub unsafe fn queue_to_device(
        &'static self,
        dst: u64,
        src: *const u8,
        rows: impl IntoIterator<Item = Rows>,
        dev: i32,
    ) -> Result<(), DeviceError> {
        let src = src.expose_provenance() as u64;
        self.queue(Way::ToDevice, dst, src, rows, dev).map(drop)
    }

    /// Queues everything, then waits. After an error copies may still be under way.
    fn copy(
        &'static self,
        way: Way,
        dst: u64,
        src: u64,
        n: usize,
        dev: i32,
    ) -> Result<(), DeviceError> {
        match self.queue(way, dst, src, [Rows::line(n)], dev) {
            Ok(false) => Ok(()),
            // Also after an error: what was queued before it uses the host's memory.
            queued => {
                let waited = self.synchronize(dev);
                queued.and(waited)
            }
        }
    }

    /// Queues everything; whether there was anything.
    fn queue(
        &'static self,
        way: Way,
        dst: u64,
        src: u64,
        rows: impl IntoIterator<Item = Rows>,
        dev: i32,
    ) -> Result<bool, DeviceError> {
        let mut rows = rows.into_iter().filter(|rows| rows.width * rows.rows > 0);
        let Some(first) = rows.next() else {
            return Ok(false);
        };
        let _current = self.current(dev)?;
        let stream = stream::of_this_thread(self, dev)?;
        core::iter::once(first)
            .chain(rows)
            .try_for_each(|rows| self.enqueue(way, dst, src, rows, stream))?;
        Ok(true)
    }

    pub(crate) fn enqueue(
        &self,
        way: Way,
        dst: u64,
        src: u64,
        rows: Rows,
        stream: Object,
    ) -> Result<(), DeviceError> {
        let (dst, src) = (dst + rows.first as u64, src + rows.first as u64);
        let pitches = (rows.pitch, rows.pitch);
        self.enqueue_apart(way, (dst, src), pitches, (rows.width, rows.rows), stream)
    }

    /// Rows of `size.0` bytes, `size.1` of them, with other distances on each side: those of `dst` and `src`.
    pub(crate) fn enqueue_apart(
        &self,
        way: Way,
        (dst, src): (u64, u64),
        (to, from): (usize, usize),
        (width, rows): (usize, usize),
        stream: Object,
    ) -> Result<(), DeviceError> {
        if rows > 1 && (to, from) == (width, width) {
            return self.enqueue_apart(way, (dst, src), (0, 0), (width * rows, 1), stream);
        }
        if rows > 1 && to.max(from) <= LARGEST_PITCH {
            let (source, target) = match way {
                Way::ToHost => (MEMORY_DEVICE, MEMORY_HOST),
                Way::ToDevice => (MEMORY_HOST, MEMORY_DEVICE),
                Way::OnDevice => (MEMORY_DEVICE, MEMORY_DEVICE),
            };
            let copy = Copy2D {
                source: Place::new(source, src, from),
                target: Place::new(target, dst, to),
                width,
                height: rows,
            };
            // SAFETY:
            // - Both ranges are valid by the promise of `copy`'s callers, and stay so until the wait there.
            let code = unsafe { (self.table.memcpy_2d_async)(&copy, stream) };
            return self.check("cuMemcpy2DAsync", code);
        }
        (0..rows as u64).try_for_each(|row| {
            let (dst, src) = (dst + row * to as u64, src + row * from as u64);
            let (call, code) = self.line(way, dst, src, width, stream);
            self.check(call, code)
        })
    }

    fn line(
        &self,
        way: Way,
        dst: u64,
        src: u64,
        n: usize,
        stream: Object,
    ) -> (&'static str, Status) {
        let host =
            |address: u64| core::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        // SAFETY:
        // - Both ranges are valid by the promise of `copy`'s callers, and stay so until the wait there.
        unsafe {
            match way {
                Way::ToHost => (
                    "cuMemcpyDtoHAsync",
                    (self.table.memcpy_dtoh_async)(host(dst), src, n, stream),
                ),
                Way::ToDevice => (
                    "cuMemcpyHtoDAsync",
                    (self.table.memcpy_htod_async)(dst, host(src), n, stream),
                ),
                Way::OnDevice => (
                    "cuMemcpyDtoDAsync",
                    (self.table.memcpy_dtod_async)(dst, src, n, stream),
                ),
            }
        }
    }
}
