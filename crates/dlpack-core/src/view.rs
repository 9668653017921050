//! A checked description of a tensor's memory. It owns and borrows nothing: whoever holds the loan
//! behind it keeps the memory alive. Knows neither who made the tensor nor what is done with it.

use crate::abi;
use crate::{DType, Device, DoorError, Layout, TypeCode};

/// Address, layout, element type, device and permissions of a tensor, checked.
///
/// For packed element types (less than a byte each) the layout is that of the bytes: element size 1,
/// shape `[bytes]`, and [`View::packed_numel`] says how many elements are in them.
#[derive(Clone, Debug)]
pub struct View {
    data: *mut u8,
    layout: Layout,
    dtype: DType,
    device: Device,
    readonly: bool,
    copied: bool,
    packed: Option<usize>,
}

// SAFETY:
// - A view is a description: it never reads or writes through `data`. Whoever does needs `unsafe` and
//   answers for aliasing there.
unsafe impl Send for View {}
// SAFETY:
// - As above, and a shared view cannot be changed.
unsafe impl Sync for View {}

impl View {
    /// A view of memory whose owner the caller knows. `data` is the first logical element.
    ///
    /// For a packed element type `strides_bytes` counts elements and must be those of a contiguous tensor.
    ///
    /// # Safety
    /// - Unless the call fails, or there are no elements, every byte that `shape` and `strides_bytes` reach from
    ///   `data` is memory of `device` for as long as anyone acts on the view.
    pub unsafe fn from_parts(
        data: *mut u8,
        shape: &[i64],
        strides_bytes: Option<&[i64]>,
        dtype: DType,
        device: Device,
        readonly: bool,
    ) -> Result<View, DoorError> {
        let flags = if readonly { abi::FLAG_READ_ONLY } else { 0 };
        let (layout, dtype, packed) = match checked_itemsize(dtype)? {
            Some(itemsize) => (Layout::new(shape, strides_bytes, itemsize)?, dtype, None),
            None => packed(dtype, shape, strides_bytes)?,
        };
        View::assemble(data, 0, layout, dtype, device, flags, packed)
    }

    /// The last checks, which need everything: NULL data and an address range that wraps.
    #[inline]
    pub(crate) fn assemble(
        data: *mut u8,
        byte_offset: u64,
        layout: Layout,
        dtype: DType,
        device: Device,
        flags: u64,
        packed: Option<usize>,
    ) -> Result<View, DoorError> {
        let data = if layout.numel() == 0 {
            data
        } else if data.is_null() {
            return Err(DoorError::NullData {
                numel: packed.unwrap_or(layout.numel()),
            });
        } else {
            let (low, high) = layout.span();
            let address = data.addr();
            // No allocation is larger than isize::MAX bytes, so no offset into one is.
            let first = isize::try_from(byte_offset)
                .ok()
                .and_then(|o| address.checked_add_signed(o));
            let reach =
                first.and_then(|f| f.checked_add_signed(low).and(f.checked_add_signed(high)));
            match (first, reach) {
                (Some(first), Some(_)) => data.with_addr(first),
                _ => {
                    return Err(DoorError::Address {
                        address,
                        offset: byte_offset,
                    });
                }
            }
        };
        let readonly = flags & abi::FLAG_READ_ONLY != 0;
        let copied = flags & abi::FLAG_IS_COPIED != 0;
        Ok(View {
            data,
            layout,
            dtype,
            device,
            readonly,
            copied,
            packed,
        })
    }

    /// The first logical element. On kinds whose memory has no addresses (OpenCL, Metal, ...) not a pointer.
    #[inline]
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// Where the elements are.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the elements are.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Which memory they are in.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Does the producer forbid writing? `false` is no permission: a legacy capsule cannot say.
    #[inline]
    pub fn readonly(&self) -> bool {
        self.readonly
    }

    /// Is this a copy made for the export?
    #[inline]
    pub fn copied(&self) -> bool {
        self.copied
    }

    /// Number of elements of the layout: of bytes, for a packed type.
    #[inline]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// Bytes of one element of the layout: 1, for a packed type.
    #[inline]
    pub fn itemsize(&self) -> usize {
        self.layout.itemsize()
    }

    /// Number of elements of a type that is packed across byte boundaries; `None` for every other type.
    #[inline]
    pub fn packed_numel(&self) -> Option<usize> {
        self.packed
    }

    /// May MPI write here? Refuses read-only memory, copies, and elements that share memory.
    #[inline]
    pub fn check_writable(&self) -> Result<(), DoorError> {
        if self.readonly {
            return Err(DoorError::ReadOnly {
                device: self.device,
            });
        }
        if self.copied {
            return Err(DoorError::Copied {
                device: self.device,
            });
        }
        if self.layout.overlaps() {
            return Err(DoorError::Overlap {
                shape: self.layout.shape().to_vec(),
                strides: self.layout.strides().to_vec(),
            });
        }
        Ok(())
    }

    /// The same view on the device that a bridge knows better than the capsule (pinned memory, for one).
    #[must_use]
    pub fn with_device(self, device: Device) -> View {
        View { device, ..self }
    }

    /// The same view, writable or not by what a bridge knows of its framework.
    #[must_use]
    pub fn with_readonly(self, readonly: bool) -> View {
        View { readonly, ..self }
    }
}

/// The element size in bytes, `None` where elements are packed, or why the type has none.
#[inline]
pub(crate) fn checked_itemsize(dtype: DType) -> Result<Option<usize>, DoorError> {
    let refuse = |why| Err(DoorError::DType { dtype, why });
    if dtype.lanes == 0 {
        return refuse("it has no lanes, expected 1 or more");
    }
    if dtype.bits == 0 && dtype.code != TypeCode::COMPLEX_LONG_DOUBLE {
        return refuse("it is 0 bits wide, expected 1 or more");
    }
    match dtype.itemsize() {
        // The packing rule of the specification covers parts of a byte only.
        None if dtype.bits > 8 => refuse("its width is not a whole number of bytes"),
        size => Ok(size),
    }
}

/// The layout of the bytes behind `shape` packed elements, whose strides count elements.
pub(crate) fn packed(
    dtype: DType,
    shape: &[i64],
    strides: Option<&[i64]>,
) -> Result<(Layout, DType, Option<usize>), DoorError> {
    let elements = Layout::new(shape, strides, 1)?;
    if !elements.is_c_contiguous() {
        return Err(DoorError::PackedStrides { dtype });
    }
    // 128 bits hold any 63-bit count times any width.
    let bytes = (elements.numel() as u128 * dtype.bits_total() as u128).div_ceil(8);
    let overflow = crate::LayoutError::Overflow {
        what: "the number of bytes",
    };
    let bytes = i64::try_from(bytes).map_err(|_| overflow)?;
    Ok((
        Layout::new(&[bytes], None, 1)?,
        dtype,
        Some(elements.numel()),
    ))
}
