//! Many tensors reduced at once, in place: borrows them all, makes the one call, tells their frameworks.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use tensor_comm::{Comm, Error, View};

use crate::collective::operation;
use crate::framework::{Exporter, Intent};
use crate::loan::Held;
use crate::order::StreamOrder;
use crate::{errors, interrupt, mpi4py, registry};

/// `dlmpi.allreduce_many` on a communicator: `tensors` is any iterable of tensors.
///
/// # Errors
/// `TypeError`, `BufferError` or `ValueError` with the number of the tensor; what MPI reports.
pub fn all_reduce_many(
    tensors: &Bound<'_, PyAny>,
    op: Option<&Bound<'_, PyAny>>,
    comm: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (py, mpi4py) = (tensors.py(), mpi4py::bound()?);
    let core = |error| errors::operation(py, error);
    let comm = Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?).map_err(core)?;
    let ready = operation(mpi4py, "op", op).and_then(|op| Ok((op, borrow(tensors)?)));
    let (op, (views, held)) = match ready {
        Ok(ready) => ready,
        Err(why) => {
            let words = Error::Value(why.value(py).to_string());
            interrupt::wait(py, || tensor_comm::refuse_many(&comm, words));
            return Err(why);
        }
    };
    // SAFETY:
    // - `held` keeps the tensors' memory.
    let reduce = || unsafe { tensor_comm::all_reduce_many(&comm, &views, op) };
    let done = interrupt::wait(py, reduce);
    // Also after an error: some may have been written before it.
    let told = Held::all_wrote(&held, py);
    done.map_err(core)?;
    told
}

/// Borrows every tensor for writing.
fn borrow(tensors: &Bound<'_, PyAny>) -> PyResult<(Vec<View>, Vec<Held>)> {
    let mut order = StreamOrder::default();
    let length = tensors.len().unwrap_or(0);
    let (mut views, mut held) = (Vec::with_capacity(length), Vec::with_capacity(length));
    // Most lists hold tensors of one type.
    let mut last: Option<(Bound<'_, PyType>, Arc<dyn Exporter>)> = None;
    for (i, tensor) in tensors.try_iter()?.enumerate() {
        let tensor = tensor?;
        let exporter = match &last {
            Some((ty, exporter)) if ty.as_type_ptr() == tensor.get_type_ptr() => exporter,
            _ => {
                let exporter = registry::exporter(&tensor)
                    .map_err(|error| error.named(tensor.py(), &format!("tensors[{i}]")))?;
                &last.insert((tensor.get_type(), exporter)).1
            }
        };
        let name = format_args!("tensors[{i}]");
        let loan =
            registry::lend_once_by(&**exporter, &name, &tensor, Intent::Receive, &mut order)?;
        let (view, hold) = loan.split();
        views.push(view);
        held.push(hold);
    }
    order.wait(tensors.py())?;
    Ok((views, held))
}
