//! Contributions and results in device memory, chunk by chunk through pinned host memory, while other chunks travel.
//!
//! ```text
//! device to host:   chunk k+1, k+2
//! messages:         chunk k
//! host to device:   chunk k-1
//! ```
//!
//! Each direction has a lane of its own, so that they overlap with each other, too. What travels is what travels from
//! host memory. Knows no message.

use std::ops::Deref;
use std::sync::Arc;

use device::{DeviceError, Mark, Pinned, Rows, cuda};
use dlpack_core::Layout;

use super::{Direct, Flight, Output};
use crate::blocks::blocks;
use crate::error::{Error, Result};

/// Chunks in host memory at once: one on each of the three ways above.
const SLOTS: usize = 3;

/// One copy: where it begins in the chunk's slot, in bytes, and which elements of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copy {
    slot: usize,
    first: usize,
    n: usize,
}

/// Elements in device memory, dense or not.
pub(crate) struct Place {
    /// Address of the tensor's element 0.
    pub memory: u64,
    pub layout: Layout,
    /// The element that is the first of the call's.
    pub start: usize,
}

impl Place {
    /// The rows of a copy, in the order of its elements, each with its place in the slot.
    fn rows(&self, copy: Copy) -> impl Iterator<Item = (usize, Rows)> {
        let mut slot = copy.slot;
        let blocks = blocks(&self.layout, self.start + copy.first, copy.n);
        blocks.into_iter().map(move |block| {
            let at = slot;
            slot += block.width * block.rows;
            let rows = Rows {
                // Never below element 0: strides are positive (`is_coarse`).
                first: block.first as usize,
                width: block.width,
                rows: block.rows,
                pitch: block.pitch,
            };
            (at, rows)
        })
    }
}

/// A way between device and host.
struct Way {
    lane: device::Lane,
    tensor: Place,
    /// Behind the last copy of each slot.
    marks: [Option<Mark>; SLOTS],
}

/// The copies of one reduction.
pub(crate) struct Conveyor {
    ring: Arc<Pinned>,
    slot: usize,
    down: Option<Way>,
    up: Option<Way>,
    /// Chunks whose contributions were asked for.
    asked: usize,
    /// Everything has happened, so that nothing is to be waited for.
    over: bool,
}

impl Way {
    fn new(tensor: Place, dev: i32) -> Result<Way> {
        Ok(Way {
            lane: cuda()?.lane(dev)?,
            tensor,
            marks: [const { None }; SLOTS],
        })
    }

    fn mark(&mut self, chunk: usize) -> std::result::Result<(), DeviceError> {
        let mark = self.lane.mark()?;
        if let Some(slot) = self.marks.get_mut(chunk % SLOTS) {
            *slot = Some(mark);
        }
        Ok(())
    }

    /// Whether the last copy of this chunk's slot has happened; waits for it if `block`.
    fn passed(&self, chunk: usize, block: bool) -> std::result::Result<bool, DeviceError> {
        match self.marks.get(chunk % SLOTS).and_then(Option::as_ref) {
            None => Ok(true),
            Some(mark) if block => mark.wait().map(|()| true),
            Some(mark) => mark.reached(),
        }
    }
}

impl Conveyor {
    /// For a reduction whose contributions or results, or both, lie on `dev` in these places.
    fn new(
        call: &Direct,
        source: Option<Place>,
        target: Option<Place>,
        dev: i32,
    ) -> Result<Conveyor> {
        let chunks = call.geometry.chunks();
        let bytes = |chunk| call.start(chunk, call.ranks);
        let slot = (0..chunks).map(bytes).max().unwrap_or(0);
        let way = |tensor: Option<Place>| tensor.map(|tensor| Way::new(tensor, dev)).transpose();
        let (down, up) = (way(source)?, way(target)?);
        let ring = Pinned::new(cuda()?, slot * SLOTS.min(chunks), dev)?;
        Ok(Conveyor {
            ring: Arc::new(ring),
            slot,
            down,
            up,
            asked: 0,
            over: false,
        })
    }

    /// Whether contributions come from the device.
    pub fn brings(&self) -> bool {
        self.down.is_some()
    }

    /// Whether results go to the device.
    pub fn takes(&self) -> bool {
        self.up.is_some()
    }

    /// Where a rank's block of a chunk lies in host memory.
    pub fn at(&self, call: &Direct, chunk: usize, owner: usize) -> *mut u8 {
        self.slot(chunk).wrapping_add(call.start(chunk, owner))
    }

    /// Where a chunk lies in host memory.
    fn slot(&self, chunk: usize) -> *mut u8 {
        self.ring.as_ptr().wrapping_add(chunk % SLOTS * self.slot)
    }

    /// Asks for the contributions of the next chunk, behind the results that leave from its slot.
    ///
    /// # Safety
    /// - The tensor has the elements that the copies name, and nobody writes them until it was waited for.
    /// - The slot's messages have landed.
    unsafe fn ask(&mut self, copies: &[Copy]) -> std::result::Result<(), DeviceError> {
        let (chunk, to) = (self.asked, self.slot(self.asked));
        let Some(down) = &mut self.down else {
            return Ok(());
        };
        self.asked += 1;
        let leaves = self.up.as_ref().and_then(|up| up.marks.get(chunk % SLOTS));
        if let Some(Some(mark)) = leaves {
            down.lane.follow(mark)?;
        }
        for (slot, rows) in copies.iter().flat_map(|&copy| down.tensor.rows(copy)) {
            let to = to.wrapping_add(slot);
            // SAFETY:
            // - by the caller's promise; the slot has room for a chunk, and the ring outlives the copy (`Drop`).
            unsafe { down.lane.bring(to, down.tensor.memory, rows) }?;
        }
        down.mark(chunk)
    }

    /// Sends the results of a chunk on their way.
    ///
    /// # Safety
    /// - The tensor has the elements that the copies name, and nobody uses them until it was waited for.
    /// - The results are there.
    unsafe fn leave(
        &mut self,
        chunk: usize,
        copies: &[Copy],
    ) -> std::result::Result<(), DeviceError> {
        let from = self.slot(chunk);
        let Some(up) = &mut self.up else {
            return Ok(());
        };
        for (slot, rows) in copies.iter().flat_map(|&copy| up.tensor.rows(copy)) {
            let from = from.wrapping_add(slot);
            // SAFETY:
            // - by the caller's promise; the ring outlives the copy (`Drop`).
            unsafe { up.lane.take(up.tensor.memory, from, rows) }?;
        }
        up.mark(chunk)
    }

    /// Whether a chunk's slot may be sent from and received into; waits for it if `block`.
    fn ready(&self, chunk: usize, block: bool) -> std::result::Result<bool, DeviceError> {
        match (&self.down, &self.up) {
            (Some(down), _) => down.passed(chunk, block),
            (None, Some(up)) => up.passed(chunk, block),
            (None, None) => Ok(true),
        }
    }
}

impl Drop for Conveyor {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        for way in [&self.down, &self.up].into_iter().flatten() {
            if way.lane.wait().is_err() {
                // Nobody knows when the device is done with the memory.
                device::park(way.lane.stream(), Box::new(Arc::clone(&self.ring)));
            }
        }
    }
}

impl Direct {
    /// Bytes of a chunk before what `rank` owns of it, where blocks follow each other.
    fn start(&self, chunk: usize, rank: usize) -> usize {
        let elements = (0..rank).map(|rank| self.geometry.block(chunk, rank).1);
        elements.sum::<usize>() * self.wire.bytes
    }

    /// The contributions to a chunk, in as few copies as there are gaps.
    fn contributions(&self, chunk: usize) -> Vec<Copy> {
        let mut copies: Vec<Copy> = Vec::new();
        for rank in 0..self.ranks {
            let (first, n) = self.geometry.block(chunk, rank);
            match copies.last_mut() {
                _ if n == 0 => {}
                Some(last) if last.first + last.n == first => last.n += n,
                _ => copies.push(Copy {
                    slot: self.start(chunk, rank),
                    first,
                    n,
                }),
            }
        }
        copies
    }

    /// This rank's results of a chunk.
    fn results(&self, chunk: usize) -> Vec<Copy> {
        match self.output {
            Output::Whole(_) => self.contributions(chunk),
            Output::Owned(..) => {
                let (first, n) = self.geometry.block(chunk, self.rank);
                vec![Copy {
                    slot: self.start(chunk, self.rank),
                    first: first - self.geometry.block(0, self.rank).0,
                    n,
                }]
            }
            Output::Nowhere => Vec::new(),
        }
    }

    /// With contributions, results, or both on `dev`; the first chunks are asked for.
    ///
    /// # Safety
    /// - The places are memory of `dev` and hold what the call's geometry divides. The contributions have been written,
    ///   and both are kept, and used by nobody else, until the flight has gone.
    pub unsafe fn on_device(
        self,
        source: Option<Place>,
        target: Option<Place>,
        dev: i32,
    ) -> Result<Direct> {
        let mut conveyor = Conveyor::new(&self, source, target, dev)?;
        for chunk in 0..SLOTS.min(self.geometry.chunks()) {
            // SAFETY:
            // - by the caller's promise; nothing is under way yet.
            unsafe { conveyor.ask(&self.contributions(chunk)) }?;
        }
        self.conveyor.set(Some(Box::new(conveyor)));
        Ok(self)
    }
}

impl<D: Deref<Target = Direct>> Flight<D> {
    /// Whether a chunk's messages may start; waits for it if `block`. A failure is told to the others by what is sent.
    pub(super) fn is_ready(&mut self, chunk: usize, block: bool) -> bool {
        let Some(conveyor) = &self.conveyor else {
            return true;
        };
        match conveyor.ready(chunk, block) {
            Ok(ready) => ready,
            Err(why) => {
                self.fails(why.into());
                true
            }
        }
    }

    /// Lets the results of a chunk leave for the device, and asks for the chunk that takes its slot.
    ///
    /// # Safety
    /// - As for [`Direct::run`]; the chunk's messages have landed.
    pub(super) unsafe fn turn(&mut self, chunk: usize) {
        let Some(conveyor) = &mut self.conveyor else {
            return;
        };
        let next = chunk + SLOTS;
        if self.failed.is_none() {
            // SAFETY:
            // - by the caller's promise.
            let left = unsafe { conveyor.leave(chunk, &self.call.results(chunk)) };
            if let (Err(why), None) = (left, &self.stranded) {
                self.stranded = Some(why.into());
            }
        }
        if next < self.call.geometry.chunks() && self.failed.is_none() {
            // SAFETY:
            // - by the caller's promise.
            if let Err(why) = unsafe { conveyor.ask(&self.call.contributions(next)) } {
                self.fails(why.into());
            }
        }
    }

    /// From now on this rank's messages are empty, which says to the others that it has failed.
    pub(super) fn fails(&mut self, why: Error) {
        self.failed.get_or_insert(why);
    }

    /// Whether all results are home; waits for it if `block`.
    pub(super) fn is_home(&mut self, block: bool) -> Result<bool> {
        if let Some(why) = self.failed.take().or_else(|| self.stranded.take()) {
            return Err(why);
        }
        let Some(conveyor) = &mut self.conveyor else {
            return Ok(true);
        };
        // The last copy comes after all others of its lane. Contributions were waited for one by one.
        let last = self.call.geometry.chunks().saturating_sub(1);
        conveyor.over = match &conveyor.up {
            Some(up) => up.passed(last, block)?,
            None => true,
        };
        Ok(conveyor.over)
    }
}
