//! A `DLTensor` whose every field a test chooses, shown to the door.

use core::ptr;

use dlpack_core::abi::{DLDataType, DLDevice, DLTensor};
use dlpack_core::{DoorError, View};

/// A claim about memory that nobody owns: the door must judge it without following `data`.
#[derive(Clone, Debug)]
pub struct Claim {
    pub data: usize,
    pub device: (i32, i32),
    pub ndim: i32,
    pub dtype: (u8, u8, u16),
    pub shape: Option<Vec<i64>>,
    pub strides: Option<Vec<i64>>,
    pub byte_offset: u64,
    pub flags: u64,
}

/// Dimensions that the door may accept.
pub const MOST: usize = 64;

pub fn look(claim: &Claim) -> Result<View, DoorError> {
    // Readable for just as many values as may be read, so that a sanitizer sees one too many.
    let room = usize::try_from(claim.ndim).map_or(0, |n| if n > MOST { 0 } else { n });
    let exact = |array: &Option<Vec<i64>>| {
        array.clone().map(|mut array| {
            array.resize(room, 1);
            array.into_boxed_slice()
        })
    };
    let (mut shape, mut strides) = (exact(&claim.shape), exact(&claim.strides));
    let address =
        |array: &mut Option<Box<[i64]>>| array.as_mut().map_or(ptr::null_mut(), |a| a.as_mut_ptr());
    let tensor = DLTensor {
        data: ptr::without_provenance_mut(claim.data),
        device: DLDevice {
            device_type: claim.device.0,
            device_id: claim.device.1,
        },
        ndim: claim.ndim,
        dtype: DLDataType {
            code: claim.dtype.0,
            bits: claim.dtype.1,
            lanes: claim.dtype.2,
        },
        shape: address(&mut shape),
        strides: address(&mut strides),
        byte_offset: claim.byte_offset,
    };
    // SAFETY:
    // - `shape` and `strides` are NULL or readable for `ndim` values, or for none where `ndim` is out
    //   of bounds.
    // - Nobody acts on the view.
    unsafe { View::from_dltensor(&tensor, claim.flags) }
}
