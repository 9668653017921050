//! Small shared libraries of C source, for tests that want a libmpi with a fault.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds one, in a folder of the test's own.
pub fn build(folder: &str, name: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let c = folder.join(format!("{name}.c"));
    let so = folder.join(format!("lib{name}.so"));
    std::fs::write(&c, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-o"])
        .arg(&so)
        .arg(&c)
        .status();
    assert!(status.expect("a C compiler runs").success());
    so
}
