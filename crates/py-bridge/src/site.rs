//! The line of the user's program that made the call: the innermost frame outside of dlmpi and of
//! torch's distributed package.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Lets errors name the lines.
pub fn install() {
    tensor_comm::set_site(here);
}

fn here() -> Option<(String, u32)> {
    Python::try_attach(|py| find(py).ok().flatten()).flatten()
}

fn find(py: Python<'_>) -> PyResult<Option<(String, u32)>> {
    static GETFRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let getframe = GETFRAME.get_or_try_init(py, || {
        py.import("sys")?.getattr("_getframe").map(Bound::unbind)
    })?;
    // A thread without Python frames (the engine's) has none to show.
    let Ok(innermost) = getframe.bind(py).call0() else {
        return Ok(None);
    };
    let inner: Vec<String> = ["dlmpi", "torch"]
        .iter()
        .filter_map(|package| folder(py, package))
        .collect();
    let (mut frame, mut found) = (innermost, None);
    while !frame.is_none() {
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        let inner = inner.iter().any(|folder| file.starts_with(folder));
        if !inner || found.is_none() {
            found = Some((file, frame.getattr("f_lineno")?.extract()?));
        }
        if !inner {
            break;
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(found)
}

/// The folder of a package that is imported, with a `/` at its end.
pub fn folder(py: Python<'_>, package: &str) -> Option<String> {
    let modules = py.import("sys").and_then(|sys| sys.getattr("modules"));
    let module = modules.and_then(|modules| modules.get_item(package)).ok()?;
    let path = module.getattr("__path__").and_then(|path| path.get_item(0));
    let path: String = path.and_then(|path| path.extract()).ok()?;
    Some(path + "/")
}
