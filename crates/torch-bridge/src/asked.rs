//! What torch says of a tensor's memory, asked of libtorch itself. tch panics where torch refuses (compressed sparse, nested
//! and wrapped tensors), which ends programs that abort on panics, and looks for an error after every question.

use std::ffi::c_int;

use tch::Tensor;
use torch_sys::c_generated::{atg_is_conj, atg_is_neg};
use torch_sys::{
    C_tensor, at_data_ptr, at_defined, at_device, at_dim, at_is_contiguous, at_is_mkldnn,
    at_is_sparse, at_shape, at_stride, get_and_reset_last_err,
};

/// More dimensions than any tensor has: the answer where torch refused.
const MOST: usize = 1 << 10;

/// Where a tensor's elements lie.
pub(crate) struct Asked {
    pub shape: Vec<i64>,
    /// In elements; `None` where they follow each other in C order.
    pub strides: Option<Vec<i64>>,
    pub data: *mut u8,
    /// The index of a CUDA device, or -1 for the CPU; less for others.
    pub device: c_int,
}

/// The handle as torch-sys takes it.
fn raw(tensor: &Tensor) -> *mut C_tensor {
    tensor.as_ptr().cast_mut()
}

/// Whether there is a tensor at all.
pub(crate) fn defined(tensor: &Tensor) -> bool {
    // SAFETY:
    // - The handle is a borrowed tensor's, and the question changes nothing.
    unsafe { at_defined(raw(tensor)) == 1 }
}

/// Whether its memory is known to be no plain one.
pub(crate) fn apart(tensor: &Tensor) -> bool {
    // SAFETY:
    // - As above, and it is defined.
    unsafe { at_is_sparse(raw(tensor)) == 1 || at_is_mkldnn(raw(tensor)) == 1 }
}

/// What a defined tensor's elements are, other than what its memory holds.
pub(crate) struct Lazy {
    pub negative: bool,
    pub conjugate: bool,
}

/// Which bits of a defined tensor are set; `None` where torch does not say.
pub(crate) fn lazy(tensor: &Tensor) -> Option<Lazy> {
    let raw = raw(tensor);
    // SAFETY:
    // - The handle is a borrowed tensor's, and the questions change nothing.
    let (negative, conjugate) = unsafe { (atg_is_neg(raw) != 0, atg_is_conj(raw) != 0) };
    let lazy = Lazy {
        negative,
        conjugate,
    };
    (!refused()).then_some(lazy)
}

/// Where a defined tensor's elements lie; `None` where torch does not say.
pub(crate) fn ask(tensor: &Tensor) -> Option<Asked> {
    let raw = raw(tensor);
    // SAFETY:
    // - The handle is a borrowed tensor's, and the questions change nothing.
    // - Sizes and strides are as many as there are dimensions. What torch refuses to say it does not write.
    unsafe {
        let dim = at_dim(raw);
        let mut shape = vec![0; if dim < MOST { dim } else { 0 }];
        if dim < MOST {
            at_shape(raw, shape.as_mut_ptr());
        }
        if refused() || dim >= MOST {
            return None;
        }
        let strides = match at_is_contiguous(raw) {
            1 => None,
            0 => {
                let mut strides = vec![0; dim];
                at_stride(raw, strides.as_mut_ptr());
                Some(strides)
            }
            _ => {
                refused();
                return None;
            }
        };
        let (data, device) = (at_data_ptr(raw).cast(), at_device(raw));
        (!refused()).then_some(Asked {
            shape,
            strides,
            data,
            device,
        })
    }
}

/// Whether torch refused since the last time; its words are not kept.
fn refused() -> bool {
    // SAFETY:
    // - What it returns is NULL or ours to free.
    unsafe {
        let words = get_and_reset_last_err();
        libc::free(words.cast());
        !words.is_null()
    }
}
