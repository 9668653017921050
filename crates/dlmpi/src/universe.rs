//! Starting MPI without linking one, and ending it. Knows no operation.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mpi_runtime::{Mpi, ThreadLevel};
use tensor_comm::{Settings, trace};

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::observe;

/// What the launchers call their number of ranks.
const LAUNCHERS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];
/// The exit code of the job when a rank panics; that of a panic in a process of its own.
pub(crate) const PANICKED: i32 = 101;

/// MPI, from its start to its end: dropping it finalises.
///
/// Communicators borrow it, so none of them outlives MPI. It stays on the thread that made it, as MPI
/// demands of `MPI_Finalize`. When it is dropped by a panic the whole job is ended (exit code 101), since the
/// other ranks would wait for this one for ever.
///
/// ```
/// let universe = dlmpi::initialize()?;
/// universe.world().barrier()?;
/// drop(universe); // or at the end of `main`: MPI_Finalize
/// # Ok::<(), dlmpi::Error>(())
/// ```
#[derive(Debug)]
pub struct Universe {
    mpi: &'static Mpi,
    level: ThreadLevel,
    /// MPI is finalised by the thread that initialised it.
    thread: PhantomData<*const ()>,
}

/// Opens the MPI library of this process, or the first of the usual names (`libmpi.so.12`, `libmpi.so.40`, ...),
/// and initialises it with `MPI_THREAD_MULTIPLE`. Nothing is linked: no `mpicc` and no libclang is needed to build.
///
/// The library must be the one of the `mpiexec` that started the process; where it does not lie on the
/// linker's path, `LD_LIBRARY_PATH` or [`initialize_from`] say where it is.
///
/// Errors of MPI come back as [`Error`]s from then on, not as the end of the job (`MPI_ERRORS_RETURN`).
///
/// ```
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// println!("rank {} of {}: {}", world.rank(), world.size(), universe.library());
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # Errors
/// - [`crate::ErrorKind::Library`]: no MPI library is found, or one of an unknown kind.
/// - [`crate::ErrorKind::Argument`]: a variable `DLMPI_*` has a value that it cannot have.
/// - [`crate::ErrorKind::State`]: MPI was initialised before (by rsmpi: use [`Comm::from_rsmpi`](crate::Comm)), or
///   the process was started by the launcher of another MPI, so that every rank would be alone.
pub fn initialize() -> Result<Universe> {
    start(None)
}

/// As [`initialize`], with the MPI library of that path.
///
/// ```
/// // SAFETY:
/// // - There is no such file; of an MPI's own library it is as true.
/// let error = unsafe { dlmpi::initialize_from("/nowhere/libmpi.so".as_ref()) }.unwrap_err();
/// assert_eq!(error.kind(), dlmpi::ErrorKind::Library);
/// ```
///
/// # Errors
/// - As for [`initialize`]; besides [`crate::ErrorKind::Library`] where another library is in use already.
///
/// # Safety
/// - `library`, if it is there, is an MPI library: to open a file is to run its code, and its functions are called as MPI's.
pub unsafe fn initialize_from(library: &Path) -> Result<Universe> {
    start(Some(library))
}

fn start(library: Option<&Path>) -> Result<Universe> {
    // MPI is asked and started as one step: another thread may want the same.
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    // A wrong setting is found before ranks could wait for each other.
    Settings::get()?;
    let mpi = Mpi::open(library)?;
    if mpi.initialized()? {
        return Err(Error::state(
            "MPI was initialised before in this process; make communicators from its own, e.g. by Comm::from_rsmpi",
        ));
    }
    let level = mpi.init_thread(ThreadLevel::Multiple)?;
    let universe = Universe {
        mpi,
        level,
        thread: PhantomData,
    };
    for comm in [mpi.comm_world(), mpi.comm_self()] {
        mpi.comm_set_errhandler(comm, mpi.errors_return())?;
    }
    alone(mpi)?;
    observe::trace(mpi)?;
    observe::watch(mpi)?;
    Ok(universe)
}

/// Refuses a rank that its launcher counts among many and that is alone for MPI.
fn alone(mpi: &Mpi) -> Result<()> {
    let found = mpi.comm_size(mpi.comm_world())?;
    let launched = LAUNCHERS.iter().find_map(|name| {
        let ranks: i32 = std::env::var(name).ok()?.parse().ok()?;
        (ranks > 1).then_some((name, ranks))
    });
    match launched {
        Some((name, ranks)) if found == 1 => Err(Error::state(format!(
            "the launcher says {name}={ranks}, but {} counts one rank: use the mpiexec of that library, or name the \
             launcher's own library by LD_LIBRARY_PATH or initialize_from",
            mpi.library_path()
        ))),
        _ => Ok(()),
    }
}

impl Universe {
    /// All ranks.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// println!("{} of {}", universe.world().rank(), universe.world().size());
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn world(&self) -> Comm<'_> {
        Comm::known(self.mpi, self.mpi.comm_world(), self.level)
    }

    /// This rank alone.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// assert_eq!(universe.this_rank().size(), 1);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn this_rank(&self) -> Comm<'_> {
        Comm::known(self.mpi, self.mpi.comm_self(), self.level)
    }

    /// What the library calls itself.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// println!("{}", universe.library()); // "MPICH Version: 5.0.2 ..."
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn library(&self) -> &'static str {
        self.mpi.library_version()
    }

    /// What threads may do. Below [`ThreadLevel::Multiple`] only the thread that initialised MPI communicates, and
    /// there are no non-blocking operations.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// if universe.thread_level() < dlmpi::ThreadLevel::Multiple {
    ///     eprintln!("no non-blocking operations here");
    /// }
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn thread_level(&self) -> ThreadLevel {
        self.level
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        if std::thread::panicking() {
            trace::stop();
            self.mpi.abort(self.mpi.comm_world(), PANICKED);
        }
        // An error leaves nothing to do: the process ends.
        // SAFETY:
        // - Communicators borrow `self`, so none is in use; the engine stops inside the call, by its own callback.
        let _ = unsafe { self.mpi.finalize() };
    }
}
