//! Finds the MPI of this process and tells its ABI family. Calls only what MPI allows before
//! initialisation; knows no other MPI function.

use crate::abi::Family;
use crate::error::LoadError;
use crate::library::{Library, file_of};
use libc::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An MPI library with everything that must be known before its table is filled.
pub(crate) struct Found {
    pub library: Library,
    pub family: Family,
    pub how: String,
    pub path: String,
    pub version: String,
    /// Where `MPI_Allreduce` is: two finds of the same library agree on it.
    pub identity: usize,
    /// The name by which we opened it, if it was not in the process before.
    pub opened: Option<PathBuf>,
}

/// In the global scope of the process.
pub(crate) fn in_process() -> Result<Found, LoadError> {
    examine(
        Library::process(),
        "the global scope of the process (RTLD_DEFAULT)".into(),
    )
}

/// In global scope first, then among what the extension module depends on: the dynamic linker's own
/// order for that module, so that LD_PRELOADed tools are honoured.
pub(crate) fn behind_module(module: &Path) -> Result<Found, LoadError> {
    match in_process() {
        Err(LoadError::NoMpi { .. }) => {}
        found => return found,
    }
    let library = Library::loaded(module).map_err(|detail| LoadError::ModuleNotLoaded {
        module: module.display().to_string(),
        detail,
    })?;
    examine(library, format!("the dependencies of {}", module.display()))
}

/// Opens the named library, or the first of the usual names.
pub(crate) fn by_opening(path: Option<&Path>) -> Result<Found, LoadError> {
    let names = match path {
        Some(path) => vec![path.to_path_buf()],
        None => match in_process() {
            Err(LoadError::NoMpi { .. }) => usual_names(),
            found => return found,
        },
    };
    let mut failures = Vec::new();
    for name in names {
        match Library::open(&name) {
            Ok(library) => {
                let found = examine(library, format!("dlopen of {}", name.display()))?;
                return Ok(Found {
                    opened: Some(name),
                    ..found
                });
            }
            Err(detail) => failures.push(detail),
        }
    }
    Err(LoadError::CannotOpen {
        detail: failures.join("; "),
    })
}

/// SONAMEs of the known families; the one whose launcher started this process comes first,
/// because under the other one every rank would be a job of its own.
fn usual_names() -> Vec<PathBuf> {
    let mpich = ["libmpi.so.12", "libmpich.so.12"];
    let open_mpi = ["libmpi.so.40"];
    let standard = ["libmpi_abi.so.1"];
    let last = ["libmpi.so"];
    let under_open_mpi = std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some();
    let (first, second): (&[&str], &[&str]) = if under_open_mpi {
        (&open_mpi, &mpich)
    } else {
        (&mpich, &open_mpi)
    };
    [first, second, &standard, &last]
        .concat()
        .into_iter()
        .map(PathBuf::from)
        .collect()
}

fn examine(library: Library, how: String) -> Result<Found, LoadError> {
    let Some(anchor) = library.symbol(c"MPI_Allreduce") else {
        return Err(LoadError::NoMpi { looked_in: how });
    };
    let path = file_of(anchor).unwrap_or_else(|| "a library without a name".into());
    let version = library_version(&library, &path)?;
    let Some(family) = family(&library, &version) else {
        let version = version.lines().next().unwrap_or_default().to_owned();
        return Err(LoadError::UnknownAbi {
            library: path,
            version,
        });
    };
    Ok(Found {
        library,
        family,
        how,
        path,
        version,
        identity: anchor.as_ptr() as usize,
        opened: None,
    })
}

/// The order matters: MPICH and Intel MPI export `MPI_Abi_get_version` from their classic
/// libraries too, where it answers -1.
fn family(library: &Library, version: &str) -> Option<Family> {
    if standard_abi_version(library).is_some_and(|major| major > 0) {
        return Some(Family::Abi);
    }
    if library.symbol(c"ompi_mpi_comm_world").is_some() {
        return Some(Family::OpenMpi);
    }
    is_mpich_kin(version).then_some(Family::Mpich)
}

/// The libraries of the MPICH ABI compatibility initiative, by the name they give themselves.
fn is_mpich_kin(version: &str) -> bool {
    ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"]
        .iter()
        .any(|name| version.contains(name))
}

fn standard_abi_version(library: &Library) -> Option<i32> {
    type AbiGetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let symbol = library.symbol(c"MPI_Abi_get_version")?;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY:
    // - The symbol is MPI 5's MPI_Abi_get_version, whose prototype this is; it takes no handle.
    // - It may be called before MPI_Init (MPI-5.0, 20.2).
    // - Both pointers are valid for writes.
    let code = unsafe {
        std::mem::transmute::<*mut c_void, AbiGetVersion>(symbol.as_ptr())(&mut major, &mut minor)
    };
    (code == 0).then_some(major)
}

/// Longer than every known MPI_MAX_LIBRARY_VERSION_STRING (8192), since the constant is not known yet.
const VERSION_BYTES: usize = 16 * 1024;

fn library_version(library: &Library, path: &str) -> Result<String, LoadError> {
    type GetLibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let symbol: NonNull<c_void> =
        library
            .symbol(c"MPI_Get_library_version")
            .ok_or_else(|| LoadError::MissingSymbol {
                library: path.to_owned(),
                symbol: "MPI_Get_library_version".into(),
                version: "older than MPI 3.0".into(),
            })?;
    let mut text = vec![0u8; VERSION_BYTES];
    let mut length = 0;
    // SAFETY:
    // - The symbol is MPI's MPI_Get_library_version, whose prototype this is; it takes no handle.
    // - It may be called before MPI_Init (MPI-3.1, 8.1.1).
    // - `text` is longer than what any known library writes, `length` is valid for writes.
    let code = unsafe {
        std::mem::transmute::<*mut c_void, GetLibraryVersion>(symbol.as_ptr())(
            text.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if code != 0 {
        return Err(LoadError::NoVersion {
            library: path.to_owned(),
            code,
        });
    }
    text.truncate(usize::try_from(length).unwrap_or(0));
    Ok(String::from_utf8_lossy(&text)
        .trim_end_matches(['\0', '\n', ' '])
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kin_of_mpich_by_the_names_they_give_themselves() {
        for version in [
            "MPICH Version:      5.0.2",
            "Intel(R) MPI Library 2021.18 for Linux* OS",
            "MVAPICH2 Version      :\t2.3.7",
            "MPI VERSION    : CRAY MPICH version 8.1.28",
            "ParaStation MPI 5.9",
        ] {
            assert!(is_mpich_kin(version), "{version}");
        }
        assert!(!is_mpich_kin("MS-MPI 10.1"));
        assert!(!is_mpich_kin("HPE MPT 2.25"));
    }
}
