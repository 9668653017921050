//! A host address for a tensor's memory: the memory itself, or a mirror of device memory.
//!
//! Device memory is staged, but where MPI is known to take its address (`ground/awareness.rs`). What is only received is not read from the device, and only the elements that were received are
//! written to it.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use device::{Pinned, Rows, StreamHandle, cuda};
use dlpack_core::{DeviceKind, View};
use smallvec::SmallVec;

use crate::blocks::{Block, blocks, is_coarse};
use crate::error::{Result, buffer_error};
use crate::scratch::Scratch;

/// Mirrors up to this size are pinned, which the device copies to and from twice as fast.
const PINNED_MOST: usize = 1 << 28;
/// Gaps are read along when the tensor's memory is up to so many times its elements: one long copy beats many short ones.
const GAPS: usize = 4;

/// Where a tensor's logical element 0 lies in host memory.
pub(crate) enum Host {
    /// The tensor's own memory.
    Own(*mut u8),
    /// A copy of a part of it.
    Mirror(Mirror),
    /// Device memory: somebody else brings its elements to the host and back (`direct/conveyor.rs`).
    Elsewhere(*mut u8),
}

/// The bytes of a tensor from `low` (relative to element 0) on, in host memory.
pub(crate) struct Mirror {
    room: ManuallyDrop<Room>,
    low: isize,
    /// The wait for this stream failed, and nobody knows when the device is done with the room.
    unknown: Cell<Option<StreamHandle>>,
}

enum Room {
    Pinned(Pinned),
    Scratch(Scratch),
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY:
        // - taken once, here.
        let room = unsafe { ManuallyDrop::take(&mut self.room) };
        if let Some(stream) = self.unknown.get() {
            device::park(stream, Box::new(room));
        }
    }
}

/// Logical elements: the first, and how many.
pub(crate) type Elements = (usize, usize);

impl Host {
    /// The tensor's own memory, where the host reaches it.
    #[inline]
    pub fn own(view: &View) -> Option<Host> {
        let reached = view.device().is_host_addressable() || view.numel() == 0;
        reached.then(|| Host::Own(view.data()))
    }

    /// The address of dense device memory, for an MPI that takes it; none where the memory cannot be opened by other
    /// processes, as MPI's do it on one node.
    pub fn on_device(view: &View) -> Result<Option<Host>> {
        let dense = view.device().kind == DeviceKind::CUDA && view.layout().is_c_contiguous();
        if !dense || view.numel() == 0 || !cuda()?.is_exportable(view.data() as u64)? {
            return Ok(None);
        }
        Ok(Some(Host::Own(view.data())))
    }

    /// The device of memory that the CUDA driver copies in a few pieces; else none.
    pub fn copied_from(view: &View) -> Option<i32> {
        let device = view.device();
        let few = |view: &View| view.layout().is_c_contiguous() || is_coarse(view.layout());
        (device.kind == DeviceKind::CUDA && view.numel() > 0 && few(view)).then_some(device.id)
    }

    /// Host memory for these elements of a tensor; it holds what they are now where they are `read`.
    pub fn of(view: &View, elements: &[Elements], read: bool) -> Result<Host> {
        let host = Host::room(view, elements)?;
        if read {
            together([(view, &host)], |host, view| host.refresh(view, elements))?;
        }
        Ok(host)
    }

    /// Host memory for whole tensors that holds what they are now; one wait per device.
    pub fn of_all(views: &[&View]) -> Result<Vec<Host>> {
        let hosts = views.iter().map(|view| Host::room(view, &[whole(view)]));
        let hosts = hosts.collect::<Result<Vec<Host>>>()?;
        let pairs = views.iter().copied().zip(&hosts);
        together(pairs, |host, view| host.refresh(view, &[whole(view)]))?;
        Ok(hosts)
    }

    /// Host memory for these elements of a tensor, the tensor's own where that can be.
    fn room(view: &View, elements: &[Elements]) -> Result<Host> {
        if let Some(own) = Host::own(view) {
            return Ok(own);
        }
        reachable(view)?;
        let (low, high) = reach(view, elements);
        Ok(Host::Mirror(Mirror {
            room: ManuallyDrop::new(Room::new(high.abs_diff(low), view.device().id)?),
            low,
            unknown: Cell::new(None),
        }))
    }

    /// Queues a copy of what the elements are now into the mirror; own memory has nothing to do.
    fn refresh(&self, view: &View, elements: &[Elements]) -> Result<()> {
        let Host::Mirror(mirror) = self else {
            return Ok(());
        };
        let (low, high) = reach(view, elements);
        let wanted: usize = elements.iter().map(|range| range.1).sum();
        let bytes = high.abs_diff(low);
        let whole = bytes <= GAPS * wanted * view.itemsize();
        let read: Vec<Block> = match whole {
            true => vec![Block::line(low, bytes)],
            false => every(view, elements),
        };
        let rows = read.iter().map(|block| rows(block, low));
        let device = (view.data() as u64).wrapping_add_signed(low as i64);
        // SAFETY:
        // - the door found these bytes to be the tensor's, whose memory the caller holds.
        // - the mirror was made with room for all of them, from `low` on, and is kept if the wait fails (`together`).
        unsafe { cuda()?.queue_to_host(mirror.ptr(), device, rows, view.device().id) }?;
        Ok(())
    }

    /// Address of logical element 0.
    pub fn data(&self) -> *mut u8 {
        match self {
            Host::Own(data) | Host::Elsewhere(data) => *data,
            Host::Mirror(mirror) => mirror.ptr().wrapping_offset(-mirror.low),
        }
    }

    /// Copies these elements, and no byte between them, back to the device; own memory has nothing to do.
    pub fn commit(&self, view: &View, elements: &[Elements]) -> Result<()> {
        together([(view, self)], |host, view| host.give(view, elements))
    }

    /// Copies whole tensors back; one wait per device.
    pub fn commit_all<'a>(pairs: impl IntoIterator<Item = (&'a View, &'a Host)>) -> Result<()> {
        together(pairs, |host, view| host.give(view, &[whole(view)]))
    }

    /// Queues a copy of these elements to the device.
    fn give(&self, view: &View, elements: &[Elements]) -> Result<()> {
        let Host::Mirror(mirror) = self else {
            return Ok(());
        };
        let written = every(view, elements);
        let rows = written.iter().map(|block| rows(block, mirror.low));
        let device = (view.data() as u64).wrapping_add_signed(mirror.low as i64);
        // SAFETY:
        // - the elements are among those that `of` made the mirror for, so both sides have these bytes.
        // - the tensor is writable (side.rs), its memory is held by the caller, the mirror is kept if the wait fails
        //   (`together`).
        unsafe { cuda()?.queue_to_device(device, mirror.ptr(), rows, view.device().id) }?;
        Ok(())
    }
}

impl Mirror {
    fn ptr(&self) -> *mut u8 {
        match &*self.room {
            Room::Pinned(pinned) => pinned.as_ptr(),
            Room::Scratch(scratch) => scratch.ptr(),
        }
    }
}

/// Queues the copies of mirrors, then waits once for each device. After a wait that failed nobody knows what is still
/// under way.
fn together<'a>(
    pairs: impl IntoIterator<Item = (&'a View, &'a Host)>,
    queue: impl Fn(&Host, &View) -> Result<()>,
) -> Result<()> {
    let mut devices: SmallVec<[i32; 1]> = SmallVec::new();
    let mut mirrors: SmallVec<[(i32, &Mirror); 1]> = SmallVec::new();
    let mut done = Ok(());
    for (view, host) in pairs {
        let Host::Mirror(mirror) = host else { continue };
        let dev = view.device().id;
        mirrors.push((dev, mirror));
        if !devices.contains(&dev) {
            devices.push(dev);
        }
        done = done.and_then(|()| queue(host, view));
    }
    // Also after an error: what was queued before it uses the mirrors.
    for dev in devices {
        let Err(why) = cuda().and_then(|cuda| cuda.synchronize(dev)) else {
            continue;
        };
        done = done.and(Err(why.into()));
        // Without a stream nothing was queued.
        let stream = cuda().and_then(|cuda| cuda.stream(dev)).ok();
        let hit = mirrors.iter().filter(|mirror| mirror.0 == dev);
        hit.for_each(|mirror| mirror.1.unknown.set(stream));
    }
    done
}

fn whole(view: &View) -> Elements {
    (0, view.numel())
}

impl Room {
    fn new(bytes: usize, dev: i32) -> Result<Room> {
        match bytes <= PINNED_MOST {
            true => Ok(Room::Pinned(Pinned::new(cuda()?, bytes, dev)?)),
            false => Scratch::new(bytes).map(Room::Scratch),
        }
    }
}

/// The lowest byte that the elements touch and one past the highest, or more.
fn reach(view: &View, elements: &[Elements]) -> (isize, isize) {
    if !view.layout().is_c_contiguous() {
        return view.layout().span();
    }
    let item = view.itemsize();
    let some = elements.iter().filter(|range| range.1 > 0);
    let low = some.clone().map(|range| range.0).min().unwrap_or(0);
    let high = some.map(|range| range.0 + range.1).max().unwrap_or(0);
    ((low * item) as isize, (high * item) as isize)
}

fn every(view: &View, elements: &[Elements]) -> Vec<Block> {
    let ranges = elements.iter();
    ranges
        .flat_map(|&(start, count)| blocks(view.layout(), start, count))
        .collect()
}

/// A block relative to the lowest byte.
fn rows(block: &Block, low: isize) -> Rows {
    Rows {
        first: (block.first - low) as usize,
        width: block.width,
        rows: block.rows,
        pitch: block.pitch,
    }
}

fn reachable(view: &View) -> Result<()> {
    match view.device().kind {
        DeviceKind::CUDA => Ok(()),
        _ => Err(buffer_error!(
            "the tensor is on {}, whose memory dlmpi cannot copy; move it to the CPU first",
            view.device()
        )),
    }
}
