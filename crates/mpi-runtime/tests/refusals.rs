//! What `Mpi::open` refuses, in words: tried on small libraries that a C compiler makes here.
//!
//! No MPI is needed, and none of these libraries is ever called beyond its version functions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod c_library;

use mpi_runtime::{LoadError, Mpi};
use std::path::{Path, PathBuf};

/// Builds a shared library from C source.
fn library(name: &str, source: &str) -> PathBuf {
    c_library::build("refusals", name, source)
}

fn version(text: &str) -> String {
    format!(
        "#include <string.h>
         int MPI_Allreduce(void) {{ return 1; }}
         int MPI_Get_library_version(char *text, int *length)
         {{ strcpy(text, \"{text}\"); *length = strlen(text); return 0; }}\n"
    )
}

fn refusal(library: &Path) -> LoadError {
    Mpi::open(Some(library)).expect_err("it must be refused")
}

#[test]
fn a_library_without_mpi() {
    let path = library("nothing", "int answer(void) { return 42; }");
    assert!(matches!(refusal(&path), LoadError::NoMpi { .. }));
}

#[test]
fn a_file_that_is_no_library() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("text.so");
    std::fs::write(&path, "INPUT(libmpi.so.12)").unwrap();
    let error = refusal(&path);
    assert!(matches!(error, LoadError::CannotOpen { .. }));
    assert!(error.to_string().contains("text.so"), "{error}");
    assert!(matches!(
        refusal(Path::new("no\0such")),
        LoadError::CannotOpen { .. }
    ));
}

#[test]
fn an_abi_that_nobody_knows() {
    let path = library("unknown", &version("FancyMPI 1.0\\nbuilt yesterday"));
    let error = refusal(&path);
    assert_eq!(
        error,
        LoadError::UnknownAbi {
            library: path.display().to_string(),
            version: "FancyMPI 1.0".into()
        }
    );
    assert!(
        error.to_string().contains("MPICH") && error.to_string().contains("Open MPI"),
        "{error}"
    );
}

#[test]
fn an_old_mpi_without_a_version_function() {
    let path = library("old", "int MPI_Allreduce(void) { return 1; }");
    let LoadError::MissingSymbol { symbol, .. } = refusal(&path) else {
        panic!("a missing symbol was expected")
    };
    assert_eq!(symbol, "MPI_Get_library_version");
}

#[test]
fn a_missing_function_is_named() {
    let path = library("partial", &version("MPICH Version: 3.0"));
    let LoadError::MissingSymbol {
        library,
        symbol,
        version,
    } = refusal(&path)
    else {
        panic!("a missing symbol was expected")
    };
    assert_eq!(library, path.display().to_string());
    assert!(symbol.starts_with("MPI_"), "{symbol}");
    assert_eq!(version, "MPICH Version: 3.0");
}

#[test]
fn an_abi_version_decides_only_if_it_is_one() {
    // As MPICH's classic library answers: not the standard ABI, so the version text decides.
    let classic = version("Intel(R) MPI Library")
        + "int MPI_Abi_get_version(int *a, int *b) { *a = *b = -1; return 0; }";
    assert!(matches!(
        refusal(&library("classic", &classic)),
        LoadError::MissingSymbol { .. }
    ));
    // The standard ABI is known whatever the library is called.
    let standard = version("FancyMPI 5")
        + "int MPI_Abi_get_version(int *a, int *b) { *a = 1; *b = 0; return 0; }";
    assert!(matches!(
        refusal(&library("standard", &standard)),
        LoadError::MissingSymbol { .. }
    ));
    // An error from it is no answer.
    let failing = version("FancyMPI 5")
        + "int MPI_Abi_get_version(int *a, int *b) { *a = 1; *b = 0; return 7; }";
    assert!(matches!(
        refusal(&library("failing", &failing)),
        LoadError::UnknownAbi { .. }
    ));
}

#[test]
fn a_module_that_is_not_loaded() {
    let error = Mpi::load_from_module(Path::new("/nonexistent/MPI.so")).unwrap_err();
    assert!(matches!(error, LoadError::ModuleNotLoaded { .. }));
    assert!(
        error.to_string().contains("import mpi4py.MPI first"),
        "{error}"
    );
}

#[test]
fn nothing_is_in_this_process() {
    assert!(matches!(Mpi::load_global(), Err(LoadError::NoMpi { .. })));
    assert!(Mpi::global().is_none());
}
