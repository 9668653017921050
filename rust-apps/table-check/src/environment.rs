//! Before and after MPI_Init: versions, thread levels, clocks, loading again.

use crate::suite::Context;
use mpi_runtime::{Family, LoadError, Mpi, ThreadLevel};
use std::path::Path;

pub fn before_init(mpi: &'static Mpi, library: Option<&Path>) {
    assert_eq!(mpi.initialized(), Ok(false));
    assert_eq!(mpi.finalized(), Ok(false));
    let again = Mpi::open(library).expect("opening the same library again");
    assert!(std::ptr::eq(again, mpi), "one table per process");
    // The library was opened in global scope, so that is another way to the same one.
    assert!(std::ptr::eq(Mpi::load_global().expect("global scope"), mpi));
}

pub fn after_init(c: &Context) {
    let mpi = c.mpi;
    assert_eq!(mpi.initialized(), Ok(true));
    assert_eq!(mpi.finalized(), Ok(false));
    let level = mpi.query_thread().expect("thread level");
    assert!(level >= ThreadLevel::Single);
    assert_eq!(mpi.is_thread_main(), Ok(true));
    if level == ThreadLevel::Multiple {
        let elsewhere = std::thread::spawn(|| Mpi::global().map(Mpi::is_thread_main));
        assert_eq!(elsewhere.join().expect("no panic"), Some(Ok(false)));
    }

    let (version, subversion) = mpi.get_version().expect("version");
    assert!(
        (3..=5).contains(&version) && (0..=9).contains(&subversion),
        "{version}.{subversion}"
    );
    assert_eq!(
        mpi.get_library_version().expect("library version"),
        mpi.library_version()
    );
    assert!(!mpi.get_processor_name().expect("name").is_empty());
    let (before, after) = (mpi.wtime(), mpi.wtime());
    assert!(before > 0.0 && after >= before && after - before < 10.0);

    // What the library itself says of its kind.
    let text = mpi.library_version();
    match mpi.family() {
        Family::OpenMpi => assert!(text.contains("Open MPI"), "{text}"),
        Family::Mpich => assert!(!text.contains("Open MPI"), "{text}"),
        Family::Abi => assert!(mpi.library_path().contains("abi"), "{}", mpi.library_path()),
    }

    let (handle, status) = (mpi.handle_bytes(), mpi.status_bytes());
    let in_place = mpi.in_place() as isize;
    assert_eq!(mpi.cross_check(handle, status, in_place), Ok(()));
    for (handle, status, in_place) in [
        (handle + 4, status, in_place),
        (handle, status + 4, in_place),
        (handle, status, in_place + 5),
    ] {
        assert!(matches!(
            mpi.cross_check(handle, status, in_place),
            Err(LoadError::Mismatch { .. })
        ));
    }
    let nowhere = Mpi::load_from_module(Path::new("/nonexistent/module.so"));
    // The global scope comes first, and it has an MPI.
    assert!(std::ptr::eq(nowhere.expect("found in global scope"), mpi));
    let missing = Mpi::open(Some(Path::new("libnonexistent-mpi.so.0")));
    assert!(
        matches!(missing, Err(LoadError::CannotOpen { .. })),
        "{missing:?}"
    );
}
