//! The structs against the ones that bindgen makes from the official header, field by field.
#![allow(missing_docs, clippy::unwrap_used)]

use core::mem::{align_of, offset_of, size_of};

use dlpack_core::abi;
use dlpack_core::{DeviceKind, TypeCode};

macro_rules! same {
    ($($struct:ident { $($field:ident / $theirs:ident),+ })+) => {$(
        assert_eq!(size_of::<abi::$struct>(), size_of::<dlpack_ffi::$struct>(), stringify!($struct));
        assert_eq!(align_of::<abi::$struct>(), align_of::<dlpack_ffi::$struct>(), stringify!($struct));
        $(assert_eq!(
            offset_of!(abi::$struct, $field),
            offset_of!(dlpack_ffi::$struct, $theirs),
            concat!(stringify!($struct), ".", stringify!($field))
        );)+
    )+};
}

#[test]
fn structs_lie_as_in_the_header() {
    same! {
        DLPackVersion { major/major, minor/minor }
        DLDevice { device_type/device_type, device_id/device_id }
        DLDataType { code/code, bits/bits, lanes/lanes }
        DLTensor {
            data/data, device/device, ndim/ndim, dtype/dtype, shape/shape, strides/strides,
            byte_offset/byte_offset
        }
        DLManagedTensor { dl_tensor/dl_tensor, manager_ctx/manager_ctx, deleter/deleter }
        DLManagedTensorVersioned {
            version/version, manager_ctx/manager_ctx, deleter/deleter, flags/flags, dl_tensor/dl_tensor
        }
        DLPackExchangeAPIHeader { version/version, prev_api/prev_api }
        DLPackExchangeAPI {
            header/header,
            managed_tensor_allocator/managed_tensor_allocator,
            managed_tensor_from_py_object_no_sync/managed_tensor_from_py_object_no_sync,
            managed_tensor_to_py_object_no_sync/managed_tensor_to_py_object_no_sync,
            dltensor_from_py_object_no_sync/dltensor_from_py_object_no_sync,
            current_work_stream/current_work_stream
        }
    }
}

#[test]
fn version_and_flags_are_the_headers() {
    assert_eq!(
        (abi::MAJOR, abi::MINOR),
        (
            dlpack_ffi::DLPACK_MAJOR_VERSION,
            dlpack_ffi::DLPACK_MINOR_VERSION
        )
    );
    assert_eq!(
        abi::FLAG_READ_ONLY,
        u64::from(dlpack_ffi::DLPACK_FLAG_BITMASK_READ_ONLY)
    );
    assert_eq!(
        abi::FLAG_IS_COPIED,
        u64::from(dlpack_ffi::DLPACK_FLAG_BITMASK_IS_COPIED)
    );
    assert_eq!(
        abi::FLAG_IS_SUBBYTE_TYPE_PADDED,
        u64::from(dlpack_ffi::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    );
}

#[test]
fn codes_are_the_headers() {
    use dlpack_ffi::{DLDataTypeCode as T, DLDeviceType as D};
    let devices = [
        (DeviceKind::CPU, D::kDLCPU),
        (DeviceKind::CUDA, D::kDLCUDA),
        (DeviceKind::CUDA_HOST, D::kDLCUDAHost),
        (DeviceKind::OPENCL, D::kDLOpenCL),
        (DeviceKind::VULKAN, D::kDLVulkan),
        (DeviceKind::METAL, D::kDLMetal),
        (DeviceKind::VPI, D::kDLVPI),
        (DeviceKind::ROCM, D::kDLROCM),
        (DeviceKind::ROCM_HOST, D::kDLROCMHost),
        (DeviceKind::EXT_DEV, D::kDLExtDev),
        (DeviceKind::CUDA_MANAGED, D::kDLCUDAManaged),
        (DeviceKind::ONE_API, D::kDLOneAPI),
        (DeviceKind::WEBGPU, D::kDLWebGPU),
        (DeviceKind::HEXAGON, D::kDLHexagon),
        (DeviceKind::MAIA, D::kDLMAIA),
        (DeviceKind::TRN, D::kDLTrn),
    ];
    for (ours, theirs) in devices {
        assert_eq!(u32::try_from(ours.0).unwrap(), theirs.0, "{ours}");
    }
    let types = [
        (TypeCode::INT, T::kDLInt),
        (TypeCode::UINT, T::kDLUInt),
        (TypeCode::FLOAT, T::kDLFloat),
        (TypeCode::OPAQUE_HANDLE, T::kDLOpaqueHandle),
        (TypeCode::BFLOAT, T::kDLBfloat),
        (TypeCode::COMPLEX, T::kDLComplex),
        (TypeCode::BOOL, T::kDLBool),
        (TypeCode::FLOAT8_E3M4, T::kDLFloat8_e3m4),
        (TypeCode::FLOAT8_E4M3, T::kDLFloat8_e4m3),
        (TypeCode::FLOAT8_E4M3B11FNUZ, T::kDLFloat8_e4m3b11fnuz),
        (TypeCode::FLOAT8_E4M3FN, T::kDLFloat8_e4m3fn),
        (TypeCode::FLOAT8_E4M3FNUZ, T::kDLFloat8_e4m3fnuz),
        (TypeCode::FLOAT8_E5M2, T::kDLFloat8_e5m2),
        (TypeCode::FLOAT8_E5M2FNUZ, T::kDLFloat8_e5m2fnuz),
        (TypeCode::FLOAT8_E8M0FNU, T::kDLFloat8_e8m0fnu),
        (TypeCode::FLOAT6_E2M3FN, T::kDLFloat6_e2m3fn),
        (TypeCode::FLOAT6_E3M2FN, T::kDLFloat6_e3m2fn),
        (TypeCode::FLOAT4_E2M1FN, T::kDLFloat4_e2m1fn),
    ];
    for (ours, theirs) in types {
        assert_eq!(u32::from(ours.0), theirs.0, "{ours:?}");
    }
}
