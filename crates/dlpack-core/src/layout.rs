//! Shape and byte strides, checked once. Knows neither the address nor the meaning of an element.

use smallvec::SmallVec;

use crate::LayoutError;

/// Most dimensions a layout can have. NumPy allows 64, everybody else fewer.
pub const MAX_NDIM: usize = 64;

/// Sizes, then strides: one allocation-free array up to six dimensions.
type Dims = SmallVec<[i64; 12]>;

/// Where the elements of a tensor lie, relative to its first logical element, in bytes.
///
/// Every product and sum that these methods stand for was checked on construction: each element's
/// offset, the number of elements and the number of bytes fit in `isize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    itemsize: usize,
    numel: usize,
    low: isize,
    high: isize,
    contiguous: bool,
}

impl Layout {
    /// A layout from sizes and strides in bytes; without strides a compact one in C order.
    pub fn new(
        shape: &[i64],
        strides_bytes: Option<&[i64]>,
        itemsize: usize,
    ) -> Result<Layout, LayoutError> {
        Layout::build(shape, strides_bytes, 1, itemsize)
    }

    /// A layout from sizes and strides in elements, as DLPack counts them.
    pub fn from_elements(
        shape: &[i64],
        strides: Option<&[i64]>,
        itemsize: usize,
    ) -> Result<Layout, LayoutError> {
        let scale = i64::try_from(itemsize).map_err(|_| LayoutError::Overflow {
            what: "the element size",
        })?;
        Layout::build(shape, strides, scale, itemsize)
    }

    fn build(
        shape: &[i64],
        strides: Option<&[i64]>,
        scale: i64,
        itemsize: usize,
    ) -> Result<Layout, LayoutError> {
        let ndim = shape.len();
        if ndim > MAX_NDIM {
            return Err(LayoutError::Ndim { ndim: ndim as i64 });
        }
        // Copied first: what is checked is what is used, whoever else can write to the original.
        let mut dims = Dims::from_slice(shape);
        let numel = count(&dims)?;
        let size = i64::try_from(itemsize).ok();
        let nbytes = size.and_then(|size| size.checked_mul(numel));
        if nbytes.is_none_or(|n| isize::try_from(n).is_err()) {
            return Err(LayoutError::Overflow {
                what: "the number of bytes",
            });
        }
        dims.resize(2 * ndim, 0);
        let (sizes, steps) = dims.split_at_mut(ndim);
        match strides {
            Some(given) => scaled(steps, given, scale, sizes, numel)?,
            None => compact(steps, sizes, size.unwrap_or(0)),
        }
        let (sizes, steps) = (&*sizes, &*steps);
        let (low, high) = extent(sizes, steps, itemsize, numel)?;
        let contiguous = contiguous(sizes, steps, itemsize, numel);
        Ok(Layout {
            itemsize,
            numel: numel as usize,
            low,
            high,
            contiguous,
            dims,
        })
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.dims.len() / 2
    }

    /// Sizes.
    #[inline]
    pub fn shape(&self) -> &[i64] {
        &self.dims[..self.ndim()]
    }

    /// Strides in bytes. Meaningless where the size is 1 or an element is never reached.
    #[inline]
    pub fn strides(&self) -> &[i64] {
        &self.dims[self.ndim()..]
    }

    /// Bytes of one element.
    #[inline]
    pub fn itemsize(&self) -> usize {
        self.itemsize
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Bytes of all elements, gaps not counted.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.numel * self.itemsize
    }

    /// Are the elements one compact block in C order? Sizes of 1 have no say; an empty tensor is.
    #[inline]
    pub fn is_c_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Lowest and one past the highest byte touched, relative to the first logical element.
    #[inline]
    pub fn span(&self) -> (isize, isize) {
        (self.low, self.high)
    }

    /// May two elements share memory? `false` is always right; `true` is exact but for layouts so
    /// entangled that the search for a collision was given up.
    #[inline]
    pub fn overlaps(&self) -> bool {
        !self.contiguous && crate::overlap::overlaps(self)
    }
}

/// Number of elements; zero as soon as one size is, however large the others are.
#[inline]
fn count(shape: &[i64]) -> Result<i64, LayoutError> {
    let mut product = Some(1i64);
    let mut empty = false;
    for (axis, &size) in shape.iter().enumerate() {
        if size < 0 {
            return Err(LayoutError::NegativeSize { axis, size });
        }
        empty |= size == 0;
        product = product.and_then(|p| p.checked_mul(size));
    }
    match product {
        _ if empty => Ok(0),
        Some(n) => Ok(n),
        None => Err(LayoutError::Overflow {
            what: "the number of elements",
        }),
    }
}

/// Fills `steps` with the given strides in bytes.
#[inline]
fn scaled(
    steps: &mut [i64],
    given: &[i64],
    scale: i64,
    sizes: &[i64],
    numel: i64,
) -> Result<(), LayoutError> {
    if given.len() != sizes.len() {
        return Err(LayoutError::StrideCount {
            strides: given.len(),
            ndim: sizes.len(),
        });
    }
    for ((step, &stride), &size) in steps.iter_mut().zip(given).zip(sizes) {
        *step = match stride.checked_mul(scale) {
            Some(bytes) => bytes,
            // A stride that is never taken may be anything, and often is.
            None if numel == 0 || size <= 1 => 0,
            None => {
                return Err(LayoutError::Overflow {
                    what: "a stride in bytes",
                });
            }
        };
    }
    Ok(())
}

/// Fills `steps` with the strides of a compact tensor in C order.
#[inline]
fn compact(steps: &mut [i64], sizes: &[i64], itemsize: i64) {
    let mut next = itemsize;
    for (step, &size) in steps.iter_mut().zip(sizes).rev() {
        *step = next;
        // Can only overflow beside a dimension of size 0, where no stride is ever taken.
        next = next.checked_mul(size.max(1)).unwrap_or(0);
    }
}

#[inline]
fn extent(
    shape: &[i64],
    strides: &[i64],
    itemsize: usize,
    numel: i64,
) -> Result<(isize, isize), LayoutError> {
    if numel == 0 {
        return Ok((0, 0));
    }
    let far = LayoutError::Overflow {
        what: "the distance between the first and the last byte",
    };
    let (mut low, mut high) = (0i64, i64::try_from(itemsize).map_err(|_| far.clone())?);
    for (&size, &stride) in shape.iter().zip(strides) {
        let reach = if size > 1 {
            (size - 1).checked_mul(stride).ok_or_else(|| far.clone())?
        } else {
            0
        };
        let end = if reach < 0 { &mut low } else { &mut high };
        *end = end.checked_add(reach).ok_or_else(|| far.clone())?;
    }
    // The whole distance must fit too, so that differences of two offsets do.
    match (
        high.checked_sub(low),
        isize::try_from(low),
        isize::try_from(high),
    ) {
        (Some(_), Ok(low), Ok(high)) => Ok((low, high)),
        _ => Err(far),
    }
}

#[inline]
fn contiguous(shape: &[i64], strides: &[i64], itemsize: usize, numel: i64) -> bool {
    if numel == 0 {
        return true;
    }
    let mut expected = itemsize as i64;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size > 1 {
            if stride != expected {
                return false;
            }
            // Fits: it divides the number of bytes, which was checked.
            expected *= size;
        }
    }
    true
}
