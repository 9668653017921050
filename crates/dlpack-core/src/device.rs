//! Where a tensor's memory is: an open set of device kinds and an index. Knows no driver.

use core::fmt;

/// A device kind by its DLPack number. Unknown numbers are kept as they are.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceKind(pub i32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal $text:literal;)+) => {
        impl DeviceKind {
            $($(#[$doc])* pub const $name: DeviceKind = DeviceKind($value);)+

            /// The name of a known kind.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Plain host memory.
    CPU = 1 "cpu";
    /// CUDA device memory.
    CUDA = 2 "cuda";
    /// Host memory pinned by CUDA.
    CUDA_HOST = 3 "cuda_host";
    /// OpenCL; the data pointer is a handle.
    OPENCL = 4 "opencl";
    /// Vulkan; the data pointer is a handle.
    VULKAN = 7 "vulkan";
    /// Metal; the data pointer is a handle.
    METAL = 8 "metal";
    /// Verilog simulator.
    VPI = 9 "vpi";
    /// ROCm device memory.
    ROCM = 10 "rocm";
    /// Host memory pinned by ROCm.
    ROCM_HOST = 11 "rocm_host";
    /// Reserved for trying out a new kind.
    EXT_DEV = 12 "ext_dev";
    /// CUDA managed memory: one address, host and device.
    CUDA_MANAGED = 13 "cuda_managed";
    /// oneAPI unified shared memory.
    ONE_API = 14 "one_api";
    /// WebGPU; the data pointer is a handle.
    WEBGPU = 15 "webgpu";
    /// Qualcomm Hexagon.
    HEXAGON = 16 "hexagon";
    /// Microsoft MAIA.
    MAIA = 17 "maia";
    /// AWS Trainium.
    TRN = 18 "trn";
    /// Google TPU.
    TPU = 19 "tpu";
    /// Host memory pinned for a TPU.
    TPU_HOST = 20 "tpu_host";
    /// Huawei Ascend.
    ASCEND = 21 "ascend";
}

/// What the rest of the workspace needs to know about a kind. A kind without a row has neither property.
struct Rule {
    kind: DeviceKind,
    host_addressable: bool,
    needs_stream_wait: bool,
}

const fn rule(kind: DeviceKind, host_addressable: bool, needs_stream_wait: bool) -> Rule {
    Rule {
        kind,
        host_addressable,
        needs_stream_wait,
    }
}

/// Pinned and managed memory can be read by the host, but kernels may still be writing to it.
const RULES: [Rule; 7] = [
    rule(DeviceKind::CPU, true, false),
    rule(DeviceKind::CUDA, false, true),
    rule(DeviceKind::CUDA_HOST, true, true),
    rule(DeviceKind::ROCM, false, true),
    rule(DeviceKind::ROCM_HOST, true, true),
    rule(DeviceKind::CUDA_MANAGED, true, true),
    rule(DeviceKind::TPU_HOST, true, false),
];

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "device kind {}", self.0),
        }
    }
}

impl fmt::Debug for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A device: kind and index.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind of memory.
    pub kind: DeviceKind,
    /// Which device of that kind. Means nothing for host memory, where producers disagree about it.
    pub id: i32,
}

impl Device {
    /// Plain host memory.
    pub const CPU: Device = Device::new(DeviceKind::CPU, 0);

    /// A device of this kind and index.
    pub const fn new(kind: DeviceKind, id: i32) -> Device {
        Device { kind, id }
    }

    /// CUDA device `id`.
    pub const fn cuda(id: i32) -> Device {
        Device::new(DeviceKind::CUDA, id)
    }

    /// May the host dereference a pointer to this memory?
    #[inline]
    pub fn is_host_addressable(self) -> bool {
        self.kind == DeviceKind::CPU
            || RULES
                .iter()
                .any(|r| r.kind == self.kind && r.host_addressable)
    }

    /// Can a stream still have work queued on this memory, so that it must be waited for?
    #[inline]
    pub fn needs_stream_wait(self) -> bool {
        self.kind != DeviceKind::CPU
            && RULES
                .iter()
                .any(|r| r.kind == self.kind && r.needs_stream_wait)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id == 0 && self.is_host_addressable() {
            write!(f, "{}", self.kind)
        } else {
            write!(f, "{}:{}", self.kind, self.id)
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
