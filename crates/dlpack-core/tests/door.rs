//! The door, case by case.
#![allow(missing_docs, clippy::unwrap_used)]

mod claim;

use core::ptr;

use claim::{Claim, look};
use dlpack_core::abi::{DLDataType, DLDevice, DLTensor};
use dlpack_core::{DType, Device, DeviceKind, DoorError, LayoutError, TypeCode, View};

fn plain() -> Claim {
    Claim {
        data: 4096,
        device: (1, 0),
        ndim: 2,
        dtype: (2, 32, 1),
        shape: Some(vec![2, 3]),
        strides: None,
        byte_offset: 0,
        flags: 0,
    }
}

#[test]
fn a_plain_tensor_comes_through() {
    let view = look(&Claim {
        strides: Some(vec![1, 2]),
        byte_offset: 8,
        ..plain()
    })
    .unwrap();
    assert_eq!((view.dtype(), view.device()), (DType::F32, Device::CPU));
    assert_eq!(
        (view.layout().shape(), view.layout().strides()),
        (&[2, 3][..], &[4, 8][..])
    );
    assert_eq!(view.data().addr(), 4104);
    assert!(!view.layout().is_c_contiguous());
}

#[test]
fn null_data_needs_no_elements() {
    let why = look(&Claim { data: 0, ..plain() }).unwrap_err();
    assert_eq!(why, DoorError::NullData { numel: 6 });
    for cause in ["FakeTensor", "DTensor", "meta", "deleted"] {
        assert!(why.to_string().contains(cause), "{why}");
    }
    // An offset does not make NULL an address.
    assert!(
        look(&Claim {
            data: 0,
            byte_offset: 4096,
            ..plain()
        })
        .is_err()
    );
    let empty = look(&Claim {
        data: 0,
        shape: Some(vec![2, 0]),
        ..plain()
    })
    .unwrap();
    assert!(empty.data().is_null() && empty.numel() == 0);
    empty.check_writable().unwrap();
}

#[test]
fn absurd_dimensions_are_refused_before_anything_is_read() {
    for ndim in [-1, 65, i32::MAX, i32::MIN] {
        // Not NULL and not readable: following it would end the process.
        let mut tensor = DLTensor {
            data: ptr::null_mut(),
            device: DLDevice {
                device_type: 1,
                device_id: 0,
            },
            ndim,
            dtype: DLDataType {
                code: 2,
                bits: 32,
                lanes: 1,
            },
            shape: ptr::without_provenance_mut(8),
            strides: ptr::without_provenance_mut(8),
            byte_offset: 0,
        };
        // SAFETY:
        // - `ndim` is beyond the bound, so that no array may be read.
        let seen = unsafe { View::from_dltensor(&tensor, 0) };
        assert_eq!(
            seen.unwrap_err(),
            LayoutError::Ndim {
                ndim: i64::from(ndim)
            }
            .into()
        );
        tensor.ndim = 2;
        for (what, shape, strides) in [("shape", 0, 8), ("shape", 4097, 8), ("strides", 0, 4097)] {
            let mut sizes = [2i64, 3];
            tensor.shape = if what == "shape" {
                ptr::without_provenance_mut(shape)
            } else {
                sizes.as_mut_ptr()
            };
            tensor.strides = ptr::without_provenance_mut(strides);
            // SAFETY:
            // - The pointers that are NULL or misaligned must not be followed; the other one is readable.
            let seen = unsafe { View::from_dltensor(&tensor, 0) };
            assert_eq!(seen.unwrap_err(), DoorError::BadArray { what, ndim: 2 });
        }
    }
    // SAFETY:
    // - NULL must not be followed.
    let seen = unsafe { View::from_dltensor(ptr::null(), 0) };
    assert_eq!(seen.unwrap_err(), DoorError::NullTensor);
}

#[test]
fn scalars_need_no_arrays() {
    let view = look(&Claim {
        ndim: 0,
        shape: None,
        strides: None,
        ..plain()
    })
    .unwrap();
    assert_eq!((view.numel(), view.layout().ndim()), (1, 0));
    assert!(view.layout().is_c_contiguous());
}

#[test]
fn packed_types_are_their_bytes() {
    let fp4 = |n: i64| Claim {
        ndim: 1,
        shape: Some(vec![n]),
        dtype: (17, 4, 1),
        ..plain()
    };
    for (n, bytes) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (1 << 40, 1 << 39)] {
        let view = look(&fp4(n)).unwrap();
        assert_eq!((view.numel(), view.itemsize()), (bytes, 1));
        assert_eq!(view.packed_numel(), Some(n as usize));
        assert_eq!(view.dtype(), DType::F4_E2M1FN);
    }
    let fp6 = look(&Claim {
        dtype: (15, 6, 1),
        ..plain()
    })
    .unwrap();
    assert_eq!((fp6.numel(), fp6.packed_numel()), (5, Some(6)));
    // Explicit strides of a contiguous tensor are as good as none.
    assert!(
        look(&Claim {
            dtype: (15, 6, 1),
            strides: Some(vec![3, 1]),
            ..plain()
        })
        .is_ok()
    );
    let gaps = look(&Claim {
        dtype: (15, 6, 1),
        strides: Some(vec![6, 2]),
        ..plain()
    });
    assert_eq!(
        gaps.unwrap_err(),
        DoorError::PackedStrides {
            dtype: DType::F6_E2M3FN
        }
    );
    // Two lanes fill the byte: nothing is packed across elements.
    let pairs = look(&Claim {
        dtype: (17, 4, 2),
        ..plain()
    })
    .unwrap();
    assert_eq!(
        (pairs.numel(), pairs.itemsize(), pairs.packed_numel()),
        (6, 1, None)
    );
}

#[test]
fn padded_types_do_not_pass_for_packed_ones() {
    let view = look(&Claim {
        dtype: (17, 4, 1),
        flags: 4,
        strides: Some(vec![6, 2]),
        ..plain()
    })
    .unwrap();
    assert_eq!(
        (view.numel(), view.itemsize(), view.packed_numel()),
        (6, 1, None)
    );
    assert_eq!(view.layout().strides(), [6, 2]);
    assert_eq!(view.dtype(), DType::raw(1));
    // The flag says nothing about whole bytes.
    let view = look(&Claim {
        flags: 4,
        ..plain()
    })
    .unwrap();
    assert_eq!(view.dtype(), DType::F32);
}

#[test]
fn own_codes_come_from_bridges_only() {
    for dtype in [(200, 128, 1), (201, 0, 1), (202, 8, 16), (255, 8, 1)] {
        assert!(matches!(
            look(&Claim { dtype, ..plain() }),
            Err(DoorError::DType { .. })
        ));
    }
    let mut data = [0u8; 64];
    for (dtype, itemsize) in [
        (DType::LONG_DOUBLE, 16),
        (DType::COMPLEX_LONG_DOUBLE, 32),
        (DType::raw(7), 7),
    ] {
        // SAFETY:
        // - Two elements of at most 32 bytes are inside `data`.
        let view =
            unsafe { View::from_parts(data.as_mut_ptr(), &[2], None, dtype, Device::CPU, false) }
                .unwrap();
        assert_eq!((view.dtype(), view.itemsize()), (dtype, itemsize));
    }
}

#[test]
fn unknown_codes_and_devices_are_kept() {
    let view = look(&Claim {
        dtype: (99, 24, 1),
        device: (1234, 5),
        ..plain()
    })
    .unwrap();
    assert_eq!(view.dtype(), DType::new(TypeCode(99), 24, 1));
    assert_eq!(
        (view.itemsize(), view.device()),
        (3, Device::new(DeviceKind(1234), 5))
    );
}

#[test]
fn from_parts_checks_like_the_door() {
    let mut data = [0f32; 6];
    let start = data.as_mut_ptr().cast::<u8>();
    let make = |data, shape: &[i64], strides: Option<&[i64]>, readonly| {
        // SAFETY:
        // - What is accepted here lies inside `data`, and nobody acts on it.
        unsafe { View::from_parts(data, shape, strides, DType::F32, Device::CPU, readonly) }
    };
    let view = make(start, &[3, 2], Some(&[4, 12]), false).unwrap();
    view.check_writable().unwrap();
    let expanded = make(start, &[3, 2], Some(&[0, 4]), false).unwrap();
    assert!(matches!(
        expanded.check_writable(),
        Err(DoorError::Overlap { .. })
    ));
    assert!(
        make(start, &[6], None, true)
            .unwrap()
            .check_writable()
            .is_err()
    );
    assert!(matches!(
        make(ptr::null_mut(), &[6], None, false),
        Err(DoorError::NullData { numel: 6 })
    ));
    assert!(matches!(
        make(start, &[6, 2], Some(&[4]), false),
        Err(DoorError::Layout(_))
    ));
    assert!(matches!(
        make(start, &[2], Some(&[-(1 << 61)]), false),
        Err(DoorError::Address { .. })
    ));
    let pinned = view.with_device(Device::new(DeviceKind::CUDA_HOST, 0));
    assert!(pinned.device().is_host_addressable() && pinned.device().needs_stream_wait());
}
