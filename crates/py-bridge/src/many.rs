//! Many tensors reduced at once, in place: borrows them all, makes the one call, tells their frameworks.

use pyo3::prelude::*;
use tensor_comm::{Comm, Error, View};

use crate::collective::operation;
use crate::framework::Intent;
use crate::loan::Loan;
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
    let (op, loans) = match ready {
        Ok(ready) => ready,
        Err(why) => {
            let words = Error::Value(why.value(py).to_string());
            interrupt::wait(py, || tensor_comm::refuse_many(&comm, words));
            return Err(why);
        }
    };
    let views: Vec<View> = loans.iter().map(|loan| loan.view().clone()).collect();
    let done = interrupt::wait(py, || tensor_comm::all_reduce_many(&comm, &views, op));
    // Also after an error: some may have been written before it.
    let told = loans
        .iter()
        .map(|loan| loan.wrote(py))
        .fold(Ok(()), PyResult::and);
    done.map_err(core)?;
    told
}

/// Borrows every tensor for writing.
fn borrow(tensors: &Bound<'_, PyAny>) -> PyResult<Vec<Loan>> {
    let mut order = StreamOrder::default();
    let mut loans = Vec::with_capacity(tensors.len().unwrap_or(0));
    for (i, tensor) in tensors.try_iter()?.enumerate() {
        let tensor = tensor?;
        let loan = match registry::lend("tensors", &tensor, Intent::Receive, &mut order) {
            Ok(loan) => loan,
            // The name costs a string, so it is made only for the message.
            Err(_) => registry::lend(
                &format!("tensors[{i}]"),
                &tensor,
                Intent::Receive,
                &mut order,
            )?,
        };
        loans.push(loan);
    }
    order.wait(tensors.py())?;
    Ok(loans)
}
