//! Non-blocking operations: started in a scope, which does not end before they have.
//!
//! A request alone could not be sound: whoever forgets it (`mem::forget`) ends the borrow of the tensor, which MPI
//! still writes. The scope keeps its own list, so a forgotten request is waited for all the same. Knows no operation.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensor_comm::engine::{self, Envelope, Handle};

use crate::error::{Error, Result};
use crate::messages::Status;
use crate::tensor::{Loan, TensorMut};
use crate::universe::PANICKED;

/// So many entries are kept before those that have ended are cleared away.
const ENTRIES: usize = 64;
/// Between two looks at whether MPI is over.
const PAUSE: Duration = Duration::from_millis(1);
/// How long operations may take to end after a panic.
const PATIENCE: Duration = Duration::from_secs(30);

/// What non-blocking operations are started in: see [`scope`].
///
/// ```
/// use dlmpi::{Comm, Op, Request, Result, Scope};
///
/// /// Starts the mean of every gradient, for whoever has a scope.
/// fn begin<'scope>(
///     comm: &'scope Comm<'_>,
///     scope: &'scope Scope<'scope, '_>,
///     gradients: &'scope mut [Vec<f32>],
/// ) -> Result<Vec<Request<'scope, &'scope mut Vec<f32>>>> {
///     gradients.iter_mut().map(|g| comm.immediate_all_reduce(scope, g, Op::Avg)).collect()
/// }
///
/// let universe = dlmpi::initialize()?;
/// let (world, mut gradients) = (universe.world(), vec![vec![1f32; 4], vec![2f32; 9]]);
/// dlmpi::scope(|scope| begin(&world, scope, &mut gradients).map(|requests| drop(requests)))?;
/// assert_eq!((gradients[0][3], gradients[1][8]), (1.0, 2.0));
/// # Ok::<(), dlmpi::Error>(())
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    /// Taken out at the end: a scope that dropped them itself could not be borrowed for all its life.
    started: ManuallyDrop<RefCell<Vec<Rc<Started<'scope>>>>>,
    /// The first error that nobody waited for.
    unseen: Cell<Option<Error>>,
    /// Invariant, so that no borrow is taken to be shorter or longer than it is.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope")
            .field(&self.started.borrow().len())
            .finish()
    }
}

/// What an operation has borrowed: to send, and to receive into.
pub(crate) type Loans<'scope> = [Option<Loan<'scope>>; 2];

/// One operation that was started.
struct Started<'scope> {
    handle: Handle,
    /// Its error was seen by whoever waited.
    seen: Cell<bool>,
    loans: Cell<Loans<'scope>>,
}

impl Started<'_> {
    /// Waits, and ends the loans.
    fn finish(&self) -> Result<()> {
        let done = self.await_end();
        drop(self.loans.take());
        done
    }

    /// Waits. Runs no code of the program's.
    fn await_end(&self) -> Result<()> {
        let done = self.handle.wait();
        // Another thread ends MPI, against its rules: nobody waits for the operation any more, and until that thread is
        // done MPI may still write.
        while self.handle.is_left() && !ended() {
            std::thread::sleep(PAUSE);
        }
        Ok(done?)
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        // Whatever unwinds past it, no loan ends before its operation. Elsewhere it has ended already.
        let _ = self.finish();
    }
}

/// Whether MPI is over.
fn ended() -> bool {
    mpi_runtime::Mpi::global().is_none_or(|mpi| mpi.finalized().unwrap_or(true))
}

/// Runs `work`, in which non-blocking operations may be started, and returns when all of them have ended.
///
/// Their tensors are borrowed until then; [`Request::wait`] gives them back earlier. Operations on one communicator
/// are started in the same order on all ranks; they may be waited for in any order, or not at all.
///
/// ```
/// use dlmpi::Op;
///
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let (mut gradient, mut loss) = (vec![1f32; 1000], 0.5f64);
/// dlmpi::scope(|scope| {
///     let first = world.immediate_all_reduce(scope, &mut gradient, Op::Sum)?;
///     let second = world.immediate_all_reduce(scope, &mut loss, Op::Avg)?;
///     // ... compute something else meanwhile ...
///     let loss = second.wait()?;
///     assert_eq!(*loss, 0.5);
///     first.wait().map(|_| ())
/// })?;
/// assert_eq!(gradient[999], world.size() as f32);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// # What does not compile
///
/// A tensor that goes before its scope:
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// let world = universe.world();
/// let _ = dlmpi::scope(|scope| -> dlmpi::Result<()> {
///     let mut inside = vec![1f32; 8];
///     let request = world.immediate_all_reduce(scope, &mut inside, dlmpi::Op::Sum)?;
///     std::mem::forget(request);
///     Ok(())
/// });
/// ```
///
/// A tensor that is read while MPI writes it:
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// let world = universe.world();
/// let mut sum = vec![1f32; 8];
/// let _ = dlmpi::scope(|scope| -> dlmpi::Result<()> {
///     let request = world.immediate_all_reduce(scope, &mut sum, dlmpi::Op::Sum)?;
///     println!("{}", sum[0]);
///     request.wait().map(|_| ())
/// });
/// ```
///
/// A request that leaves its scope:
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// let world = universe.world();
/// let mut sum = vec![1f32; 8];
/// let request = dlmpi::scope(|scope| world.immediate_all_reduce(scope, &mut sum, dlmpi::Op::Sum));
/// ```
///
/// # Errors
/// - That of `work`; else the first one of an operation that nobody waited for.
///
/// # Panics
/// Never of its own; a panic of `work` goes on once the operations have ended. Where they do not within half a minute,
/// since other ranks wait for what this one will not do any more, the job is ended (exit code 101).
pub fn scope<'env, T, E, F>(work: F) -> Result<T, E>
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<T, E>,
    E: From<Error>,
{
    let scope = Scope {
        started: ManuallyDrop::default(),
        unseen: Cell::default(),
        scope: PhantomData,
        env: PhantomData,
    };
    // Ended by its drop if `work` panics.
    let ending = Ending(&scope);
    let result = work(&scope);
    drop(ending);
    let failed = scope.unseen.take();
    match (result, failed) {
        (Ok(_), Some(error)) => Err(error.into()),
        (result, _) => result,
    }
}

/// Waits for everything when it is dropped.
struct Ending<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for Ending<'_, '_, '_> {
    fn drop(&mut self) {
        let all = self.0.started.take();
        if all.is_empty() {
            return;
        }
        // What a loan kept may start another operation when it is dropped, or panic: the rest is ended after `all`, in any
        // case.
        let (_rest, all) = (Ending(self.0), all);
        if std::thread::panicking() {
            end_after_panic(&all);
        }
        // No loan ends before all operations have: where its drop panics nobody would wait for a forgotten request.
        let done: Vec<_> = all.iter().map(|started| started.await_end()).collect();
        for (started, done) in all.iter().zip(done) {
            if let (Err(error), false) = (done, started.seen.get()) {
                let first = self.0.unseen.take().unwrap_or(error);
                self.0.unseen.set(Some(first));
            }
        }
        all.iter().for_each(|started| drop(started.loans.take()));
    }
}

/// Ends the job where operations that a panic left do not end: other ranks may wait for what this one will not do, and
/// memory that MPI still writes cannot be left.
fn end_after_panic(all: &[Rc<Started<'_>>]) {
    let deadline = Instant::now() + PATIENCE;
    for started in all {
        let left = deadline.saturating_duration_since(Instant::now());
        if started.handle.wait_for(left).is_none()
            && let Some(mpi) = mpi_runtime::Mpi::global()
        {
            eprintln!(
                "dlmpi: after a panic {} is still under way; the job is ended with exit code {PANICKED}",
                started.handle.describe()
            );
            tensor_comm::trace::stop();
            mpi.abort(mpi.comm_world(), PANICKED);
        }
    }
}

/// A non-blocking operation under way, with the tensors that it borrows.
///
/// Dropping it waits, without a panic; its error then comes from [`scope`]. While a panic unwinds, the scope waits instead.
///
/// ```
/// let universe = dlmpi::initialize()?;
/// let world = universe.world();
/// let mut sums = [[1u64; 4]; 3];
/// dlmpi::scope(|scope| {
///     let mut requests = Vec::new();
///     for sum in &mut sums {
///         requests.push(world.immediate_all_reduce(scope, sum, dlmpi::Op::Sum)?);
///     }
///     // In any order, and one not at all.
///     requests.pop().map_or(Ok(()), |last| last.wait().map(|_| ()))
/// })?;
/// assert_eq!(sums, [[world.size() as u64; 4]; 3]);
/// # Ok::<(), dlmpi::Error>(())
/// ```
///
/// It stays on its thread, as the scope does:
///
/// ```compile_fail
/// let universe = dlmpi::initialize().unwrap();
/// let world = universe.world();
/// let _ = dlmpi::scope(|scope| {
///     let request = world.immediate_barrier(scope)?;
///     std::thread::scope(|threads| threads.spawn(move || request.wait()).join()).unwrap()
/// });
/// ```
#[must_use = "dropping a request waits for it at once"]
pub struct Request<'scope, B: Borrowed<'scope> = ()> {
    started: Rc<Started<'scope>>,
    put_away: B::PutAway,
}

impl<'scope, B: Borrowed<'scope>> fmt::Debug for Request<'scope, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request")
            .field(&self.started.handle)
            .finish()
    }
}

impl<'scope, B: Borrowed<'scope>> Request<'scope, B> {
    /// Whether it has ended. Does not wait.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut sum = 1u64;
    /// dlmpi::scope(|scope| {
    ///     let request = world.immediate_all_reduce(scope, &mut sum, dlmpi::Op::Sum)?;
    ///     while !request.is_done() {
    ///         std::thread::yield_now(); // or a piece of other work
    ///     }
    ///     request.wait().map(|_| ())
    /// })?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.started.handle.is_done()
    }

    /// Waits until it has ended and gives the received tensor back; of a message its [`Status`](crate::Status), too.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut sum = [1u64; 3];
    /// dlmpi::scope(|scope| {
    ///     let sum = world.immediate_all_reduce(scope, &mut sum, dlmpi::Op::Sum)?.wait()?;
    ///     sum[0] += 1; // ours again, before the scope ends
    ///     Ok::<(), dlmpi::Error>(())
    /// })?;
    /// assert_eq!(sum[0], 1 + sum[1]);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - What was found after the start: the ranks called different things, or MPI reported an error.
    pub fn wait(self) -> Result<B> {
        let done = self.started.finish();
        self.started.seen.set(true);
        // SAFETY:
        // - The operation has ended, and this is the only way to the borrow that `start` put away.
        let borrowed = unsafe { B::back(&self.put_away) };
        done.and(borrowed)
    }
}

impl<'scope, B: Borrowed<'scope>> Drop for Request<'scope, B> {
    fn drop(&mut self) {
        // While a panic unwinds the scope waits, which knows when to give up.
        if !self.started.seen.get() && !std::thread::panicking() {
            // The error stays in the handle, where `scope` finds it.
            let _ = self.started.finish();
            // SAFETY:
            // - The operation has ended, and nobody has the borrow that `start` put away.
            drop(unsafe { B::back(&self.put_away) });
        }
    }
}

/// A borrow that a request puts away while MPI works on the memory behind it, and what [`Request::wait`] gives back:
/// nothing, a mutable reference, one on the root alone, or one with the status of a message. Programs name it where they
/// keep requests of any kind; they cannot implement it.
///
/// ```
/// use dlmpi::{Borrowed, Op, Request, Result};
///
/// /// Something to compute as long as an operation is under way.
/// fn meanwhile<'scope, B: Borrowed<'scope>>(
///     request: Request<'scope, B>,
///     mut work: impl FnMut(),
/// ) -> Result<B> {
///     while !request.is_done() {
///         work();
///     }
///     request.wait()
/// }
///
/// let universe = dlmpi::initialize()?;
/// let (world, mut sum) = (universe.world(), [1f32; 8]);
/// dlmpi::scope(|scope| {
///     let request = world.immediate_all_reduce(scope, &mut sum, Op::Sum)?;
///     meanwhile(request, std::thread::yield_now).map(|_| ())
/// })?;
/// assert_eq!(sum, [world.size() as f32; 8]);
/// # Ok::<(), dlmpi::Error>(())
/// ```
pub trait Borrowed<'scope>: private::Sealed + Sized {
    /// How it is put away.
    #[doc(hidden)]
    type PutAway;

    /// Brings it back, and tells the tensor that it was written.
    ///
    /// # Safety
    /// - The operation has ended, and this is called once per request.
    #[doc(hidden)]
    unsafe fn back(put_away: &Self::PutAway) -> Result<Self>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<T: ?Sized> Sealed for &mut T {}
    impl<T: ?Sized> Sealed for Option<&mut T> {}
    impl<T: ?Sized> Sealed for (&mut T, crate::Status) {}
}

impl<'scope> Borrowed<'scope> for () {
    type PutAway = ();
    unsafe fn back((): &()) -> Result<Self> {
        Ok(())
    }
}

impl<'scope, T: TensorMut + ?Sized + 'scope> Borrowed<'scope> for &'scope mut T {
    type PutAway = NonNull<T>;
    unsafe fn back(address: &NonNull<T>) -> Result<Self> {
        // SAFETY:
        // - It was a mutable reference for 'scope, and the caller sees to it that it is one again.
        let tensor = unsafe { &mut *address.as_ptr() };
        tensor.wrote();
        Ok(tensor)
    }
}

impl<'scope, T: TensorMut + ?Sized + 'scope> Borrowed<'scope> for Option<&'scope mut T> {
    type PutAway = Option<NonNull<T>>;
    unsafe fn back(address: &Option<NonNull<T>>) -> Result<Self> {
        // SAFETY:
        // - The caller's promise.
        let bring = |address| unsafe { <&mut T>::back(address) };
        address.as_ref().map(bring).transpose()
    }
}

impl<'scope, T: TensorMut + ?Sized + 'scope> Borrowed<'scope> for (&'scope mut T, Status) {
    type PutAway = (NonNull<T>, Arc<Envelope>);
    unsafe fn back((address, envelope): &(NonNull<T>, Arc<Envelope>)) -> Result<Self> {
        // SAFETY:
        // - The caller's promise.
        let tensor = unsafe { <&mut T>::back(address) }?;
        let came = envelope.came();
        let came = came.ok_or_else(|| Error::state("no message has come"))?;
        Ok((tensor, came.into()))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Keeps what an operation that was begun has borrowed, leaves it to the engine, and gives the request out.
    pub(crate) fn hold<B: Borrowed<'scope>>(
        &'scope self,
        handle: Handle,
        loans: Loans<'scope>,
        put_away: B::PutAway,
    ) -> Request<'scope, B> {
        // Where there is no engine any more, whoever waits carries it to its end.
        let _ = engine::carry(&handle);
        let started = Rc::new(Started {
            handle,
            seen: Cell::new(false),
            loans: Cell::new(loans),
        });
        let mut all = self.started.borrow_mut();
        if all.len() == all.capacity().max(ENTRIES) {
            all.retain(|other| !(other.seen.get() && other.handle.is_done()));
        }
        all.push(Rc::clone(&started));
        Request { started, put_away }
    }
}
