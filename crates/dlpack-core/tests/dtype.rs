//! Names, sizes and families of element types and devices.
#![allow(missing_docs, clippy::unwrap_used)]

use dlpack_core::{DType, Device, DeviceKind, TypeCode};

#[test]
fn names_are_the_frameworks() {
    let names = [
        (DType::BOOL, "bool"),
        (DType::I8, "int8"),
        (DType::U64, "uint64"),
        (DType::F16, "float16"),
        (DType::F64, "float64"),
        (DType::BF16, "bfloat16"),
        (DType::C32, "complex32"),
        (DType::C128, "complex128"),
        (DType::F8_E4M3FN, "float8_e4m3fn"),
        (DType::F8_E8M0FNU, "float8_e8m0fnu"),
        (DType::F6_E2M3FN, "float6_e2m3fn"),
        (DType::F4_E2M1FN, "float4_e2m1fn"),
        (DType::LONG_DOUBLE, "longdouble"),
        (DType::COMPLEX_LONG_DOUBLE, "clongdouble"),
        (DType::raw(12), "raw12"),
        (DType::new(TypeCode::INT, 32, 4), "int32x4"),
        (DType::new(TypeCode::FLOAT4_E2M1FN, 4, 2), "float4_e2m1fnx2"),
        (DType::new(TypeCode(99), 24, 1), "dtype code 99 of 24 bits"),
        (
            DType::new(TypeCode::FLOAT8_E5M2, 16, 1),
            "float8_e5m2 of 16 bits",
        ),
    ];
    for (dtype, name) in names {
        assert_eq!(dtype.to_string(), name);
    }
}

#[test]
fn sizes_are_bytes_or_packed() {
    let sizes = [
        (DType::BOOL, Some(1)),
        (DType::BF16, Some(2)),
        (DType::C128, Some(16)),
        (DType::LONG_DOUBLE, Some(16)),
        (DType::COMPLEX_LONG_DOUBLE, Some(32)),
        (DType::raw(12), Some(12)),
        (DType::new(TypeCode::INT, 32, 4), Some(16)),
        (DType::new(TypeCode::FLOAT4_E2M1FN, 4, 2), Some(1)),
        (DType::F4_E2M1FN, None),
        (DType::F6_E3M2FN, None),
        (DType::new(TypeCode::FLOAT6_E3M2FN, 6, 4), Some(3)),
        (DType::new(TypeCode::BOOL, 1, 1), None),
    ];
    for (dtype, size) in sizes {
        assert_eq!(dtype.itemsize(), size, "{dtype}");
    }
}

#[test]
fn each_type_has_one_family() {
    let of = |d: DType| [d.is_float(), d.is_int(), d.is_complex(), d.is_bool()];
    let families = [
        (of(DType::F16), 0),
        (of(DType::BF16), 0),
        (of(DType::F8_E5M2), 0),
        (of(DType::F4_E2M1FN), 0),
        (of(DType::LONG_DOUBLE), 0),
        (of(DType::I8), 1),
        (of(DType::U64), 1),
        (of(DType::C32), 2),
        (of(DType::COMPLEX_LONG_DOUBLE), 2),
        (of(DType::BOOL), 3),
    ];
    for (family, only) in families {
        assert_eq!(family, core::array::from_fn(|i| i == only));
    }
    assert_eq!(of(DType::raw(8)), [false; 4]);
    assert_eq!(of(DType::new(TypeCode::OPAQUE_HANDLE, 64, 1)), [false; 4]);
}

#[test]
fn only_own_codes_are_own() {
    assert!(DType::LONG_DOUBLE.is_own() && DType::raw(1).is_own());
    assert!(DType::new(TypeCode(255), 8, 1).is_own());
    assert!(!DType::new(TypeCode(199), 8, 1).is_own() && !DType::F32.is_own());
}

#[test]
fn kinds_say_who_can_read_and_who_must_wait() {
    let kinds = |test: fn(Device) -> bool| -> Vec<i32> {
        (-2..40)
            .filter(|&kind| test(Device::new(DeviceKind(kind), 0)))
            .collect()
    };
    assert_eq!(kinds(Device::is_host_addressable), [1, 3, 11, 13, 20]);
    assert_eq!(kinds(Device::needs_stream_wait), [2, 3, 10, 11, 13]);
}

#[test]
fn devices_are_named_as_people_do() {
    assert_eq!(Device::CPU.to_string(), "cpu");
    assert_eq!(Device::cuda(0).to_string(), "cuda:0");
    assert_eq!(Device::new(DeviceKind::CPU, 3).to_string(), "cpu:3");
    assert_eq!(
        Device::new(DeviceKind::CUDA_HOST, 0).to_string(),
        "cuda_host"
    );
    assert_eq!(
        Device::new(DeviceKind(77), 1).to_string(),
        "device kind 77:1"
    );
}
