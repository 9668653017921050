//! What protocols do not say about producers that have no bridge of their own: data, seen in the
//! versions named. A row is found by the package that a type comes from.

use pyo3::prelude::*;
use pyo3::types::PyType;

/// What is known about the types of one package.
#[derive(Debug)]
pub struct Policy {
    /// Top-level package of the type's module.
    package: &'static str,
    /// Only this class of it; `None` for all.
    class: Option<&'static str>,
    /// The framework's name, for people.
    pub framework: &'static str,
    /// Why it may never be written to, whatever its flags say.
    pub immutable: Option<&'static str>,
    /// Values of `obj.dtype.name` whose export must not even be tried.
    pub unsafe_dtypes: &'static [&'static str],
    /// Its `__dlpack__` waits for its own work on any device, and refuses a stream.
    pub takes_no_stream: bool,
    /// Its `__cuda_array_interface__` names no stream where it works on its default stream.
    pub leaves_default_stream_out: bool,
    /// What usually lies behind an export that fails.
    pub hint: Option<&'static str>,
}

const JAX_IMMUTABLE: &str = "JAX arrays are immutable; use the functions that return a new array of the same kind (dlmpi.allreduce(x), dlmpi.recv(x), ...), or receive into a NumPy array";
const JAX_HINT: &str = "traced (inside `jit`), deleted or donated arrays have no memory, and sharded or replicated ones have several; pass one array of `x.addressable_shards[i].data`";

const fn row(package: &'static str, framework: &'static str) -> Policy {
    Policy {
        package,
        class: None,
        framework,
        immutable: None,
        unsafe_dtypes: &[],
        takes_no_stream: false,
        leaves_default_stream_out: false,
        hint: None,
    }
}

const ROWS: &[Policy] = &[
    // jaxlib up to 0.11.2 answers with legacy capsules, which cannot say read-only.
    Policy {
        immutable: Some(JAX_IMMUTABLE),
        hint: Some(JAX_HINT),
        ..row("jaxlib", "jax")
    },
    Policy {
        immutable: Some(JAX_IMMUTABLE),
        hint: Some(JAX_HINT),
        ..row("jax", "jax")
    },
    // TensorFlow 2.21: legacy capsules; exporting a string tensor aborts the process; any stream is an error.
    Policy {
        immutable: Some(
            "TensorFlow tensors are immutable; use the functions that return a new tensor (dlmpi.allreduce(x), dlmpi.recv(x), ...), or receive into a NumPy array and assign it to a tf.Variable",
        ),
        unsafe_dtypes: &[
            "string", "resource", "variant", "qint8", "quint8", "qint16", "quint16", "qint32",
        ],
        takes_no_stream: true,
        ..row("tensorflow", "tensorflow")
    },
    // numba-cuda 0.30: "no stream" means "nothing to wait for" in the protocol, and here the default stream.
    Policy {
        leaves_default_stream_out: true,
        ..row("numba", "numba")
    },
    // pyarrow 26: flagged read-only with a version, not without.
    Policy {
        class: Some("Array"),
        immutable: Some(
            "Arrow arrays are immutable; use the functions that return a new array (dlmpi.allreduce(x), dlmpi.recv(x), ...), or receive into a NumPy array",
        ),
        ..row("pyarrow", "pyarrow")
    },
    // MLX 0.32: arrays are values, several may share one memory, and a capsule cannot say so.
    Policy {
        immutable: Some(
            "MLX arrays are values that may share memory, so they are immutable here; use the functions that return a new array (dlmpi.allreduce(x), dlmpi.recv(x), ...), or receive into a NumPy array",
        ),
        ..row("mlx", "mlx")
    },
];

const UNKNOWN: Policy = row("", "generic");

/// What is known about a type, by the first of its classes that has a row.
///
/// # Errors
/// What Python raised while the type was looked at.
pub fn of(ty: &Bound<'_, PyType>) -> PyResult<&'static Policy> {
    for class in ty.mro() {
        let class = class.cast::<PyType>()?;
        // Classes made by C code at run time (ctypes arrays) have no module.
        let Ok(module) = class.module() else {
            continue;
        };
        let module = module.to_str()?;
        let package = module.split('.').next().unwrap_or(module);
        let name = class.name()?;
        let found = ROWS
            .iter()
            .find(|row| row.package == package && row.class.is_none_or(|class| name == class));
        if let Some(row) = found {
            return Ok(row);
        }
    }
    Ok(&UNKNOWN)
}
