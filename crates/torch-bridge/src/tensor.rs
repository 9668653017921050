//! `tch::Tensor` as a checked view of its memory, and back.
//!
//! As from Python: negative and conjugate bits are resolved by a copy to send, and refused to receive into; tensors
//! that require gradients are lent like others, and autograd's version counter is told of writes; what has no
//! plain strided memory is refused in words. On a CUDA device everything queued has happened before memory is lent.
//! **Never run on a GPU.**

use dlpack_core::{DType, Device, DeviceKind, View};
use tch::{Kind, TchError, Tensor};

use crate::asked::{self, Asked};

/// Why a tensor is not lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl From<TchError> for Refused {
    fn from(error: TchError) -> Refused {
        // torch appends where in its sources; the first line is the reason.
        let text = error.to_string();
        Refused(text.lines().next().unwrap_or_default().to_owned())
    }
}

const NEGATIVE: &str = "the tensor is a lazy negative view (`is_neg()`), whose memory holds the opposite sign, and cannot receive; pass the tensor that it is a view of";
const CONJUGATE: &str = "the tensor is a lazy conjugate view (`is_conj()`), whose memory is not conjugated, and cannot receive; pass the tensor that it is a view of";
const NO_MEMORY: &str = "the tensor has no plain strided memory (sparse, nested, meta or inside a transform); pass its parts, or `to_dense()`";

/// A tensor to read from, and the copy that holds the memory where bits had to be resolved.
///
/// # Errors
/// - [`Refused`]: it has no plain memory, or its elements are quantised.
pub fn lend(tensor: &Tensor) -> Result<(View, Option<Tensor>), Refused> {
    dense(tensor)?;
    let lazy = asked::lazy(tensor).ok_or_else(no_memory)?;
    let mut resolved = None;
    if lazy.conjugate {
        resolved = Some(tensor.f_resolve_conj()?);
    }
    if lazy.negative {
        let lazy = resolved.as_ref().unwrap_or(tensor);
        resolved = Some(lazy.f_resolve_neg()?);
    }
    let view = describe(resolved.as_ref().unwrap_or(tensor))?;
    Ok((view.with_readonly(true), resolved))
}

/// A tensor to write to.
///
/// # Errors
/// - As for [`lend`]; besides for lazy negative and conjugate views, elements that share memory, and truth values, of
///   which only two bytes are values.
pub fn lend_mut(tensor: &mut Tensor) -> Result<View, Refused> {
    dense(tensor)?;
    let lazy = asked::lazy(tensor).ok_or_else(no_memory)?;
    if lazy.negative {
        return Err(Refused(NEGATIVE.to_owned()));
    }
    if lazy.conjugate {
        return Err(Refused(CONJUGATE.to_owned()));
    }
    let view = describe(tensor)?;
    if view.dtype() == DType::BOOL {
        return Err(Refused(
            "the tensor is of truth values, and another process may send any byte; receive into Kind::Uint8 and convert it".to_owned(),
        ));
    }
    view.check_writable()
        .map_err(|error| Refused(error.to_string()))?;
    Ok(view)
}

/// Tells autograd that the memory was written: a backward pass that saved the values from before then fails instead of
/// giving wrong gradients.
pub fn wrote(tensor: &Tensor) {
    // A view shares the version counter, and any operation in place raises it: so does one on no elements. A tensor that
    // counts no versions (of inference mode) refuses, and nothing is lost.
    let _ = tensor
        .f_detach()
        .and_then(|own| own.f_as_strided([0i64], [1i64], None))
        .and_then(|mut none| none.f_zero_());
}

/// A tensor that shares the memory of a view.
///
/// # Errors
/// - [`Refused`]: torch has no such dtype or device, strides are no whole number of elements or are negative.
///
/// # Safety
/// - The memory is valid, may be written, and nobody else uses it, as long as the tensor or any clone or view of it lives.
pub unsafe fn adopt(view: &View) -> Result<Tensor, Refused> {
    let no = |what: String| Refused(format!("torch has no tensors {what}"));
    let (dtype, layout) = (view.dtype(), view.layout());
    let kind = KINDS
        .iter()
        .find(|(_, known)| *known == dtype)
        .map(|(kind, _)| *kind)
        .ok_or_else(|| no(format!("of {dtype}")))?;
    let device = match view.device().kind {
        DeviceKind::CPU | DeviceKind::CUDA_HOST => tch::Device::Cpu,
        DeviceKind::CUDA => tch::Device::Cuda(view.device().id as usize),
        _ => return Err(no(format!("on {}", view.device()))),
    };
    let item = layout.itemsize() as i64;
    let strides = layout.strides();
    if strides.iter().any(|step| *step < 0 || step % item != 0) {
        return Err(no(format!("with byte strides {strides:?}")));
    }
    let strides: Vec<i64> = strides.iter().map(|step| step / item).collect();
    // SAFETY:
    // - The caller promises the memory that the view describes.
    let tensor = unsafe {
        Tensor::f_from_blob(
            view.data().cast_const(),
            layout.shape(),
            &strides,
            kind,
            device,
        )
    };
    Ok(tensor?)
}

/// Refuses what has no strided memory, as far as torch can be asked without failing.
fn dense(tensor: &Tensor) -> Result<(), Refused> {
    if !asked::defined(tensor) {
        return Err(Refused(
            "the tensor is undefined, as the gradient of a variable is before its first backward pass"
                .to_owned(),
        ));
    }
    if asked::apart(tensor) {
        return Err(no_memory());
    }
    Ok(())
}

fn no_memory() -> Refused {
    Refused(NO_MEMORY.to_owned())
}

const KINDS: [(Kind, DType); 17] = [
    (Kind::Float, DType::F32),
    (Kind::Double, DType::F64),
    (Kind::Half, DType::F16),
    (Kind::BFloat16, DType::BF16),
    (Kind::Int64, DType::I64),
    (Kind::Int, DType::I32),
    (Kind::Int16, DType::I16),
    (Kind::Int8, DType::I8),
    (Kind::Uint8, DType::U8),
    (Kind::Bool, DType::BOOL),
    (Kind::ComplexHalf, DType::C32),
    (Kind::ComplexFloat, DType::C64),
    (Kind::ComplexDouble, DType::C128),
    (Kind::Float8e5m2, DType::F8_E5M2),
    (Kind::Float8e4m3fn, DType::F8_E4M3FN),
    (Kind::Float8e5m2fnuz, DType::F8_E5M2FNUZ),
    (Kind::Float8e4m3fnuz, DType::F8_E4M3FNUZ),
];

fn describe(tensor: &Tensor) -> Result<View, Refused> {
    let kind = tensor.f_kind()?;
    let dtype = KINDS
        .iter()
        .find(|(known, _)| *known == kind)
        .map(|(_, dtype)| *dtype)
        .ok_or_else(|| {
            Refused(format!(
                "{kind:?} is a quantised type; pass `int_repr()`, and move scale and zero point apart"
            ))
        })?;
    let Asked {
        shape,
        strides,
        data,
        device,
    } = asked::ask(tensor).ok_or_else(no_memory)?;
    let device = match device {
        -1 => Device::CPU,
        index @ 0.. => {
            tch::Cuda::synchronize(i64::from(index));
            Device::cuda(index)
        }
        _ => {
            return Err(Refused(
                "the tensor is on a device (MPS, Vulkan, meta) whose memory cannot be reached; move it to the CPU first"
                    .to_owned(),
            ));
        }
    };
    let item = dtype.itemsize().unwrap_or(1) as i64;
    let in_bytes = |steps: Vec<i64>| -> Option<Vec<i64>> {
        let steps = steps.iter().zip(&shape);
        // Of a single row the stride is never taken, and may be any number.
        steps
            .map(|(step, size)| {
                if *size == 1 {
                    Some(0)
                } else {
                    step.checked_mul(item)
                }
            })
            .collect()
    };
    let strides = match strides.filter(|_| !shape.contains(&0)) {
        Some(steps) => Some(in_bytes(steps).ok_or_else(no_memory)?),
        None => None,
    };
    // SAFETY:
    // - torch keeps every element that sizes and strides reach inside the tensor's storage, as long as that is not
    //   resized, which needs a call on the tensor or a clone of it; who acts on the view answers for that.
    let view = unsafe { View::from_parts(data, &shape, strides.as_deref(), dtype, device, false) };
    view.map_err(|error| Refused(error.to_string()))
}
