//! The communicator: where it comes from, who may use it, its parts. Operations are in their own modules.

use std::marker::PhantomData;
use std::thread::ThreadId;

use mpi_runtime::{Mpi, ThreadLevel};

use crate::error::{Error, Result};
use crate::{observe, site};

/// What every MPI has at least.
const LARGEST_TAG: i32 = 32_767;

/// A group of ranks that communicate with each other.
///
/// It comes from [`Universe::world`](crate::Universe::world), from rsmpi (feature `rsmpi`), or from a raw handle, and
/// lives at most as long as MPI, or as rsmpi's communicator, does. Every collective must be called by all ranks of the
/// communicator, in the same order, with the same dtype and number of elements.
///
/// What the other ranks do is outside of what a compiler sees. In the first calls of a communicator, and now and
/// then after, the ranks compare what they call (`DLMPI_CHECK=always`: every time), and a difference is an error
/// on all of them.
///
/// It cannot outlive MPI:
///
/// ```compile_fail
/// let world = {
///     let universe = dlmpi::initialize().unwrap();
///     universe.world()
/// };
/// ```
///
/// Any thread may use it under `MPI_THREAD_MULTIPLE`; below, only the one that initialised MPI, and another
/// gets an error.
#[derive(Debug)]
pub struct Comm<'mpi> {
    mpi: &'static Mpi,
    raw: mpi_runtime::Comm,
    rank: i32,
    size: usize,
    /// Of the messages' tags.
    largest_tag: i32,
    /// The only thread that may call MPI, where not all may.
    caller: Option<ThreadId>,
    /// Made here, and freed when dropped.
    owned: bool,
    life: PhantomData<&'mpi ()>,
}

impl<'mpi> Comm<'mpi> {
    /// A communicator of an MPI that is known to run; the calling thread initialised it.
    pub(crate) fn known(
        mpi: &'static Mpi,
        raw: mpi_runtime::Comm,
        level: ThreadLevel,
    ) -> Comm<'mpi> {
        site::install();
        Comm {
            mpi,
            raw,
            // Neither fails on a communicator that every MPI has.
            rank: mpi.comm_rank(raw).unwrap_or(0),
            size: mpi.comm_size(raw).unwrap_or(1) as usize,
            largest_tag: mpi.tag_ub(mpi.comm_world()).unwrap_or(LARGEST_TAG),
            caller: (level < ThreadLevel::Multiple).then(|| std::thread::current().id()),
            owned: false,
            life: PhantomData,
        }
    }

    /// A communicator of an MPI that somebody else started.
    fn attach(mpi: &'static Mpi, raw: mpi_runtime::Comm) -> Result<Comm<'mpi>> {
        if !mpi.initialized()? || mpi.finalized()? {
            return Err(Error::state(
                "MPI is not running: it was not initialised yet, or is finalised already",
            ));
        }
        let multiple = mpi.query_thread()? == ThreadLevel::Multiple;
        if !multiple && !mpi.is_thread_main()? {
            return Err(thread_error());
        }
        tensor_comm::Comm::new(mpi, raw)?;
        if mpi.comm_test_inter(raw)? {
            return Err(Error::argument(
                "the communicator is an intercommunicator; only intracommunicators are served here"
                    .into(),
            ));
        }
        observe::trace(mpi)?;
        site::install();
        Ok(Comm {
            mpi,
            raw,
            rank: mpi.comm_rank(raw)?,
            size: mpi.comm_size(raw)? as usize,
            largest_tag: mpi.tag_ub(mpi.comm_world())?,
            caller: (!multiple).then(|| std::thread::current().id()),
            owned: false,
            life: PhantomData,
        })
    }

    /// A communicator by its native handle: the number behind `MPI_Comm` in C, or mpi4py's `comm.handle`. The MPI of
    /// the process is found in its global scope, where a program that links one has it.
    ///
    /// ```no_run
    /// # fn handle() -> u64 { 0 }
    /// // SAFETY:
    /// // - The C library that calls this keeps the communicator for the whole run.
    /// let comm = unsafe { dlmpi::Comm::from_raw(handle()) }?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::Library`]: no MPI is in the process. [`crate::ErrorKind::State`]: it does not run, or not
    ///   for this thread. [`crate::ErrorKind::Argument`]: `MPI_COMM_NULL`, or an intercommunicator.
    ///
    /// # Safety
    /// - `handle` is a communicator of that MPI, and it is not freed during `'mpi`.
    pub unsafe fn from_raw(handle: u64) -> Result<Comm<'mpi>> {
        let mpi = match Mpi::global() {
            Some(mpi) => mpi,
            None => Mpi::load_global()?,
        };
        // SAFETY:
        // - The caller's promise.
        Comm::attach(mpi, unsafe { mpi_runtime::Comm::from_raw(handle) })
    }

    /// An rsmpi communicator, of whichever type, in use by both: nothing is copied, and rsmpi keeps owning it.
    ///
    /// rsmpi initialises MPI without threads unless asked (`initialize_with_threading`), and then there are no
    /// non-blocking operations here. Errors of MPI end the job, as rsmpi has it, unless [`Comm::return_errors`].
    ///
    /// ```ignore
    /// let world = universe.world(); // rsmpi's
    /// let comm = dlmpi::Comm::from_rsmpi(&world)?;
    /// comm.all_reduce(&mut array, dlmpi::Op::Sum)?;
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::Library`]: rsmpi links an MPI of an unknown kind. [`crate::ErrorKind::State`]: MPI does
    ///   not run, or not for this thread.
    #[cfg(feature = "rsmpi")]
    pub fn from_rsmpi<C>(communicator: &'mpi C) -> Result<Comm<'mpi>>
    where
        C: mpi_runtime::rsmpi::AsCommunicator<Out: mpi_runtime::rsmpi::AsComm>,
    {
        let mpi = mpi_runtime::rsmpi::load()?;
        // SAFETY:
        // - The communicator is borrowed, so not dropped, during 'mpi.
        let raw = unsafe { mpi_runtime::rsmpi::comm(communicator.as_communicator()) };
        Comm::attach(mpi, raw)
    }

    /// This process's rank, from 0 on.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let (all, me) = (universe.world(), universe.this_rank());
    /// assert!((0..all.size() as i32).contains(&all.rank()));
    /// assert_eq!((me.rank(), me.size()), (0, 1));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn rank(&self) -> i32 {
        self.rank
    }

    /// How many ranks there are.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// assert!(universe.world().size() >= 1);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.size
    }

    /// The native handle, as [`Comm::from_raw`] takes it. It is valid as long as this communicator.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// // SAFETY:
    /// // - The communicator is that of the `Universe`, which lives longer.
    /// let same = unsafe { dlmpi::Comm::from_raw(world.handle()) }?;
    /// assert_eq!(same.rank(), world.rank());
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn handle(&self) -> u64 {
        self.raw.raw()
    }

    /// Makes errors of MPI come back as [`Error`]s instead of ending the job, for everybody who uses this communicator.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// world.return_errors()?; // of an MPI that dlmpi started it is so already
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - What MPI reports.
    pub fn return_errors(&self) -> Result<()> {
        self.enter()?;
        Ok(self
            .mpi
            .comm_set_errhandler(self.raw, self.mpi.errors_return())?)
    }

    /// Divides the ranks: those of the same `color` get a communicator of their own, in the order of `key`, then of
    /// their ranks here. With `None` a rank gets none. Collective.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let half = world.split(Some(world.rank() % 2), 0)?.expect("every rank has a colour");
    /// assert!(half.size() <= world.size());
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`crate::ErrorKind::Argument`] for a negative colour; what MPI reports.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Comm<'mpi>>> {
        self.enter()?;
        if let Some(color @ ..0) = color {
            return Err(Error::argument(format!(
                "color: {color}, expected 0 or more, or None for a rank that belongs to no part"
            )));
        }
        let color = color.unwrap_or(self.mpi.constants().undefined);
        let raw = self.mpi.comm_split(self.raw, color, key)?;
        (raw != self.mpi.comm_null())
            .then(|| self.made(raw))
            .transpose()
    }

    /// The same ranks with messages and collectives of their own: for a library that must not meet its caller's.
    /// Collective.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let library = world.duplicate()?; // its messages never meet those of `world`
    /// library.barrier()?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - What MPI reports.
    pub fn duplicate(&self) -> Result<Comm<'mpi>> {
        self.enter()?;
        self.made(self.mpi.comm_dup(self.raw)?)
    }

    fn made(&self, raw: mpi_runtime::Comm) -> Result<Comm<'mpi>> {
        let mut made = Comm {
            mpi: self.mpi,
            raw,
            rank: 0,
            size: 1,
            largest_tag: self.largest_tag,
            caller: self.caller,
            owned: true,
            life: PhantomData,
        };
        // Freed by its drop when a question fails.
        made.rank = self.mpi.comm_rank(raw)?;
        made.size = self.mpi.comm_size(raw)? as usize;
        Ok(made)
    }

    pub(crate) fn largest_tag(&self) -> i32 {
        self.largest_tag
    }

    /// The library.
    pub(crate) fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// The communicator as operations take it, for this thread, now.
    ///
    /// # Errors
    /// - [`crate::ErrorKind::State`]: this thread may not call MPI, or MPI is finalised.
    #[track_caller]
    pub(crate) fn enter(&self) -> Result<tensor_comm::Comm> {
        site::note();
        if self
            .caller
            .is_some_and(|caller| caller != std::thread::current().id())
        {
            return Err(thread_error());
        }
        Ok(tensor_comm::Comm::new(self.mpi, self.raw)?)
    }
}

fn thread_error() -> Error {
    Error::state(
        "MPI runs below MPI_THREAD_MULTIPLE, and this is not the thread that initialised it; initialise with \
         MPI_THREAD_MULTIPLE (rsmpi: initialize_with_threading) to communicate from any thread",
    )
}

impl Drop for Comm<'_> {
    fn drop(&mut self) {
        // On a thread that may not call MPI, and after its end, it is left to MPI.
        if self.owned && self.enter().is_ok() {
            // An error leaves nothing to do.
            // SAFETY:
            // - It was made here, and this is its end.
            let _ = unsafe { self.mpi.comm_free(&mut self.raw) };
        }
    }
}
