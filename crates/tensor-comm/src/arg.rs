//! Arguments of an operation: which elements of which tensor.
//!
//! Counts and displacements are elements in logical (C) order, whatever the memory order is. Bounds are
//! checked here, once, so that everything behind may trust them.

use dlpack_core::{DType, Device, View};

use crate::error::{Result, value_error};
use crate::ground::settings::Settings;

/// Consecutive logical elements of one tensor.
#[derive(Debug, Clone)]
pub struct Part {
    view: View,
    start: usize,
    count: usize,
}

impl Part {
    /// All elements of a tensor.
    pub fn whole(view: View) -> Part {
        let view = ordered(view);
        let count = view.numel();
        Part {
            view,
            start: 0,
            count,
        }
    }

    /// `count` elements from element `start` on; `name` is the argument's name for the error message.
    ///
    /// # Errors
    /// [`crate::Error::Value`] when a number is negative or the range leaves the tensor.
    pub fn new(view: View, name: &str, start: i64, count: i64) -> Result<Part> {
        let view = ordered(view);
        let (start, count) = bounds(&view, name, start, count)?;
        Ok(Part { view, start, count })
    }

    /// No elements: what a rank passes where MPI looks at no buffer (`PROC_NULL`).
    ///
    /// # Errors
    /// Never in practice: an empty view passes the door.
    pub fn empty() -> Result<Part> {
        // SAFETY:
        // - there are no elements, so no byte is reached.
        let view = unsafe {
            View::from_parts(
                std::ptr::null_mut(),
                &[0],
                None,
                DType::U8,
                Device::CPU,
                false,
            )
        }?;
        Ok(Part::whole(view))
    }

    /// The tensor.
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// First logical element.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Number of elements.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }
}

/// One block of consecutive logical elements per rank.
#[derive(Debug, Clone)]
pub struct Blocks {
    view: View,
    counts: Vec<i64>,
    displs: Vec<i64>,
}

impl Blocks {
    /// Block `r` is `counts[r]` elements from element `displs[r]` on.
    ///
    /// # Errors
    /// [`crate::Error::Value`] when the lengths differ, a number is negative, or a block leaves the tensor.
    pub fn new(view: View, name: &str, counts: Vec<i64>, displs: Vec<i64>) -> Result<Blocks> {
        let view = ordered(view);
        if counts.len() != displs.len() {
            return Err(value_error!(
                "{name}: {} counts but {} displacements; give one of each per rank",
                counts.len(),
                displs.len()
            ));
        }
        for (rank, (&count, &displ)) in counts.iter().zip(&displs).enumerate() {
            // MPI ignores the displacement of an empty block (MPI 4.1 §6.5).
            if count != 0 {
                bounds(
                    &view,
                    &format!("{name}: block of rank {rank}"),
                    displ,
                    count,
                )?;
            }
        }
        Ok(Blocks {
            view,
            counts,
            displs,
        })
    }

    /// The tensor.
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Elements per rank.
    #[inline]
    pub fn counts(&self) -> &[i64] {
        &self.counts
    }

    /// First element per rank.
    #[inline]
    pub fn displs(&self) -> &[i64] {
        &self.displs
    }

    /// Elements of all blocks together.
    pub fn total(&self) -> usize {
        self.counts.iter().map(|&c| c as usize).sum()
    }

    /// Whether the blocks together fit `int` counts of `units` units an element, but not where they lie.
    pub(crate) fn far(&self, units: usize) -> bool {
        let beyond = |elements: usize| elements.saturating_mul(units) > i32::MAX as usize;
        let displs = self
            .counts
            .iter()
            .zip(&self.displs)
            .filter(|(count, _)| **count > 0);
        !beyond(self.total()) && displs.map(|(_, displ)| *displ as usize).any(beyond)
    }

    /// Whether two blocks share an element, which MPI forbids where blocks are received.
    pub(crate) fn overlap(&self) -> Option<(usize, usize)> {
        let mut order: Vec<usize> = (0..self.counts.len())
            .filter(|&r| self.counts[r] > 0)
            .collect();
        order.sort_by_key(|&r| self.displs[r]);
        order
            .windows(2)
            .find(|pair| self.displs[pair[0]] + self.counts[pair[0]] > self.displs[pair[1]])
            .map(|pair| (pair[0], pair[1]))
    }
}

/// One buffer argument of a collective.
#[derive(Debug, Clone)]
pub enum Arg {
    /// Not significant on this rank, or `None`.
    Absent,
    /// `MPI.IN_PLACE`.
    InPlace,
    /// One part, divided evenly among the ranks where the operation has one block per rank.
    Part(Part),
    /// One block per rank.
    Blocks(Blocks),
}

impl Arg {
    /// The tensor, where there is one.
    #[inline]
    pub fn view(&self) -> Option<&View> {
        match self {
            Arg::Part(part) => Some(part.view()),
            Arg::Blocks(blocks) => Some(blocks.view()),
            Arg::Absent | Arg::InPlace => None,
        }
    }
}

/// Under `DLMPI_ORDER=memory` a tensor without gaps is its memory, as in mpi4py; else it is its elements in
/// logical order.
fn ordered(view: View) -> View {
    let layout = view.layout();
    if layout.is_c_contiguous() || !Settings::get().is_ok_and(|settings| settings.memory_order) {
        return view;
    }
    let (low, high) = layout.span();
    let dense = high - low == layout.nbytes() as isize && !layout.overlaps();
    if !dense || view.copied() || view.packed_numel().is_some() {
        return view;
    }
    let shape = [layout.numel() as i64];
    let start = view.data().wrapping_offset(low);
    // SAFETY:
    // - the same bytes as the checked view's, from the lowest on.
    let flat = unsafe {
        View::from_parts(
            start,
            &shape,
            None,
            view.dtype(),
            view.device(),
            view.readonly(),
        )
    };
    flat.unwrap_or(view)
}

fn bounds(view: &View, name: &str, start: i64, count: i64) -> Result<(usize, usize)> {
    let numel = view.numel();
    let fits =
        |start: usize, count: usize| start.checked_add(count).is_some_and(|end| end <= numel);
    match (usize::try_from(start), usize::try_from(count)) {
        (Err(_), _) => Err(value_error!("{name}: negative displacement {start}")),
        (_, Err(_)) => Err(value_error!("{name}: negative count {count}")),
        (Ok(s), Ok(c)) if fits(s, c) => Ok((s, c)),
        _ => Err(value_error!(
            "{name}: {count} elements from element {start} on, but the tensor has {numel} elements of {}",
            view.dtype()
        )),
    }
}
