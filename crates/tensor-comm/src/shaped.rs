//! Consecutive elements of a strided tensor as one derived datatype, for operations that work on memory as it
//! lies each time they start. Its signature is that of the elements in logical order.

use mpi_runtime::{Datatype, Mpi};

use crate::arg::Part;
use crate::counted::Derived;
use crate::error::Result;
use crate::wiretype::{moving_type, receiving_type};

/// The datatype of some elements of a layout. Freed when dropped; operations that were started with it go on.
pub struct Shaped(Derived);

// SAFETY:
// - a handle, which any thread may use.
unsafe impl Send for Shaped {}

impl Shaped {
    /// One element of it, at the tensor's first element, is the part; of a message that is received or not.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn new(mpi: &'static Mpi, part: &Part, received: bool) -> Result<Shaped> {
        let view = part.view();
        let wire = match received {
            true => receiving_type(mpi, view.dtype(), view.itemsize())?,
            false => moving_type(mpi, view.dtype(), view.itemsize())?,
        };
        let element = Derived::new(mpi, mpi.type_contiguous(wire.units as i64, wire.datatype)?);
        let layout = view.layout();
        let axes = layout.shape().iter().zip(layout.strides());
        let axes: Vec<(usize, i64)> = axes
            .map(|(&size, &stride)| (size as usize, stride))
            .collect();
        let mut pieces = Vec::new();
        divide(
            mpi,
            &axes,
            0,
            (part.start(), part.count()),
            element,
            &mut pieces,
        )?;
        let all = match &mut pieces[..] {
            [(0, _)] => pieces.remove(0).1,
            _ => {
                let (places, types): (Vec<i64>, Vec<Datatype>) = pieces
                    .iter()
                    .map(|(at, piece)| (*at, piece.datatype()))
                    .unzip();
                let lengths = vec![1; places.len()];
                Derived::new(mpi, mpi.type_create_struct(&lengths, &places, &types)?)
            }
        };
        all.commit().map(Shaped)
    }

    /// The handle.
    pub fn datatype(&self) -> Datatype {
        self.0.datatype()
    }
}

/// The elements `start..start + count` of these axes, each of which is one `element`, from byte `at` on: whole
/// indices of an axis at once, and what is left over before and behind them.
fn divide(
    mpi: &'static Mpi,
    axes: &[(usize, i64)],
    at: i64,
    (start, count): (usize, usize),
    element: Derived,
    pieces: &mut Vec<(i64, Derived)>,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let Some((&(_, stride), inner)) = axes.split_first() else {
        pieces.push((at, element));
        return Ok(());
    };
    let below: usize = inner.iter().map(|axis| axis.0).product();
    let place = |index: usize| at + stride * index as i64;
    let (mut start, end) = (start, start + count);
    while start < end {
        let (index, offset) = (start / below, start % below);
        let whole = (end - start) / below;
        if offset == 0 && whole > 0 {
            pieces.push((place(index), rows(mpi, whole, stride, inner, &element)?));
            start += whole * below;
            continue;
        }
        let n = (below - offset).min(end - start);
        let element = Derived::new(mpi, mpi.type_contiguous(1, element.datatype())?);
        divide(mpi, inner, place(index), (offset, n), element, pieces)?;
        start += n;
    }
    Ok(())
}

/// `n` times all elements of the axes within, so many bytes apart.
fn rows(
    mpi: &'static Mpi,
    n: usize,
    stride: i64,
    inner: &[(usize, i64)],
    element: &Derived,
) -> Result<Derived> {
    let mut whole = Derived::new(mpi, mpi.type_contiguous(1, element.datatype())?);
    for &(size, stride) in inner.iter().rev() {
        let vector = mpi.type_create_hvector(size as i64, 1, stride, whole.datatype())?;
        whole = Derived::new(mpi, vector);
    }
    let vector = mpi.type_create_hvector(n as i64, 1, stride, whole.datatype())?;
    Ok(Derived::new(mpi, vector))
}
