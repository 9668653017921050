//! Why the door stayed shut: what was found, what was expected, what to do. Knows no Python exception.

use crate::{DType, Device};

/// A shape and strides that describe no memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// More dimensions than any framework makes, or fewer than none.
    #[error("tensor claims {ndim} dimensions, expected 0 to {max}; its producer is broken or its memory was freed", max = crate::MAX_NDIM)]
    Ndim {
        /// The claim.
        ndim: i64,
    },
    /// A negative size.
    #[error(
        "dimension {axis} has size {size}, expected 0 or more; its producer is broken or its memory was freed"
    )]
    NegativeSize {
        /// Which dimension.
        axis: usize,
        /// Its size.
        size: i64,
    },
    /// Another number of strides than of sizes.
    #[error("{strides} strides for {ndim} dimensions, expected as many as dimensions")]
    StrideCount {
        /// Strides given.
        strides: usize,
        /// Dimensions given.
        ndim: usize,
    },
    /// Sizes or strides whose products exceed any address space.
    #[error(
        "sizes and strides of this tensor reach further than memory can: {what} overflows 63 bits; its producer is broken or its memory was freed"
    )]
    Overflow {
        /// The quantity.
        what: &'static str,
    },
}

/// Why a tensor cannot be used. Becomes `BufferError` in Python.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// Shape or strides describe no memory.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The structure itself is missing.
    #[error("the capsule holds a NULL DLPack structure; its producer is broken")]
    NullTensor,
    /// A major version with another layout.
    #[error("tensor was exported as DLPack {major}.{minor}, expected major version {ours}; update dlmpi, or the producer", ours = crate::abi::MAJOR)]
    Version {
        /// Found.
        major: u32,
        /// Found.
        minor: u32,
    },
    /// A flag that may change what the other fields mean.
    #[error("tensor carries DLPack flags {flags:#x}, of which {unknown:#x} are not known; update dlmpi, or ask the producer for an older version", unknown = flags & !crate::abi::FLAGS_KNOWN)]
    UnknownFlags {
        /// All flags found.
        flags: u64,
    },
    /// Dimensions without sizes.
    #[error(
        "tensor has {ndim} dimensions but its {what} cannot be read (NULL or misaligned pointer); its producer is broken"
    )]
    BadArray {
        /// `shape` or `strides`.
        what: &'static str,
        /// The claim.
        ndim: i32,
    },
    /// Elements without memory.
    #[error(
        "tensor has {numel} elements but no memory (data is NULL): fake, meta, zero and wrapper tensors (FakeTensor, DTensor) and deleted arrays look like this; pass the real local tensor, e.g. `dtensor.to_local()`"
    )]
    NullData {
        /// How many elements it claims.
        numel: usize,
    },
    /// An address range that wraps around.
    #[error(
        "tensor data at {address:#x} with byte offset {offset} reaches beyond the address space; its producer is broken or its memory was freed"
    )]
    Address {
        /// Where the data starts.
        address: usize,
        /// The offset added to it.
        offset: u64,
    },
    /// An element type without a size, or not one that a producer may claim.
    #[error("element type {dtype} cannot be used: {why}")]
    DType {
        /// The claim.
        dtype: DType,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Elements smaller than a byte with gaps or in another order.
    #[error("{dtype} is packed {bits} bits an element and its strides are not those of a contiguous tensor; make it contiguous first", bits = dtype.bits_total())]
    PackedStrides {
        /// The packed type.
        dtype: DType,
    },
    /// A receive buffer that its producer forbids to write.
    #[error("tensor on {device} is read-only and cannot receive; pass a writable tensor")]
    ReadOnly {
        /// Where it is.
        device: Device,
    },
    /// A receive buffer that nobody would read.
    #[error(
        "tensor on {device} was exported as a copy, so what it receives would be lost; pass a tensor that can be exported without a copy"
    )]
    Copied {
        /// Where it is.
        device: Device,
    },
    /// A receive buffer in which two elements share memory.
    #[error(
        "tensor of shape {shape:?} with byte strides {strides:?} has elements that share memory (an expanded or overlapping view) and cannot receive; pass a copy, e.g. `.contiguous()` or `.copy()`"
    )]
    Overlap {
        /// Its shape.
        shape: Vec<i64>,
        /// Its strides in bytes.
        strides: Vec<i64>,
    },
}
