//! Tensors of tch, and data-parallel training with them.
//!
#![cfg_attr(feature = "tch-doc-only", doc = "```no_run")]
#![cfg_attr(not(feature = "tch-doc-only"), doc = "```")]
//! use dlmpi::tch::{average_grads, broadcast_vars, torch};
//! use torch::nn::{self, Module, OptimizerConfig};
//!
//! let universe = dlmpi::initialize()?;
//! let world = universe.world();
//! let vars = nn::VarStore::new(torch::Device::Cpu);
//! let model = nn::linear(vars.root(), 64, 10, Default::default());
//! let mut optimizer = nn::Sgd::default().build(&vars, 0.1).expect("variables");
//! broadcast_vars(&world, &vars, 0)?;
//! # let rows = torch::Tensor::ones([12, 64], (torch::Kind::Float, torch::Device::Cpu));
//! # let labels = torch::Tensor::zeros([12], (torch::Kind::Int64, torch::Device::Cpu));
//! let loss = model.forward(&rows).cross_entropy_for_logits(&labels);
//! optimizer.zero_grad();
//! loss.backward();
//! average_grads(&world, &vars)?; // the one line that makes it data-parallel
//! optimizer.step();
//! # Ok::<(), dlmpi::Error>(())
//! ```
//!
//! tch 0.26 needs libtorch 2.13.

use std::sync::PoisonError;

use torch_bridge::tensor;

pub use torch_bridge::tch as torch;

use torch::nn::VarStore;

use crate::comm::Comm;
use crate::dlpack::Imported;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::tensor::{Loan, Tensor, TensorMut};

impl From<tensor::Refused> for Error {
    fn from(refused: tensor::Refused) -> Error {
        Error::tensor(refused.0)
    }
}

// SAFETY:
// - torch keeps the tensor's memory while it is borrowed; its clones are this thread's, which is inside the operation, or
//   are guarded by whoever sent them to another thread, as torch itself demands of its users.
// - On a CUDA device everything queued has happened.
unsafe impl Tensor for torch::Tensor {
    fn lend(&self) -> Result<Loan<'_>> {
        Ok(match tensor::lend(self)? {
            (view, None) => Loan::new(view),
            (view, Some(resolved)) => Loan::keeping(view, resolved),
        })
    }
}

// SAFETY:
// - As above; truth values are refused, so every pattern of bytes is a value.
unsafe impl TensorMut for torch::Tensor {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        Ok(Loan::new(tensor::lend_mut(self)?))
    }

    fn wrote(&mut self) {
        tensor::wrote(self);
    }
}

/// Copies the root's variables to all ranks, whatever they were initialised with. Collective: every rank has the same
/// variables by name, kind and shape.
///
#[cfg_attr(feature = "tch-doc-only", doc = "```no_run")]
#[cfg_attr(not(feature = "tch-doc-only"), doc = "```")]
/// use dlmpi::tch::{broadcast_vars, torch};
/// use torch::nn::{Init, VarStore};
///
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let vars = VarStore::new(torch::Device::Cpu);
/// let start = Init::Uniform { lo: -1.0, up: 1.0 }; // other numbers on every rank
/// let weights = vars.root().f_var("weights", &[4, 3], start).expect("a new name");
/// broadcast_vars(&world, &vars, 0)?;
/// let mut largest = weights.copy();
/// world.all_reduce(&mut largest, dlmpi::Op::Max)?;
/// assert!(largest.equal(&weights));
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - As for [`Comm::broadcast`].
#[track_caller]
pub fn broadcast_vars(comm: &Comm<'_>, vars: &VarStore, root: i32) -> Result<()> {
    let mut named: Vec<(String, torch::Tensor)> = vars.variables().into_iter().collect();
    // The store is a hash map, whose order is another one in every process.
    named.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, variable) in &mut named {
        comm.broadcast(variable, root)?;
    }
    Ok(())
}

/// Replaces the gradients of all trainable variables by their mean over the ranks, in few messages: they share buckets of
/// up to 1 MiB. Call it between `backward` and the optimiser's `step`. Collective: every rank has the same variables.
///
/// A variable that took no part in this rank's loss counts as a gradient of zeros, and gets it. Autograd's version counter of
/// gradients is left as it is: no graph keeps them, unless one of higher order was asked for.
///
#[cfg_attr(feature = "tch-doc-only", doc = "```no_run")]
#[cfg_attr(not(feature = "tch-doc-only"), doc = "```")]
/// use dlmpi::tch::{average_grads, torch};
/// use torch::nn::{Init, VarStore};
///
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let vars = VarStore::new(torch::Device::Cpu);
/// let weight = vars.root().f_var("weight", &[2], Init::Const(1.0)).expect("a new name");
/// let loss = (&weight * f64::from(world.rank())).sum(torch::Kind::Float);
/// loss.backward(); // a gradient of 0 on rank 0, of 1 on rank 1, ...
/// average_grads(&world, &vars)?;
/// assert_eq!(weight.grad().double_value(&[0]), (world.size() - 1) as f64 / 2.0);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - As for [`Comm::all_reduce_many`]; [`crate::ErrorKind::Tensor`] for sparse gradients.
#[track_caller]
pub fn average_grads(comm: &Comm<'_>, vars: &VarStore) -> Result<()> {
    let mut gradients = {
        // Each variable is asked where it is: `trainable_variables()` would clone them all.
        let known = vars.variables_.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let variables = known.trainable_variables.iter();
        let gradients = variables.map(|var| gradient(&var.tensor).map(Gradient));
        gradients.collect::<Result<Vec<_>>>()?
    };
    comm.all_reduce_many(gradients.iter_mut(), Op::Avg)
}

/// A gradient: a tensor whose writes nobody counts.
struct Gradient(torch::Tensor);

// SAFETY:
// - It is its tensor.
unsafe impl Tensor for Gradient {
    fn lend(&self) -> Result<Loan<'_>> {
        self.0.lend()
    }
}

// SAFETY:
// - It is its tensor.
unsafe impl TensorMut for Gradient {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        self.0.lend_mut()
    }
}

/// The gradient of a variable, which shares its memory.
fn gradient(variable: &torch::Tensor) -> Result<torch::Tensor> {
    let found = variable.f_grad().map_err(tensor::Refused::from)?;
    if found.defined() {
        return Ok(found);
    }
    let ask = || {
        variable.f_sum(variable.f_kind()?)?.f_backward()?;
        let mut made = variable.f_grad()?;
        let _ = made.f_zero_()?;
        Ok::<_, torch::TchError>(made)
    };
    Ok(ask().map_err(tensor::Refused::from)?)
}

/// A torch tensor that shares the memory of an imported one, without a copy.
///
#[cfg_attr(feature = "tch-doc-only", doc = "```no_run")]
#[cfg_attr(not(feature = "tch-doc-only"), doc = "```")]
/// use dlmpi::{dlpack, tch};
///
/// let managed = dlpack::export(vec![1f32, 2.0, 3.0])?;
/// // SAFETY:
/// // - It was exported above, for this only consumer, and the vector went into it.
/// let mut imported = unsafe { dlpack::Imported::new(managed) }?;
/// // SAFETY:
/// // - `tensor` is declared later than `imported`, so it goes first; it has no clones.
/// let tensor = unsafe { tch::adopt(&mut imported) }?;
/// assert_eq!(tensor.sum(tch::torch::Kind::Float).double_value(&[]), 6.0);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - [`crate::ErrorKind::Tensor`]: torch has no such dtype or device, or strides are negative.
///
/// # Safety
/// - Neither the result nor any clone or view of it is used after `imported` is gone, or while `imported` is lent.
pub unsafe fn adopt(imported: &mut Imported) -> Result<torch::Tensor> {
    let loan = imported.lend_mut()?;
    // SAFETY:
    // - The caller's promise.
    Ok(unsafe { tensor::adopt(loan.view()) }?)
}

/// Gives a tensor away as DLPack's managed tensor, without a copy.
///
#[cfg_attr(feature = "tch-doc-only", doc = "```no_run")]
#[cfg_attr(not(feature = "tch-doc-only"), doc = "```")]
/// use dlmpi::tch::{self, torch};
/// use dlmpi::{Tensor, dlpack};
///
/// let tensor = torch::Tensor::ones([5], (torch::Kind::Float, torch::Device::Cpu));
/// // SAFETY:
/// // - The tensor goes into it, and has no clones.
/// let managed = unsafe { tch::export(tensor) }?;
/// // SAFETY:
/// // - It was exported above, for this only consumer.
/// let taken = unsafe { dlpack::Imported::new(managed) }?;
/// assert_eq!(taken.lend()?.view().numel(), 5);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - [`crate::ErrorKind::Tensor`]: it cannot be lent.
///
/// # Safety
/// - Until the consumer calls the deleter, no clone or view of the tensor resizes the memory that they share, or uses it
///   while the consumer writes it.
pub unsafe fn export(
    mut tensor: torch::Tensor,
) -> Result<*mut dlpack_core::abi::DLManagedTensorVersioned> {
    let view = tensor.lend_mut()?.view().clone();
    // SAFETY:
    // - The tensor keeps its storage wherever it is moved; the caller promises the rest.
    let foreign = unsafe { dlpack_core::export(&view, tensor) }?;
    foreign
        .into_versioned()
        .map_err(|_| Error::state("only managed tensors of the newer form are exported"))
}
