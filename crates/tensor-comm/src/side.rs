//! One side of a call: a tensor's elements in the form in which they travel, and the way back.
//!
//! A contiguous host tensor whose elements travel as they lie in memory is used in place. Everything
//! else goes through scratch memory: packed into logical order, widened where the wire says so, and
//! settled (divided, rounded, unpacked, copied back) after MPI, only where MPI wrote.

mod alias;
mod ranges;
mod sliced;

use dlpack_core::{DType, View};
use smallvec::SmallVec;

use crate::copying::copy;
use crate::error::{Result, value_error};
use crate::host::{Elements, Host};
use crate::kernels;
use crate::pack::{pack, unpack};
use crate::scratch::Scratch;
use crate::wire::Element;
use ranges::Range;
use sliced::Sliced;

pub(crate) use alias::{may_alias, same_elements};
pub(crate) use ranges::Ranges;

/// Elements per step when packing and widening at once: small enough to stay in the first-level cache.
const STEP: usize = 2048;
/// Largest element that is ever widened, in bytes (complex32).
const NARROW_BYTES: usize = 4;

/// One side of a call, ready for MPI.
pub(crate) struct Side {
    dtype: DType,
    itemsize: usize,
    contiguous: bool,
    /// Of a tensor that MPI does not work on in place.
    view: Option<Box<View>>,
    host: Host,
    element: Element,
    wire_bytes: usize,
    ranges: SmallVec<[Range; 1]>,
    scratch: Option<Scratch>,
    /// Its elements come and go in slices.
    sliced: Option<Sliced>,
}

impl Side {
    /// Elements to be sent. `copy` forces a copy, for memory that is also received into.
    pub fn sending(ranges: Ranges<'_>, element: Element, copy: bool) -> Result<Side> {
        let host = Side::host(&ranges, true)?;
        let mut side = Side::new(ranges, element, host);
        if copy || side.scratch_needed() {
            side.allocate()?;
            side.fill()?;
        }
        Ok(side)
    }

    /// Puts all ranges one after the other in scratch memory, with their present values if `fill`.
    pub fn compact(&mut self, fill: bool) -> Result<()> {
        if self.scratch.is_none() {
            self.allocate()?;
            if fill {
                self.fill()?;
            }
        }
        Ok(())
    }

    /// Room to receive into; `keep` brings the present values along, for what MPI only updates.
    pub fn receiving(ranges: Ranges<'_>, element: Element, keep: bool) -> Result<Side> {
        ranges.view.check_writable()?;
        let host = Side::host(&ranges, keep)?;
        let mut side = Side::new(ranges, element, host);
        if side.scratch_needed() {
            side.allocate()?;
            if keep {
                side.fill()?;
            }
        }
        Ok(side)
    }

    /// Elements in device memory that MPI can be given the address of; else none. They travel as they lie there.
    pub fn on_device(
        ranges: &Ranges<'_>,
        element: Element,
        receives: bool,
    ) -> Result<Option<Side>> {
        let Element::Memory(_) = element else {
            return Ok(None);
        };
        let Some(host) = Host::on_device(ranges.view)? else {
            return Ok(None);
        };
        if receives {
            ranges.view.check_writable()?;
        }
        Ok(Some(Side::new(ranges.clone(), element, host)))
    }

    /// Elements in dense device memory that others bring to the host and back.
    pub fn elsewhere(ranges: Ranges<'_>, element: Element, receives: bool) -> Result<Side> {
        if receives {
            ranges.view.check_writable()?;
        }
        let host = Host::Elsewhere(ranges.view.data());
        Ok(Side::new(ranges, element, host))
    }

    /// As [`Side::sending`], for MPI alone to read: from the device, where `direct` and nothing must be copied.
    pub fn sending_to_mpi(
        ranges: Ranges<'_>,
        element: Element,
        copy: bool,
        direct: bool,
    ) -> Result<Side> {
        if direct
            && !copy
            && let Some(side) = Side::on_device(&ranges, element, false)?
        {
            return Ok(side);
        }
        Side::sending(ranges, element, copy)
    }

    /// As [`Side::receiving`], for MPI alone to write.
    pub fn receiving_from_mpi(
        ranges: Ranges<'_>,
        element: Element,
        keep: bool,
        direct: bool,
    ) -> Result<Side> {
        if direct && let Some(side) = Side::on_device(&ranges, element, true)? {
            return Ok(side);
        }
        Side::receiving(ranges, element, keep)
    }

    /// Host memory for the ranges; `read`: their present values matter.
    fn host(ranges: &Ranges<'_>, read: bool) -> Result<Host> {
        if let Some(own) = Host::own(ranges.view) {
            return Ok(own);
        }
        let elements: SmallVec<[Elements; 1]> = (ranges.ranges.iter())
            .map(|range| (range.start, range.count))
            .collect();
        Host::of(ranges.view, &elements, read)
    }

    fn new(ranges: Ranges<'_>, element: Element, host: Host) -> Side {
        let Ranges { view, ranges } = ranges;
        let wire_bytes = match element {
            Element::Memory(_) => view.itemsize(),
            Element::Widened { to, .. } => to.itemsize().unwrap_or(0),
        };
        let contiguous = view.layout().is_c_contiguous();
        let in_place = contiguous && matches!((&host, element), (Host::Own(_), Element::Memory(_)));
        Side {
            dtype: view.dtype(),
            itemsize: view.itemsize(),
            contiguous,
            // Most calls need none, and a copy of it takes time.
            view: (!in_place).then(|| Box::new(view.clone())),
            host,
            element,
            wire_bytes,
            ranges,
            scratch: None,
            sliced: None,
        }
    }

    fn scratch_needed(&self) -> bool {
        let in_form = self.contiguous && matches!(self.element, Element::Memory(_));
        !in_form && self.ranges.iter().any(|range| range.count > 0)
    }

    /// Scratch memory with all ranges one after the other.
    fn allocate(&mut self) -> Result<()> {
        let mut at = 0usize;
        for range in &mut self.ranges {
            range.at = at;
            at = at
                .checked_add(range.count)
                .ok_or_else(|| value_error!("the blocks together exceed the address space"))?;
        }
        let bytes = at.checked_mul(self.wire_bytes);
        self.scratch = Some(Scratch::new(bytes.ok_or_else(|| {
            value_error!("the blocks together exceed the address space")
        })?)?);
        Ok(())
    }

    /// The tensor's elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of one element of the tensor.
    pub fn itemsize(&self) -> usize {
        self.itemsize
    }

    /// Address of element 0 of the travelling form.
    pub fn base(&self) -> *mut u8 {
        self.scratch
            .as_ref()
            .map_or_else(|| self.host.data(), Scratch::ptr)
    }

    /// Address of the first element of the first range.
    pub fn ptr(&self) -> *mut u8 {
        let at = self.ranges.first().map_or(0, |range| range.at);
        self.base().wrapping_add(at * self.wire_bytes)
    }

    /// Displacement of each range from [`Side::base`], in elements.
    pub fn displs(&self) -> Vec<i64> {
        self.ranges.iter().map(|range| range.at as i64).collect()
    }

    /// Whether MPI works on the tensor's own memory, so that nothing has to be brought home.
    pub fn is_direct(&self) -> bool {
        self.scratch.is_none() && matches!(self.host, Host::Own(_))
    }

    /// Whether the elements were brought into another order or form, or copied.
    pub fn is_packed(&self) -> bool {
        self.scratch.is_some() || self.is_sliced()
    }

    /// Whether device memory goes through the host.
    pub fn is_staged(&self) -> bool {
        matches!(self.host, Host::Mirror(_) | Host::Elsewhere(_))
    }

    /// Bytes of all that travels.
    pub fn bytes(&self) -> usize {
        let elements = self.ranges.iter().map(|range| range.count);
        elements
            .fold(0, usize::saturating_add)
            .saturating_mul(self.wire_bytes)
    }

    /// Bytes of one element in the travelling form.
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// Packs and widens the ranges into scratch memory.
    fn fill(&self) -> Result<()> {
        self.refill(None)
    }

    /// The same again, or for one of so many equal parts of each range.
    pub fn refill(&self, part: Option<(usize, usize)>) -> Result<()> {
        let Some(scratch) = &self.scratch else {
            return Ok(());
        };
        for range in &self.ranges {
            let range = &part.map_or(*range, |part| range.part(part));
            let out = scratch.ptr().wrapping_add(range.at * self.wire_bytes);
            match self.element {
                // SAFETY:
                // - `data` is element 0 of a layout that the door checked, and the memory is held by the caller.
                // - `start + count` is within the tensor (arg.rs).
                // - `out` has room for `count` elements (`allocate`) and is not the tensor's memory.
                Element::Memory(_) => unsafe { self.pack(range.start, range.count, out) },
                Element::Widened { from, .. } => self.widen(from, *range, out)?,
            }
        }
        Ok(())
    }

    fn widen(&self, from: DType, range: Range, out: *mut u8) -> Result<()> {
        let widen =
            kernels::widen(from).ok_or_else(|| value_error!("{from} is moved, never reduced"))?;
        let mut step = [0u8; STEP * NARROW_BYTES];
        for first in (0..range.count).step_by(STEP) {
            let n = STEP.min(range.count - first);
            // SAFETY:
            // - as in `fill`; `step` has room for STEP elements of at most NARROW_BYTES bytes.
            // - `out` has room for `count` widened elements, which are float32 or pairs of them.
            unsafe {
                self.pack(range.start + first, n, step.as_mut_ptr());
                widen(step.as_ptr(), out.add(first * self.wire_bytes).cast(), n);
            }
        }
        Ok(())
    }

    /// Packs `n` elements of the tensor from element `start` on.
    ///
    /// # Safety
    /// - The tensor's memory is held, and the elements are within it.
    /// - `out` has room for them and is not the tensor's memory.
    unsafe fn pack(&self, start: usize, n: usize, out: *mut u8) {
        let data = self.host.data();
        match &self.view {
            // SAFETY:
            // - the door checked the layout; the rest is promised by the caller.
            Some(view) => unsafe { pack(view.layout(), data, start, n, out) },
            // SAFETY:
            // - without a view the elements follow each other; the rest is promised by the caller.
            None if n > 0 => unsafe {
                let (from, bytes) = (data.add(start * self.itemsize), n * self.itemsize);
                copy(from, out, bytes);
            },
            None => {}
        }
    }

    /// The reverse of [`Side::pack`].
    ///
    /// # Safety
    /// - As for it; besides, the tensor is writable and its elements share no memory.
    unsafe fn unpack_to(&self, start: usize, n: usize, from: *const u8) {
        let data = self.host.data();
        match &self.view {
            // SAFETY:
            // - as above.
            Some(view) => unsafe { unpack(view.layout(), data, start, n, from) },
            // SAFETY:
            // - as above.
            None if n > 0 => unsafe {
                let (to, bytes) = (data.add(start * self.itemsize), n * self.itemsize);
                copy(from, to, bytes);
            },
            None => {}
        }
    }

    /// Brings one of so many equal parts of each range home.
    pub fn settle_part(&self, part: (usize, usize)) -> Result<()> {
        for range in self.ranges.iter().map(|range| range.part(part)) {
            let wire = self.base().wrapping_add(range.at * self.wire_bytes);
            if self.scratch.is_some() && range.count > 0 {
                self.unpack(range, wire)?;
            }
        }
        Ok(())
    }

    /// Brings received elements home: at most `limit` elements of each range, divided by `mean` first.
    pub fn settle(&self, limit: usize, mean: Option<u64>) -> Result<()> {
        let mut written: SmallVec<[Elements; 1]> = SmallVec::new();
        for range in &self.ranges {
            let range = Range {
                count: range.count.min(limit),
                ..*range
            };
            if range.count == 0 {
                continue;
            }
            let wire = self.base().wrapping_add(range.at * self.wire_bytes);
            if let Some(divisor) = mean {
                // SAFETY:
                // - `wire` holds `count` elements of the travelling dtype, written by MPI, ours to change.
                unsafe { kernels::scale(self.element.dtype(), wire, range.count, divisor) };
            }
            if self.scratch.is_some() {
                self.unpack(range, wire)?;
            }
            written.push((range.start, range.count));
        }
        match &self.view {
            Some(view) => self.host.commit(view, &written),
            None => Ok(()),
        }
    }

    fn unpack(&self, range: Range, wire: *const u8) -> Result<()> {
        let Element::Widened { from, .. } = self.element else {
            // SAFETY:
            // - the door found the tensor writable and without overlap (`receiving`), its memory is held.
            // - the range is within the tensor, and `wire` holds as many elements.
            unsafe { self.unpack_to(range.start, range.count, wire) };
            return Ok(());
        };
        let narrow =
            kernels::narrow(from).ok_or_else(|| value_error!("{from} is moved, never reduced"))?;
        let mut step = [0u8; STEP * NARROW_BYTES];
        for first in (0..range.count).step_by(STEP) {
            let n = STEP.min(range.count - first);
            // SAFETY:
            // - as above; `step` has room for STEP elements of at most NARROW_BYTES bytes.
            unsafe {
                narrow(
                    wire.add(first * self.wire_bytes).cast(),
                    step.as_mut_ptr(),
                    n,
                );
                self.unpack_to(range.start + first, n, step.as_ptr());
            }
        }
        Ok(())
    }
}
