//! Non-blocking operations: started in a scope, which does not end before they have.
//!
//! A request alone could not be sound: whoever forgets it (`mem::forget`) ends the borrow of the tensor, which MPI
//! still writes. The scope keeps its own list, so a forgotten request is waited for all the same.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;

use tensor_comm::engine::Handle;
use tensor_comm::{Arg, Call, CallKind};

use crate::collectives::{call, whole};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::tensor::{Exclusive, Loan, TensorMut};

/// So many entries are kept before those that have ended are cleared away.
const ENTRIES: usize = 64;

/// What non-blocking operations are started in: see [`scope`].
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

/// One operation that was started.
struct Started<'scope> {
    handle: Handle,
    /// Its error was seen by whoever waited.
    seen: Cell<bool>,
    loans: Cell<Vec<Loan<'scope>>>,
}

impl Started<'_> {
    /// Waits, and ends the loans.
    fn finish(&self) -> Result<()> {
        let done = self.handle.wait();
        self.loans.take();
        Ok(done?)
    }
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
/// Never of its own; a panic of `work` goes on once the operations have ended.
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
        for started in self.0.started.take() {
            let done = started.finish();
            if let (Err(error), false) = (done, started.seen.get()) {
                let first = self.0.unseen.take().unwrap_or(error);
                self.0.unseen.set(Some(first));
            }
        }
    }
}

/// A non-blocking operation under way, with the tensors that it borrows.
///
/// Dropping it waits, without a panic; its error then comes from [`scope`].
#[must_use = "dropping a request waits for it at once"]
pub struct Request<'scope, B: Borrowed<'scope> = ()> {
    started: Rc<Started<'scope>>,
    borrowed: B::Address,
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
    pub fn is_done(&self) -> bool {
        self.started.handle.is_done()
    }

    /// Waits until it has ended and gives the received tensor back.
    ///
    /// # Errors
    /// - What was found after the start: the ranks called different things, or MPI reported an error.
    pub fn wait(self) -> Result<B> {
        let done = self.started.finish();
        self.started.seen.set(true);
        // SAFETY:
        // - The operation has ended, and this is the only way to the borrow that `start` put away.
        let borrowed = unsafe { B::back(&self.borrowed) };
        done.map(|()| borrowed)
    }
}

impl<'scope, B: Borrowed<'scope>> Drop for Request<'scope, B> {
    fn drop(&mut self) {
        if !self.started.seen.get() {
            // The error stays in the handle, where `scope` finds it.
            let _ = self.started.finish();
            // SAFETY:
            // - The operation has ended, and nobody has the borrow that `start` put away.
            drop(unsafe { B::back(&self.borrowed) });
        }
    }
}

/// A borrow that a request puts away while MPI works on the memory behind it: nothing, or a mutable reference.
pub trait Borrowed<'scope>: private::Sealed {
    /// How it is put away.
    type Address;

    /// Brings it back.
    ///
    /// # Safety
    /// - The operation has ended, and this is called once per request.
    #[doc(hidden)]
    unsafe fn back(address: &Self::Address) -> Self;
}

mod private {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<T: ?Sized> Sealed for &mut T {}
}

impl<'scope> Borrowed<'scope> for () {
    type Address = ();
    unsafe fn back((): &()) -> Self {}
}

impl<'scope, T: TensorMut + ?Sized + 'scope> Borrowed<'scope> for &'scope mut T {
    type Address = NonNull<T>;
    unsafe fn back(address: &NonNull<T>) -> Self {
        // SAFETY:
        // - It was a mutable reference for 'scope, and the caller sees to it that it is one again.
        let tensor = unsafe { &mut *address.as_ptr() };
        tensor.wrote();
        tensor
    }
}

impl<'scope> Scope<'scope, '_> {
    fn start<B: Borrowed<'scope>>(
        &'scope self,
        comm: &Comm<'_>,
        call: &Call,
        loans: Vec<Loan<'scope>>,
        borrowed: B::Address,
    ) -> Result<Request<'scope, B>> {
        let handle = tensor_comm::start(&comm.enter()?, call, Box::new(()))?;
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
        Ok(Request { started, borrowed })
    }
}

/// # Non-blocking collectives
///
/// As their blocking namesakes, started in a [`scope`]. They need `MPI_THREAD_MULTIPLE`. Tensors are
/// [`Exclusive`]: code that runs meanwhile cannot reach their memory.
///
/// What can be found before the start is an error of these methods, and nothing was started then; the rest is an
/// error of [`Request::wait`].
impl Comm<'_> {
    /// As [`Comm::barrier`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_barrier<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Request<'scope>> {
        scope.start(self, &call(CallKind::Barrier, None, 0), Vec::new(), ())
    }

    /// As [`Comm::broadcast`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_broadcast<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope mut T,
        root: i32,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Bcast, None, self.checked_root(root)?);
        self.start(scope, call, None, tensor)
    }

    /// As [`Comm::all_reduce`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_all_reduce<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let mut call = call(CallKind::Allreduce, Some(op), 0);
        call.send = Arg::InPlace;
        self.start(scope, call, None, tensor)
    }

    /// As [`Comm::all_reduce_into`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_all_reduce_into<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Allreduce, Some(op), 0);
        self.start(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::all_gather`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_all_gather<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Allgather, None, 0);
        self.start(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::all_to_all`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_all_to_all<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Alltoall, None, 0);
        self.start(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::reduce_scatter`].
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    pub fn immediate_reduce_scatter<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::ReduceScatterBlock, Some(op), 0);
        self.start(scope, call, Some(send.lend()), recv)
    }

    /// Lends the tensors for as long as the scope and starts the call.
    fn start<'scope, T: TensorMut + Exclusive + ?Sized>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        mut call: Call,
        send: Option<Result<Loan<'scope>>>,
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let comm = self.enter()?;
        let refuse = |why: Error| {
            tensor_comm::refuse_start(&comm, call.kind, &why.as_refusal());
            why
        };
        let sending = send.transpose().map_err(refuse)?;
        let mut address = NonNull::from(recv);
        // SAFETY:
        // - The reference is mutable for 'scope; it comes back when the operation has ended, and is not used before.
        let receiving = unsafe { address.as_mut() }.lend_mut().map_err(refuse)?;
        if let Some(sending) = &sending {
            call.send = whole(sending);
        }
        call.recv = whole(&receiving);
        let loans = sending.into_iter().chain([receiving]).collect();
        scope.start(self, &call, loans, address)
    }
}
