//! What `DLMPI_TRACE` and `DLMPI_TIMEOUT` ask for, begun once per process. Knows no operation.

use std::path::{Path, PathBuf};
use std::sync::Once;

use mpi_runtime::Mpi;
use tensor_comm::trace::{self, Header};
use tensor_comm::{Settings, Timeout, watch};

use crate::comm::Comm;
use crate::error::{Error, Result};

/// Begins the trace that `DLMPI_TRACE=job.json` asks for: a file of this rank's in the folder `job.json.ranks`. It
/// ends with MPI.
pub(crate) fn trace(mpi: &'static Mpi) -> Result<()> {
    static ONCE: Once = Once::new();
    let Some(name) = std::env::var_os("DLMPI_TRACE").filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let mut begun = Ok(());
    ONCE.call_once(|| begun = begin_trace(mpi, &PathBuf::from(name)));
    begun
}

fn begin_trace(mpi: &'static Mpi, job: &Path) -> Result<()> {
    let world = tensor_comm::Comm::new(mpi, mpi.comm_world())?;
    let rank = usize::try_from(world.rank()?).unwrap_or(0);
    let mut folder = job.as_os_str().to_owned();
    folder.push(".ranks");
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Error::state(format!("DLMPI_TRACE: {}: {error}", folder.display())))?;
    // Processes share a clock exactly if they share the boot of a node; elsewhere than on Linux it has no number.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let library = mpi.library_version().lines().next().unwrap_or_default();
    let header = Header {
        rank,
        size: world.size()?,
        node: format!("{} {}", mpi.get_processor_name()?, boot.trim()),
        library: library.trim().to_owned(),
    };
    Ok(trace::start(
        &folder.join(format!("{rank:06}.json")),
        &header,
    )?)
}

/// Begins to watch collectives, and to answer ranks that wait, where `DLMPI_TIMEOUT` says so.
pub(crate) fn watch(mpi: &'static Mpi) -> Result<()> {
    if Settings::get()?.timeout == Timeout::Off {
        return Ok(());
    }
    Ok(watch::start(tensor_comm::Comm::new(
        mpi,
        mpi.comm_world(),
    )?)?)
}

impl Comm<'_> {
    /// Heeds `DLMPI_TIMEOUT` in a program whose MPI somebody else started; [`initialize`](crate::initialize) does it by
    /// itself. From then on a collective of dlmpi's that takes longer is reported, with the ranks that have not come to it, and
    /// the job is ended (exit code 124). Does nothing without that variable, or a second time.
    ///
    /// Collective over **all ranks of `MPI_COMM_WORLD`**, whichever communicator this is: all call it at the same place, best
    /// right after the start of MPI.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// universe.world().watch()?; // here it was done already
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::Argument`] for a wrong value of a setting; what MPI reports.
    pub fn watch(&self) -> Result<()> {
        self.enter()?;
        watch(self.mpi())
    }
}
