//! Non-blocking operations: tensors lent to a scope, and one call or message begun. What becomes of them is the
//! scope's business.

use std::ptr::NonNull;
use std::sync::Arc;

use tensor_comm::engine::Handle;
use tensor_comm::{Arg, Call, CallKind, Part, refuse_start};

use crate::collectives::{call, scan_kind, whole};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::messages::{Source, Status, Tag};
use crate::op::Op;
use crate::scope::{Loans, Request, Scope};
use crate::tensor::{Exclusive, Loan, TensorMut};

/// A tensor to send, lent or refused.
type Sending<'scope> = Option<Result<Loan<'scope>>>;

/// # Non-blocking messages
///
/// As their blocking namesakes, started in a [`scope`](crate::scope). They need `MPI_THREAD_MULTIPLE`, and on the other
/// side may be any MPI program.
impl Comm<'_> {
    /// As [`Comm::send`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (rank, size) = (world.rank(), world.size() as i32);
    /// let (mine, mut from_left) = ([rank; 4], [-1; 6]);
    /// dlmpi::scope(|scope| {
    ///     let coming = world.immediate_recv(scope, &mut from_left, (rank + size - 1) % size, 3)?;
    ///     let going = world.immediate_send(scope, &mine, (rank + 1) % size, 3)?;
    ///     // ... compute something else meanwhile ...
    ///     let (row, status) = coming.wait()?;
    ///     assert_eq!((status.elements, row[0]), (4, (rank + size - 1) % size));
    ///     going.wait()
    /// })?;
    /// assert_eq!(from_left[4..], [-1, -1]); // longer than the message
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all messages, and for [`ErrorKind::State`](crate::ErrorKind::State) below `MPI_THREAD_MULTIPLE`.
    #[track_caller]
    pub fn immediate_send<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope (impl Exclusive + ?Sized),
        dest: i32,
        tag: i32,
    ) -> Result<Request<'scope>> {
        let comm = self.enter()?;
        let (dest, tag) = (self.checked_rank("dest", dest)?, self.checked_tag(tag)?);
        let loan = tensor.lend()?;
        let part = Part::whole(loan.view().clone());
        // SAFETY:
        // - The scope keeps the loan until the operation has ended.
        let handle = unsafe { tensor_comm::begin_send(&comm, &part, dest, tag, Box::new(())) }?;
        Ok(scope.hold(handle, [Some(loan), None], ()))
    }

    /// As [`Comm::recv`]; [`Request::wait`] gives the tensor back, and what came. A scope does not end before the message
    /// has come.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut room = [0u8; 4];
    /// dlmpi::scope(|scope| {
    ///     let coming = world.immediate_recv(scope, &mut room, dlmpi::Source::Any, 9)?;
    ///     let going = world.immediate_send(scope, &[1u8, 2], world.rank(), 9)?;
    ///     let (room, status) = coming.wait()?;
    ///     assert_eq!((&room[..status.elements], status.source), (&[1, 2][..], world.rank()));
    ///     going.wait()
    /// })?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for [`Comm::immediate_send`].
    #[track_caller]
    pub fn immediate_recv<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope mut T,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'scope, (&'scope mut T, Status)>> {
        let comm = self.enter()?;
        let (source, tag) = self.matching(source.into(), tag.into())?;
        let (loan, address) = put_away(tensor);
        let loan = loan?;
        let part = Part::whole(loan.view().clone());
        let keep = Box::new(());
        // SAFETY:
        // - The scope keeps the loan until the operation has ended, and `put_away` the borrow.
        let (handle, envelope) =
            unsafe { tensor_comm::begin_recv(&comm, &part, source, tag, keep) }?;
        Ok(scope.hold(handle, [None, Some(loan)], (address, Arc::clone(&envelope))))
    }
}

/// # Non-blocking collectives
///
/// As their blocking namesakes, started in a [`scope`](crate::scope). They need `MPI_THREAD_MULTIPLE`. Tensors are
/// [`Exclusive`]: code that runs meanwhile cannot reach their memory.
///
/// What can be found before the start is an error of these methods, and nothing was started then; the rest is an
/// error of [`Request::wait`].
impl Comm<'_> {
    /// As [`Comm::barrier`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// dlmpi::scope(|scope| {
    ///     let everybody = world.immediate_barrier(scope)?;
    ///     // ... what does not need them ...
    ///     everybody.wait()
    /// })?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_barrier<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Request<'scope>> {
        let handle = self.begin(&call(CallKind::Barrier, None, 0))?;
        Ok(scope.hold(handle, Loans::default(), ()))
    }

    /// As [`Comm::broadcast`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut seed = if world.rank() == 0 { 42u64 } else { 0 };
    /// dlmpi::scope(|scope| {
    ///     world.immediate_broadcast(scope, &mut seed, 0)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(seed, 42);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_broadcast<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope mut T,
        root: i32,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = self.rooted(CallKind::Bcast, None, root, refuse_start)?;
        self.start_everywhere(scope, call, None, tensor)
    }

    /// As [`Comm::all_reduce`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut ranks = 1u32;
    /// dlmpi::scope(|scope| {
    ///     world.immediate_all_reduce(scope, &mut ranks, dlmpi::Op::Sum)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(ranks as usize, world.size());
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_all_reduce<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        tensor: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let mut call = call(CallKind::Allreduce, Some(op), 0);
        call.send = Arg::InPlace;
        self.start_everywhere(scope, call, None, tensor)
    }

    /// As [`Comm::all_reduce_into`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (mine, mut largest) = ([1f32, -2.0], [0f32; 2]);
    /// dlmpi::scope(|scope| {
    ///     world.immediate_all_reduce_into(scope, &mine, &mut largest, dlmpi::Op::Max)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(largest, mine);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_all_reduce_into<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Allreduce, Some(op), 0);
        self.start_everywhere(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::all_gather`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (mine, mut ranks) = (world.rank(), vec![-1; world.size()]);
    /// dlmpi::scope(|scope| {
    ///     world.immediate_all_gather(scope, &mine, &mut ranks)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(ranks[0], 0);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_all_gather<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Allgather, None, 0);
        self.start_everywhere(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::all_to_all`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (send, mut recv) = (vec![world.rank(); world.size()], vec![-1; world.size()]);
    /// dlmpi::scope(|scope| {
    ///     world.immediate_all_to_all(scope, &send, &mut recv)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(recv[0], 0);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_all_to_all<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::Alltoall, None, 0);
        self.start_everywhere(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::reduce_scatter`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (send, mut mine) = (vec![1f64; 3 * world.size()], [0f64; 3]);
    /// dlmpi::scope(|scope| {
    ///     world.immediate_reduce_scatter(scope, &send, &mut mine, dlmpi::Op::Sum)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(mine, [world.size() as f64; 3]);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_reduce_scatter<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
        op: Op,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = call(CallKind::ReduceScatterBlock, Some(op), 0);
        self.start_everywhere(scope, call, Some(send.lend()), recv)
    }

    /// As [`Comm::reduce`]: `recv` is `None` but on the root.
    ///
    /// ```
    /// use dlmpi::Op;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (mine, mut sum) = ([1i64, 10], [0i64; 2]);
    /// dlmpi::scope(|scope| {
    ///     let recv = (world.rank() == 0).then_some(&mut sum);
    ///     let request = world.immediate_reduce(scope, &mine, recv, Op::Sum, 0)?;
    ///     if let Some(sum) = request.wait()? {
    ///         assert_eq!(sum[1], 10 * world.size() as i64);
    ///     }
    ///     Ok::<(), dlmpi::Error>(())
    /// })?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_reduce<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: Option<&'scope mut T>,
        op: Op,
        root: i32,
    ) -> Result<Request<'scope, Option<&'scope mut T>>> {
        let call = self.rooted(CallKind::Reduce, Some(op), root, refuse_start)?;
        self.start_rooted(scope, call, send.lend(), recv)
    }

    /// As [`Comm::gather`]: `recv` is `None` but on the root.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut all = vec![0u8; world.size()];
    /// dlmpi::scope(|scope| {
    ///     let recv = (world.rank() == 0).then_some(&mut all);
    ///     world.immediate_gather(scope, &7u8, recv, 0)?.wait().map(|_| ())
    /// })?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_gather<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: Option<&'scope mut T>,
        root: i32,
    ) -> Result<Request<'scope, Option<&'scope mut T>>> {
        let call = self.rooted(CallKind::Gather, None, root, refuse_start)?;
        self.start_rooted(scope, call, send.lend(), recv)
    }

    /// As [`Comm::scatter`]: `send` is `None` but on the root.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (all, mut mine) = ((0..world.size() as i32).collect::<Vec<_>>(), -1);
    /// dlmpi::scope(|scope| {
    ///     let send = (world.rank() == 0).then_some(&all);
    ///     world.immediate_scatter(scope, send, &mut mine, 0)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(mine, world.rank());
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_scatter<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: Option<&'scope (impl Exclusive + ?Sized)>,
        recv: &'scope mut T,
        root: i32,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let call = self.rooted(CallKind::Scatter, None, root, refuse_start)?;
        self.start_everywhere(scope, call, send.map(|tensor| tensor.lend()), recv)
    }

    /// As [`Comm::scan`].
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (rows, mut first) = (10u64, 0u64);
    /// dlmpi::scope(|scope| {
    ///     world.immediate_scan(scope, &rows, &mut first, dlmpi::Op::Sum, true)?.wait().map(|_| ())
    /// })?;
    /// assert_eq!(first, 10 * world.rank() as u64);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all non-blocking collectives.
    #[track_caller]
    pub fn immediate_scan<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        send: &'scope (impl Exclusive + ?Sized),
        recv: &'scope mut T,
        op: Op,
        exclusive: bool,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let kind = scan_kind(exclusive);
        self.start_everywhere(scope, call(kind, Some(op), 0), Some(send.lend()), recv)
    }

    /// Starts a call that every rank receives from.
    #[track_caller]
    fn start_everywhere<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        call: Call,
        send: Sending<'scope>,
        recv: &'scope mut T,
    ) -> Result<Request<'scope, &'scope mut T>> {
        let (receiving, address) = put_away(recv);
        let (handle, loans) = self.lend_and_begin(call, send, Some(receiving))?;
        Ok(scope.hold(handle, loans, address))
    }

    /// Starts a call that the root receives from.
    #[track_caller]
    fn start_rooted<'scope, T: TensorMut + Exclusive + ?Sized>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        call: Call,
        send: Result<Loan<'scope>>,
        recv: Option<&'scope mut T>,
    ) -> Result<Request<'scope, Option<&'scope mut T>>> {
        let (receiving, address) = recv.map(put_away).unzip();
        let (handle, loans) = self.lend_and_begin(call, Some(send), receiving)?;
        Ok(scope.hold(handle, loans, address))
    }

    /// Begins the call with tensors that were lent, or tells the others why they were not.
    #[track_caller]
    fn lend_and_begin<'scope>(
        &'scope self,
        mut call: Call,
        send: Sending<'scope>,
        recv: Sending<'scope>,
    ) -> Result<(Handle, Loans<'scope>)> {
        let comm = self.enter()?;
        let refused = |why: Error| {
            let told = refuse_start(&comm, call.kind, why.as_refusal());
            why.after(told)
        };
        let send = send.transpose().map_err(refused)?;
        let recv = recv.transpose().map_err(refused)?;
        if let Some(send) = &send {
            call.send = whole(send);
        }
        if let Some(recv) = &recv {
            call.recv = whole(recv);
        }
        Ok((self.begin(&call)?, [send, recv]))
    }

    #[track_caller]
    fn begin(&self, call: &Call) -> Result<Handle> {
        // SAFETY:
        // - Our callers give the loans to the scope, which keeps them until the operation has ended.
        Ok(unsafe { tensor_comm::begin(&self.enter()?, call, Box::new(())) }?)
    }
}

/// Lends a tensor, and puts its borrow away until the operation has ended.
fn put_away<'scope, T: TensorMut + ?Sized>(
    tensor: &'scope mut T,
) -> (Result<Loan<'scope>>, NonNull<T>) {
    let mut address = NonNull::from(tensor);
    // SAFETY:
    // - The reference is mutable for 'scope; it comes back when the operation has ended, and is not used before.
    let loan = unsafe { address.as_mut() }.lend_mut();
    (loan, address)
}
