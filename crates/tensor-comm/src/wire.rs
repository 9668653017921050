//! The decision what goes over the wire: a pure function of [`Agreed`].
//!
//! Movements are always one MPI call of the same name. Reductions say in which form elements travel,
//! who combines them, and how a call is divided where the library's counts are too small. All the rest
//! of a call (packing, staging, derived datatypes for large blocks) is a local step that no other rank
//! can notice.

use dlpack_core::{DType, TypeCode};

use crate::agreed::{Agreed, AgreedOp};
use crate::algorithm::{self, Algorithm};
use crate::call::CallKind;
use crate::error::{Result, value_error};
use crate::kernels::{self, ReduceOp};
use crate::{own_op, wiretype};

/// In which form an element travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// As it lies in memory.
    Memory(DType),
    /// Widened to float32 before MPI and rounded once afterwards (16- and 8-bit floats; complex32 as
    /// complex64).
    Widened {
        /// The tensor's dtype.
        from: DType,
        /// `float32` or `complex64`.
        to: DType,
    },
}

impl Element {
    /// The dtype on the wire.
    pub const fn dtype(self) -> DType {
        match self {
            Element::Memory(dtype) | Element::Widened { to: dtype, .. } => dtype,
        }
    }
}

/// Who combines two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Combine {
    /// The library's predefined operation.
    Library(ReduceOp),
    /// Our kernel: in our own algorithm, and as an `MPI_Op` where libraries differ or are wrong
    /// (see `own_op.rs`).
    Own(ReduceOp),
    /// The caller's own handle.
    Caller,
}

/// What goes over the wire in a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wire {
    /// Form of the elements.
    pub element: Element,
    /// Who combines them.
    pub combine: Combine,
    /// Divide by the number of ranks before rounding.
    pub mean: bool,
    /// The call is made once per slice of at most this many elements; `None`: one call.
    pub slice: Option<usize>,
    /// Whether one call of the library's would not do.
    pub too_large: bool,
    /// How it is made.
    pub algorithm: Algorithm,
    /// Whether that hangs on what the ranks must first agree on ([`crate::Standing`]).
    pub open: bool,
}

impl Wire {
    /// A number that is the same where elements are of one kind and are combined alike.
    pub(crate) fn label(&self) -> u64 {
        let op = match self.combine {
            Combine::Own(op) | Combine::Library(op) => op as u64,
            Combine::Caller => u64::from(u8::MAX),
        };
        let dtype = self.element.dtype();
        u64::from(dtype.code.0)
            | u64::from(dtype.bits) << 8
            | u64::from(dtype.lanes) << 16
            | op << 32
            | u64::from(self.mean) << 40
    }
}

/// Elements of one call where counts are `int`: a round number well below 2^31.
const SLICE: usize = 1 << 30;
/// Elements of one call where they are widened, in memory that stays with the thread.
const WIDE_SLICE: usize = 8 << 20;

/// Elements of one call at most, where they are more.
fn slice(agreed: &Agreed, element: Element, large: bool) -> Option<usize> {
    use CallKind::{Allreduce, Exscan, Reduce, Scan};
    let whole = matches!(agreed.kind, Allreduce | Reduce | Scan | Exscan);
    match element {
        Element::Widened { .. } if whole && agreed.elements > WIDE_SLICE => Some(WIDE_SLICE),
        _ => large.then_some(SLICE),
    }
}

/// Decides for a reduction.
///
/// # Errors
/// [`crate::Error::Value`] when the operation has no meaning for the dtype, or when exactly one plain
/// MPI call was asked for and would not do.
pub fn wire(agreed: &Agreed) -> Result<Wire> {
    let name = agreed.kind.name();
    let (Some(dtype), Some(op)) = (agreed.dtype, agreed.op) else {
        return Err(value_error!(
            "{name}: a reduction needs a tensor and an operation"
        ));
    };
    let (combine, mean) = match op {
        AgreedOp::Native => (Combine::Caller, false),
        AgreedOp::Avg => (Combine::Library(ReduceOp::Sum), check_mean(agreed, dtype)?),
        AgreedOp::Builtin(op) => {
            kernels::meaning(op, dtype).map_err(|why| value_error!("{name}: {why}"))?;
            (combine(op, dtype, agreed.facts.one_call), false)
        }
    };
    let kernel = match op {
        AgreedOp::Native => None,
        AgreedOp::Avg => Some(ReduceOp::Sum),
        AgreedOp::Builtin(op) => Some(op),
    };
    let open = kernel.is_some_and(|op| algorithm::open(agreed, dtype, op));
    let algorithm = kernel.map_or(Algorithm::Library, |op| {
        algorithm::algorithm(agreed, dtype, op)
    });
    if let (Some(op), false) = (kernel, algorithm == Algorithm::Library) {
        return Ok(Wire {
            element: Element::Memory(dtype),
            combine: Combine::Own(op),
            mean,
            slice: None,
            too_large: false,
            algorithm,
            open,
        });
    }
    let element = element(agreed, dtype, combine)?;
    let large = !agreed.facts.large_counts && agreed.elements > i32::MAX as usize;
    if large && agreed.facts.one_call {
        return Err(value_error!(
            "{name}: {} elements need more than one MPI call with this library, but exactly one was asked for; divide the tensor",
            agreed.elements
        ));
    }
    Ok(Wire {
        element,
        combine,
        mean,
        slice: slice(agreed, element, large),
        too_large: large,
        algorithm: Algorithm::Library,
        open,
    })
}

fn check_mean(agreed: &Agreed, dtype: DType) -> Result<bool> {
    let name = agreed.kind.name();
    if !agreed.kind.takes_avg() {
        return Err(value_error!(
            "{name}: AVG has no meaning here; use SUM and divide"
        ));
    }
    if !(is_floating(dtype) || is_complex(dtype)) {
        return Err(value_error!(
            "{name}: AVG is for floating and complex dtypes, not {dtype}; use SUM"
        ));
    }
    kernels::meaning(ReduceOp::Sum, dtype).map_err(|why| value_error!("{name}: {why}"))?;
    if agreed.facts.one_call {
        return Err(value_error!(
            "{name}: AVG is dlmpi's own and needs dlmpi on every rank of an intracommunicator; use SUM and divide"
        ));
    }
    Ok(true)
}

fn combine(op: ReduceOp, dtype: DType, one_call: bool) -> Combine {
    let form = if kernels::widen(dtype).is_some() {
        DType::F32
    } else {
        dtype
    };
    // A foreign peer combines by the library's rule, so ours must too.
    if own_op::exists(op, form) && !one_call {
        return Combine::Own(op);
    }
    Combine::Library(match (dtype, op) {
        // MPI has bitwise operations for integers only; on truth values they are the logical ones.
        (DType::BOOL, ReduceOp::Band) => ReduceOp::Land,
        (DType::BOOL, ReduceOp::Bor) => ReduceOp::Lor,
        (DType::BOOL, ReduceOp::Bxor) => ReduceOp::Lxor,
        _ => op,
    })
}

fn element(agreed: &Agreed, dtype: DType, combine: Combine) -> Result<Element> {
    if wiretype::basic(dtype).is_some() {
        return Ok(Element::Memory(dtype));
    }
    let name = agreed.kind.name();
    if combine == Combine::Caller {
        return Err(value_error!(
            "{name}: {dtype} has no MPI datatype, so MPI cannot run this operation on it; use SUM, PROD, MAX, MIN or dlmpi.AVG, or give a Datatype"
        ));
    }
    if agreed.facts.one_call {
        return Err(value_error!(
            "{name}: MPI has no {dtype}, and exactly one plain MPI call was asked for; convert to float32 first"
        ));
    }
    let to = if dtype == DType::C32 {
        DType::C64
    } else {
        DType::F32
    };
    match (kernels::widen(dtype), combine) {
        (Some(_), _) => Ok(Element::Widened { from: dtype, to }),
        // Our kernel works on its bits, whatever MPI type carries them.
        (None, Combine::Own(_)) => Ok(Element::Memory(dtype)),
        (None, _) => Err(value_error!("{name}: {dtype} is moved, never reduced")),
    }
}

/// Real floating kinds, long double and the narrow ones included.
pub(crate) fn is_floating(dtype: DType) -> bool {
    dtype.lanes == 1
        && (dtype == DType::LONG_DOUBLE
            || matches!(dtype.code, TypeCode::FLOAT | TypeCode::BFLOAT)
            || (TypeCode::FLOAT8_E3M4.0..=TypeCode::FLOAT4_E2M1FN.0).contains(&dtype.code.0))
}

/// Complex kinds.
pub(crate) fn is_complex(dtype: DType) -> bool {
    matches!(
        dtype.code,
        TypeCode::COMPLEX | TypeCode::COMPLEX_LONG_DOUBLE
    ) && dtype.lanes == 1
}
