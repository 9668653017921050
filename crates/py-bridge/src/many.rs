//! Many tensors reduced at once, in place: borrows them all, makes the one call, tells their frameworks.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use tensor_comm::{Comm, Error, Op, Tensors};

use crate::collective::operation;
use crate::framework::{Exporter, Intent};
use crate::loan::{Held, Wrote};
use crate::order::StreamOrder;
use crate::{errors, fetch, interrupt, mpi4py, registry, threads};

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
    let ready = operation(mpi4py, "op", op).and_then(|op| Ok((op, Lent::of(tensors, op)?)));
    let (op, lent) = match ready {
        Ok(ready) => ready,
        Err(why) => {
            let words = Error::Value(why.value(py).to_string());
            interrupt::wait(py, || tensor_comm::refuse_many(&comm, words));
            return Err(why);
        }
    };
    let list = &lent.list;
    // SAFETY:
    // - `lent` keeps the tensors' memory.
    let done = interrupt::wait(py, || unsafe {
        tensor_comm::all_reduce_many(&comm, list, op)
    });
    // Also after an error: some may have been written before it.
    let told = lent.wrote();
    done.map_err(core)?;
    told
}

/// Tensors lent for writing.
struct Lent<'py> {
    list: Tensors,
    /// The tensors themselves.
    all: Bound<'py, PyTuple>,
    /// What keeps the memory of those that are more than elements, and tells of it.
    held: Vec<Held>,
    /// What keeps that of the others, besides themselves.
    kept: Vec<Py<PyAny>>,
    /// Where frameworks count the writes of those.
    counters: Vec<NonNull<u32>>,
    /// The numbers of those others of which a framework is told.
    told: Vec<(Wrote, Vec<usize>)>,
}

/// Counters between one that is counted up and one that is fetched.
const AHEAD: usize = 16;

/// Type and exporter of a tensor: most lists hold tensors of one type.
type Last<'py> = (Bound<'py, PyType>, Arc<dyn Exporter>);

impl<'py> Lent<'py> {
    /// Borrows every tensor, and waits for what is queued on any.
    fn of(tensors: &Bound<'py, PyAny>, op: Op) -> PyResult<Lent<'py>> {
        let py = tensors.py();
        // SAFETY:
        // - the thread is attached; a new reference to a tuple, or NULL with an exception set.
        let all = unsafe {
            let all = ffi::PySequence_Tuple(tensors.as_ptr());
            Bound::from_owned_ptr_or_err(py, all)?.cast_into_unchecked::<PyTuple>()
        };
        // Functions of the program's own are Python.
        let undisturbed = !matches!(op, Op::Native(_)) && threads::is_only(py);
        match undisturbed.then(|| Lent::undisturbed(&all)).flatten() {
            Some(lent) => Ok(lent),
            None => Lent::each(&all),
        }
    }

    /// Nothing is borrowed.
    fn none(all: &Bound<'py, PyTuple>) -> Lent<'py> {
        Lent {
            list: Tensors::with_capacity(all.len()),
            held: Vec::new(),
            kept: Vec::new(),
            counters: Vec::new(),
            told: Vec::new(),
            all: all.clone(),
        }
    }

    /// For a call during which no Python runs: nothing but the tensors is held. `None` where one of them is more than its
    /// elements, or of a type not seen before.
    fn undisturbed(all: &Bound<'py, PyTuple>) -> Option<Lent<'py>> {
        let (mut lent, mut order) = (Lent::none(all), StreamOrder::default());
        let mut last: Option<Last<'_>> = None;
        let objects: Vec<Borrowed<'_, '_, PyAny>> = all.iter_borrowed().collect();
        for (i, tensor) in objects.iter().enumerate() {
            let exporter =
                exporter(&mut last, tensor, || registry::known(tensor).ok_or(())).ok()?;
            exporter.look_ahead(&objects[i..]);
            let (flat, counter) = exporter.lend_undisturbed(tensor, &mut order)?;
            lent.list.push_flat(flat);
            lent.counters.extend(counter);
        }
        Some(lent)
    }

    /// Borrows each of them, with what keeps its memory.
    fn each(all: &Bound<'py, PyTuple>) -> PyResult<Lent<'py>> {
        let py = all.py();
        let (mut lent, mut order) = (Lent::none(all), StreamOrder::default());
        let mut last: Option<Last<'_>> = None;
        for (i, tensor) in all.iter_borrowed().enumerate() {
            let exporter = exporter(&mut last, &tensor, || {
                registry::exporter(&tensor)
                    .map_err(|error| error.named(py, &format!("tensors[{i}]")))
            })?;
            match exporter.lend_flat(&tensor, &mut order, &mut lent.kept) {
                Some(flat) => {
                    lent.list.push_flat(flat);
                    lent.will_tell(i, exporter.wrote());
                }
                None => lent.add(i, exporter, &tensor, &mut order)?,
            }
        }
        order.wait(py)?;
        Ok(lent)
    }

    /// Borrows a tensor that is more than its elements.
    fn add(
        &mut self,
        i: usize,
        exporter: &dyn Exporter,
        tensor: &Bound<'py, PyAny>,
        order: &mut StreamOrder,
    ) -> PyResult<()> {
        let name = format_args!("tensors[{i}]");
        let loan = registry::lend_once_by(exporter, &name, tensor, Intent::Receive, order)?;
        let (view, held) = loan.split();
        self.list.push(view);
        self.held.push(held);
        Ok(())
    }

    fn will_tell(&mut self, i: usize, wrote: Option<Wrote>) {
        let Some(wrote) = wrote else { return };
        match self.told.last_mut() {
            Some((last, told)) if std::ptr::fn_addr_eq(*last, wrote) => told.push(i),
            _ => {
                let mut told = Vec::with_capacity(self.all.len());
                told.push(i);
                self.told.push((wrote, told));
            }
        }
    }

    /// The memory was written: tells each framework as few times as can be.
    fn wrote(self) -> PyResult<()> {
        let Lent {
            all,
            held,
            counters,
            ..
        } = self;
        for (i, counter) in counters.iter().enumerate() {
            if let Some(later) = counters.get(i + AHEAD) {
                fetch(later.as_ptr());
            }
            // SAFETY:
            // - the tensor is held, and its framework has it count there, atomically as well.
            unsafe { AtomicU32::from_ptr(counter.as_ptr()) }.fetch_add(1, Ordering::Relaxed);
        }
        let mut done = Held::all_wrote(&held, all.py());
        for (wrote, told) in self.told {
            let told = match told.len() == all.len() {
                true => wrote(&all),
                false => {
                    let some: PyResult<Vec<_>> = told.iter().map(|&i| all.get_item(i)).collect();
                    wrote(&PyTuple::new(all.py(), some?)?)
                }
            };
            done = done.and(told);
        }
        done
    }
}

/// The exporter of a tensor: the last one's where it is of the same type, else what is found.
fn exporter<'a, 'py, E>(
    last: &'a mut Option<Last<'py>>,
    tensor: &Bound<'py, PyAny>,
    find: impl FnOnce() -> Result<Arc<dyn Exporter>, E>,
) -> Result<&'a dyn Exporter, E> {
    let found = match last.take() {
        Some((ty, exporter)) if ty.as_type_ptr() == tensor.get_type_ptr() => (ty, exporter),
        _ => (tensor.get_type(), find()?),
    };
    Ok(&*last.insert(found).1)
}
