//! What the benchmark compares with: MPI called in a loop, with nothing of dlmpi in between.

use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::framework::Intent;
use crate::order::StreamOrder;
use crate::{errors, mpi4py, registry};

/// Seconds that `repeat` plain `MPI_Allreduce` (SUM) calls take; `send` and `recv` are contiguous tensors
/// on the host, of a dtype that MPI has.
///
/// # Errors
/// `ValueError` for tensors that plain MPI cannot reduce; what MPI reports.
pub fn raw_allreduce(
    send: &Bound<'_, PyAny>,
    recv: &Bound<'_, PyAny>,
    comm: &Bound<'_, PyAny>,
    repeat: u64,
) -> PyResult<f64> {
    let py = send.py();
    let (mpi4py, mut order) = (mpi4py::bound()?, StreamOrder::default());
    let (mpi, raw) = (mpi4py.mpi(), mpi4py.comm(comm)?);
    let from = registry::lend("send", send, Intent::Send, &mut order)?;
    let to = registry::lend("recv", recv, Intent::Receive, &mut order)?;
    order.wait(py)?;
    let (a, b) = (from.view(), to.view());
    let bytes = a.numel() * a.itemsize();
    let apart = (a.data() as usize).abs_diff(b.data() as usize) >= bytes;
    let plain = |view: &tensor_comm::View| {
        view.layout().is_c_contiguous() && view.device().is_host_addressable()
    };
    let datatype = tensor_comm::mpi_datatype(mpi, a.dtype());
    let (Some(datatype), true) = (
        datatype,
        apart && plain(a) && plain(b) && a.dtype() == b.dtype() && a.numel() == b.numel(),
    ) else {
        return Err(PyValueError::new_err(
            "expected two contiguous host tensors apart from each other, of one size and of one dtype that MPI has",
        ));
    };
    let (source, target) = (a.data() as usize, b.data() as usize);
    let (n, op) = (a.numel() as i64, mpi.op(mpi_runtime::BuiltinOp::Sum));
    let timed = py.detach(|| {
        let start = Instant::now();
        for _ in 0..repeat {
            // SAFETY:
            // - both loans live until this function ends, hold `n` elements of the datatype, are contiguous
            //   and lie apart; the one that is written was lent for that.
            unsafe { mpi.allreduce(source as *const u8, target as *mut u8, n, datatype, op, raw) }?;
        }
        Ok(start.elapsed().as_secs_f64())
    });
    timed
        .map_err(|error: mpi_runtime::Error| errors::operation(py, tensor_comm::Error::from(error)))
}
