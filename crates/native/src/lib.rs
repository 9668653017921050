//! The only cdylib, `dlmpi._native`: what Python sees of the Rust crates, and nothing else.

/// Operations, and what is done in them.
type Operations = Vec<(&'static str, String)>;

/// A dtype, a layout, and operations with the path that such tensors take in them.
type Paths = (String, &'static str, Operations);

/// The native half of dlmpi. Importing it starts no MPI and imports no framework.
#[pyo3::pymodule]
mod _native {
    use py_bridge::classes::{Classes, Tracked};
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyModule, PyType};

    #[pymodule_export]
    use py_bridge::announce::{Announced, Kind, Seat};
    #[pymodule_export]
    use py_bridge::avg::Avg;
    #[pymodule_export]
    use py_bridge::borrow::{Borrow, Borrowed};
    #[pymodule_export]
    use py_bridge::describe::describe;
    #[pymodule_export]
    use py_bridge::errors::MismatchError;
    #[pymodule_export]
    use py_bridge::outstanding::Outstanding;
    #[pymodule_export]
    use py_bridge::pickles::Pickles;
    #[pymodule_export]
    use py_bridge::request::Pending;
    #[pymodule_export]
    use py_bridge::staged::Stage;
    #[pymodule_export]
    use py_bridge::starter::Starter;
    #[pymodule_export]
    use py_bridge::track::Track;
    #[pymodule_export]
    use py_bridge::transfer::Hold;
    #[pymodule_export]
    use torch_bridge::AllReduce;

    /// The version of this build.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Bytes that `paths` wants of a device.
    #[pymodule_export]
    const PROBED: usize = tensor_comm::PROBED;

    /// Binds `mpi4py.MPI` and returns the method descriptors of its classes, `{class: {name: method}}`.
    #[pyfunction]
    fn bind<'py>(module: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyDict>> {
        let mpi4py = py_bridge::mpi4py::Mpi4py::bind(module)?;
        py_bridge::interrupt::watch(module.py())?;
        py_bridge::method::descriptors(module.py(), mpi4py)
    }

    /// Makes a communicator object null without freeing its communicator.
    #[pyfunction]
    fn forget(comm: &Bound<'_, PyAny>) -> PyResult<()> {
        py_bridge::mpi4py::bound()?.forget(comm)
    }

    /// Waits for the private duplicate of a communicator, where it is under way and would be disturbed by
    /// the call that follows.
    #[pyfunction]
    fn undisturbed(comm: &Bound<'_, PyAny>) -> PyResult<()> {
        py_bridge::carried::undisturbed(comm)
    }

    /// Numbers a collective of mpi4py's on a communicator, and compares it where due.
    #[pyfunction]
    #[pyo3(signature = (comm, kind, root=None, op=None, same=None, keep=false, /))]
    fn announce<'py>(
        comm: &Bound<'py, PyAny>,
        kind: &Kind,
        root: Option<&Bound<'py, PyAny>>,
        op: Option<&Bound<'py, PyAny>>,
        same: Option<&Bound<'py, PyAny>>,
        keep: bool,
    ) -> PyResult<Option<Announced>> {
        py_bridge::announce::announce(comm, kind, (root, op, same), keep)
    }

    /// The same on a window or a file.
    #[pyfunction]
    #[pyo3(signature = (seat, kind, same=None, /))]
    fn announce_at<'py>(
        py: Python<'py>,
        seat: Option<&Bound<'py, Seat>>,
        kind: &Kind,
        same: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Announced>> {
        py_bridge::announce::announce_at(py, seat, kind, same)
    }

    /// Reduces many tensors over a communicator, in place.
    #[pyfunction]
    #[pyo3(signature = (tensors, op, comm, /))]
    fn all_reduce_many(
        tensors: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
        comm: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        py_bridge::many::all_reduce_many(tensors, op, comm)
    }

    /// Seconds that plain `MPI_Allreduce` calls in a loop take, for the benchmark.
    #[pyfunction]
    #[pyo3(signature = (send, recv, comm, repeat, /))]
    fn raw_allreduce(
        send: &Bound<'_, PyAny>,
        recv: &Bound<'_, PyAny>,
        comm: &Bound<'_, PyAny>,
        repeat: u64,
    ) -> PyResult<f64> {
        py_bridge::bench::raw_allreduce(send, recv, comm, repeat)
    }

    /// The methods of small objects, by class and name; `hooks` has what Python does for them, and `methods` has each as
    /// Python has it.
    #[pyfunction]
    #[pyo3(signature = (hooks, methods, /))]
    fn object_methods<'py>(
        hooks: &Bound<'py, PyAny>,
        methods: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        py_bridge::objects::methods(hooks.py(), hooks.extract()?, methods)
    }

    /// Says whether the program pickles by Python's own functions.
    #[pyfunction]
    #[pyo3(signature = (stock, /))]
    fn set_stock_pickle(stock: bool) {
        py_bridge::objects::set_stock(stock);
    }

    /// Whether an object is made of builtins alone, and of few: it holds no tensor.
    #[pyfunction]
    #[pyo3(signature = (obj, /))]
    fn is_builtin(obj: &Bound<'_, PyAny>) -> bool {
        py_bridge::pickles::is_builtin(obj)
    }

    /// Forgets what was learned about types, after their rules changed.
    #[pyfunction]
    fn forget_types() {
        py_bridge::registry::forget();
    }

    /// Says what makes a Python request of `(handle, pending)`, for the non-blocking methods.
    #[pyfunction]
    fn set_request(make: Py<PyAny>) -> PyResult<()> {
        py_bridge::mpi4py::bound()?.set_request(make);
        Ok(())
    }

    /// Says which classes are ours, for the objects that methods return.
    #[pyfunction]
    #[pyo3(signature = (*, transfer, receipt, persistent, kept, repeated, staged, message, together, prequest))]
    #[allow(clippy::too_many_arguments, reason = "one per class")]
    fn set_classes(
        transfer: &Bound<'_, PyType>,
        receipt: &Bound<'_, PyType>,
        persistent: &Bound<'_, PyType>,
        kept: &Bound<'_, PyType>,
        repeated: Py<PyAny>,
        staged: Py<PyAny>,
        message: Py<PyAny>,
        together: &Bound<'_, PyType>,
        prequest: &Bound<'_, PyType>,
    ) -> PyResult<()> {
        let classes = Classes {
            transfer: Tracked::new(transfer)?,
            receipt: Tracked::new(receipt)?,
            persistent: Tracked::new(persistent)?,
            kept: Tracked::new(kept)?,
            repeated,
            staged,
            message,
        };
        py_bridge::mpi4py::bound()?.set_classes(classes);
        py_bridge::waiting::put_before(receipt)?;
        py_bridge::several::put_before(together, prequest)
    }

    /// Makes collectives on a communicator exactly one plain MPI call each, or not.
    #[pyfunction]
    fn set_plain(comm: &Bound<'_, PyAny>, plain: bool) -> PyResult<()> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let raw = mpi4py.comm(comm)?;
        tensor_comm::Comm::new(mpi4py.mpi(), raw)
            .and_then(|comm| tensor_comm::set_plain(&comm, plain))
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))
    }

    /// Says whose algorithms the reductions on a communicator use, by the names of `DLMPI_ALLREDUCE`.
    #[pyfunction]
    fn set_choice(comm: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let choice = tensor_comm::Choice::named(name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "allreduce: expected one of auto, mpi, own, ring, halving, two-level, got '{name}'"
            ))
        })?;
        let raw = mpi4py.comm(comm)?;
        tensor_comm::Comm::new(mpi4py.mpi(), raw)
            .and_then(|comm| tensor_comm::set_choice(&comm, choice))
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))
    }

    /// Ends the job and this process. The interpreter stays held: no other thread of Python's goes on meanwhile.
    #[pyfunction]
    fn abort(comm: &Bound<'_, PyAny>, errorcode: i32) -> PyResult<()> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let raw = mpi4py.comm(comm)?;
        mpi4py.mpi().abort(raw, errorcode)
    }

    /// Revokes what dlmpi keeps besides a communicator.
    #[pyfunction]
    fn revoke(comm: &Bound<'_, PyAny>) -> PyResult<()> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let raw = mpi4py.comm(comm)?;
        tensor_comm::Comm::new(mpi4py.mpi(), raw)
            .and_then(|comm| tensor_comm::revoke(&comm))
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))
    }

    /// Ends the engine's thread and those of callbacks; operations under way are abandoned. For the end of
    /// the interpreter.
    #[pyfunction]
    fn stop_engine(py: Python<'_>) {
        py.detach(|| {
            tensor_comm::engine::stop();
            py_bridge::callbacks::stop();
        });
    }

    /// Has this process end MPI when the interpreter is gone, but no child forked from it. Call it before mpi4py
    /// asks for its own end, which then comes first; false where the interpreter takes no more of these.
    #[pyfunction]
    fn finalize_at_exit() -> bool {
        py_bridge::ending::finalize_at_exit()
    }

    /// Makes a communicator ready for a [`Starter`]; collective over it.
    #[pyfunction]
    #[pyo3(signature = (comm, /))]
    fn prepare(comm: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, mpi4py) = (comm.py(), py_bridge::mpi4py::bound()?);
        let raw = mpi4py.comm(comm)?;
        py.detach(|| {
            tensor_comm::Comm::new(mpi4py.mpi(), raw).and_then(|comm| tensor_comm::prepare(&comm))
        })
        .map_err(|error| py_bridge::errors::operation(py, error))
    }

    /// Which way each dtype goes on a communicator: `(dtype, moved, SUM, MAX)` in words.
    #[pyfunction]
    #[pyo3(signature = (comm, /))]
    fn ways(comm: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String, String, String)>> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let ways = tensor_comm::Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?)
            .and_then(|comm| tensor_comm::ways(&comm))
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))?;
        let row = |way: tensor_comm::Way| (way.dtype, way.moved, way.sum, way.max);
        Ok(ways.into_iter().map(row).collect())
    }

    /// Which path tensors would take on a communicator, by dtype, layout and operation, in the words of the trace:
    /// host memory, or `address` of `PROBED` bytes on that CUDA device, which nobody writes meanwhile.
    #[pyfunction]
    #[pyo3(signature = (comm, cuda=None, /))]
    fn paths(comm: &Bound<'_, PyAny>, cuda: Option<(i32, usize)>) -> PyResult<Vec<super::Paths>> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let mut room = vec![
            0u8;
            if cuda.is_none() {
                tensor_comm::PROBED
            } else {
                0
            }
        ];
        let (data, device) = match cuda {
            Some((number, address)) => (
                std::ptr::with_exposed_provenance_mut(address),
                tensor_comm::Device::cuda(number),
            ),
            None => (room.as_mut_ptr(), tensor_comm::Device::CPU),
        };
        let found = tensor_comm::Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?)
            // SAFETY:
            // - `room` is that long; for a device our own Python promises it, which is the only caller.
            .and_then(|comm| unsafe { tensor_comm::paths(&comm, data, device) })
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))?;
        let row = |row: tensor_comm::Paths| (row.dtype, row.layout, row.operations);
        Ok(found.into_iter().map(row).collect())
    }

    /// What becomes of device memory on a communicator: whether the library says that it takes it, how that was found,
    /// and operations with what is done in them.
    #[pyfunction]
    #[pyo3(signature = (comm, /))]
    fn awareness(comm: &Bound<'_, PyAny>) -> PyResult<(bool, String, super::Operations)> {
        let mpi4py = py_bridge::mpi4py::bound()?;
        let found = tensor_comm::Comm::new(mpi4py.mpi(), mpi4py.comm(comm)?)
            .and_then(|comm| tensor_comm::awareness(&comm))
            .map_err(|error| py_bridge::errors::operation(comm.py(), error))?;
        Ok((found.takes, found.found, found.operations))
    }

    /// Starts to trace this process into a file; `node` names the processes that share its clock.
    #[pyfunction]
    #[pyo3(signature = (path, node, /))]
    fn trace_start(py: Python<'_>, path: std::path::PathBuf, node: String) -> PyResult<()> {
        py_bridge::trace::start(py, path, node)
    }

    /// Ends the trace: everything is in its file.
    #[pyfunction]
    fn trace_stop(py: Python<'_>) {
        py.detach(tensor_comm::trace::stop);
    }

    /// Nanoseconds of the trace's clock.
    #[pyfunction]
    fn trace_now() -> u64 {
        tensor_comm::trace::now()
    }

    /// Traces a stretch of the user's program from `start` until now.
    #[pyfunction]
    #[pyo3(signature = (words, start, /))]
    fn trace_note(words: String, start: u64) {
        tensor_comm::trace::note(words, start);
    }

    /// Traces a call that mpi4py's own method serves, from `start` until now.
    #[pyfunction]
    #[pyo3(signature = (name, start, failed, /))]
    fn trace_foreign(name: String, start: u64, failed: bool) {
        tensor_comm::trace::foreign(name, start, failed);
    }

    /// Whether operations of this thread are left out of the trace from now on.
    #[pyfunction]
    #[pyo3(signature = (hidden, /))]
    fn trace_hide(hidden: bool) {
        tensor_comm::trace::hide(hidden);
    }

    /// Lets this process answer other ranks, and watches its collectives where `DLMPI_TIMEOUT` says so.
    #[pyfunction]
    #[pyo3(signature = (signal, descriptor, /))]
    fn watch_start(py: Python<'_>, signal: i32, descriptor: i32) -> PyResult<()> {
        py_bridge::watch::start(py, signal, descriptor)
    }

    /// Sets how long collectives of this thread may take, and returns what was set before.
    #[pyfunction]
    #[pyo3(signature = (seconds, /))]
    fn watch_limit(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<f64>> {
        py_bridge::watch::limit(py, seconds)
    }

    /// What is known about the MPI library that is bound, or `None` before [`bind`].
    #[pyfunction]
    fn library(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
        let Some(mpi4py) = py_bridge::mpi4py::Mpi4py::get() else {
            return Ok(None);
        };
        let mpi = mpi4py.mpi();
        let facts = PyDict::new(py);
        facts.set_item("family", format!("{:?}", mpi.family()))?;
        facts.set_item("version", mpi.library_version())?;
        facts.set_item("path", mpi.library_path())?;
        facts.set_item("found", mpi.how_found())?;
        facts.set_item("large_counts", mpi.has_large_counts())?;
        Ok(Some(facts))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("AVG", Bound::new(module.py(), Avg)?)?;
        py_bridge::site::install();
        py_bridge::registry::install(vec![
            Box::new(numpy_bridge::NumPy),
            Box::new(torch_bridge::Torch),
            Box::new(cupy_bridge::CuPy),
        ]);
        Ok(())
    }
}
