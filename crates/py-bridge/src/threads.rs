//! The threads of Python.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// What tells of them.
struct Threads {
    /// How many there are besides the main one.
    count: Py<PyAny>,
    own: Py<PyAny>,
    main: Py<PyAny>,
}

impl Threads {
    fn get(py: Python<'_>) -> PyResult<&Threads> {
        static FOUND: PyOnceLock<Threads> = PyOnceLock::new();
        FOUND.get_or_try_init(py, || {
            let (low, high) = (py.import("_thread")?, py.import("threading")?);
            Ok(Threads {
                count: low.getattr("_count")?.unbind(),
                own: low.getattr("get_ident")?.unbind(),
                main: high.getattr("main_thread")?.unbind(),
            })
        })
    }
}

/// Whether Python runs no thread but this one, the main one. A thread of `threading` is counted before its `start` returns;
/// one of `_thread` when it first has the interpreter, and one of another language never.
pub(crate) fn is_only(py: Python<'_>) -> bool {
    let ask = || -> PyResult<bool> {
        let threads = Threads::get(py)?;
        let others: usize = threads.count.call0(py)?.extract(py)?;
        let main = || threads.main.call0(py)?.getattr(py, intern!(py, "ident"));
        Ok(others == 0 && main()?.bind(py).eq(threads.own.call0(py)?)?)
    };
    ask().unwrap_or(false)
}
