//! The blocking collectives: tensors in, one call of `tensor-comm`, tensors told.

use tensor_comm::{Arg, Call, CallKind, Part, View, refuse};

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::tensor::{Loan, Tensor, TensorMut};

/// All elements of a tensor.
pub(crate) fn whole(loan: &Loan<'_>) -> Arg {
    Arg::Part(Part::whole(loan.view().clone()))
}

/// A call without arguments.
pub(crate) fn call(kind: CallKind, op: Option<Op>, root: i32) -> Call {
    let mut call = Call::new(kind);
    (call.op, call.root) = (op.map(Op::native), root);
    call
}

/// How the other ranks are told of a refusal.
pub(crate) type Refuse = fn(&tensor_comm::Comm, CallKind, tensor_comm::Error) -> tensor_comm::Error;

/// Which scan is meant.
pub(crate) fn scan_kind(exclusive: bool) -> CallKind {
    match exclusive {
        true => CallKind::Exscan,
        false => CallKind::Scan,
    }
}

/// # Collectives
///
/// Every rank of the communicator calls the same one, with tensors of the same dtype and number of elements, of any
/// shape and layout. Each returns when this rank's part is done.
///
/// Besides what each says: [`crate::ErrorKind::Tensor`] for a tensor that cannot be lent,
/// [`crate::ErrorKind::Argument`] for a size, root or operation that does not fit, [`crate::ErrorKind::Mismatch`]
/// where the ranks were found to call different things, and what MPI reports.
impl Comm<'_> {
    /// Waits until every rank is here.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// universe.world().barrier()?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        let call = call(CallKind::Barrier, None, 0);
        // SAFETY:
        // - There is no memory.
        Ok(unsafe { tensor_comm::run(&self.enter()?, &call) }?)
    }

    /// Copies the root's tensor to every rank.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut weights = if world.rank() == 0 { [1f32, 2.0] } else { [0f32; 2] };
    /// world.broadcast(&mut weights, 0)?;
    /// assert_eq!(weights, [1.0, 2.0]);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn broadcast(&self, tensor: &mut (impl TensorMut + ?Sized), root: i32) -> Result<()> {
        let call = self.rooted(CallKind::Bcast, None, root, refuse)?;
        self.run(call, None, Some(&mut &mut *tensor))
    }

    /// Combines every rank's `send` into `recv` on the root; elsewhere `recv` is `None`.
    ///
    /// ```
    /// use dlmpi::{Op, TensorMut};
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut sum = [0i64; 2];
    /// let recv: Option<&mut dyn TensorMut> = (world.rank() == 0).then_some(&mut sum);
    /// world.reduce(&[1i64, 10], recv, Op::Sum, 0)?;
    /// if world.rank() == 0 {
    ///     assert_eq!(sum[1], 10 * world.size() as i64);
    /// }
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn reduce(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: Option<&mut dyn TensorMut>,
        op: Op,
        root: i32,
    ) -> Result<()> {
        let call = self.rooted(CallKind::Reduce, Some(op), root, refuse)?;
        self.run(call, Some(&send), recv)
    }

    /// Combines every rank's tensor, in place, on all ranks.
    ///
    /// ```
    /// use dlmpi::Op;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut count = [1u32, 2];
    /// world.all_reduce(&mut count, Op::Sum)?;
    /// assert_eq!(count[1], 2 * world.size() as u32);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn all_reduce(&self, tensor: &mut (impl TensorMut + ?Sized), op: Op) -> Result<()> {
        let mut call = call(CallKind::Allreduce, Some(op), 0);
        call.send = Arg::InPlace;
        self.run(call, None, Some(&mut &mut *tensor))
    }

    /// Combines every rank's `send` into `recv` on all ranks.
    ///
    /// ```
    /// use dlmpi::Op;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let (mine, mut largest) = ([3f32, -1.0], [0f32; 2]);
    /// universe.world().all_reduce_into(&mine, &mut largest, Op::Max)?;
    /// assert_eq!(largest, mine);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn all_reduce_into(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: &mut (impl TensorMut + ?Sized),
        op: Op,
    ) -> Result<()> {
        let call = call(CallKind::Allreduce, Some(op), 0);
        self.run(call, Some(&send), Some(&mut &mut *recv))
    }

    /// Combines all tensors, in place, as [`Comm::all_reduce`] does one of them, in few messages: tensors of one dtype
    /// share buckets of up to 1 MiB. All ranks give as many tensors, with the same dtypes and sizes, in the same order.
    ///
    /// ```
    /// use dlmpi::{Op, TensorMut};
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (mut bias, mut weights, mut loss) = ([1f32; 3], vec![2f32; 1000], 0.5f64);
    /// let all: [&mut dyn TensorMut; 3] = [&mut bias, &mut weights, &mut loss];
    /// world.all_reduce_many(all, Op::Avg)?;
    /// assert_eq!((bias[2], weights[999], loss), (1.0, 2.0, 0.5));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives; besides [`crate::ErrorKind::Argument`] where two tensors share memory.
    #[track_caller]
    pub fn all_reduce_many<'t, T: TensorMut + ?Sized + 't>(
        &self,
        tensors: impl IntoIterator<Item = &'t mut T>,
        op: Op,
    ) -> Result<()> {
        let comm = self.enter()?;
        let mut tensors: Vec<&mut T> = tensors.into_iter().collect();
        let loans = tensors
            .iter_mut()
            .map(|tensor| tensor.lend_mut().map(Loan::into_parts));
        let loans: Result<(Vec<View>, Vec<_>)> = loans.collect();
        let (views, kept) = loans.map_err(|why| {
            let told = tensor_comm::refuse_many(&comm, why.as_refusal());
            why.after(told)
        })?;
        let views = views.into_iter().collect();
        // SAFETY:
        // - What the loans held and the borrows keep the memory, for us alone.
        let done = unsafe { tensor_comm::all_reduce_many(&comm, &views, op.native()) };
        drop(kept);
        tensors.iter_mut().for_each(|tensor| tensor.wrote());
        Ok(done?)
    }

    /// Collects every rank's `send` in `recv` on the root, in the order of ranks; elsewhere `recv` is `None`. `recv`
    /// has as many elements as all ranks together.
    ///
    /// ```
    /// use dlmpi::TensorMut;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut all = vec![0u8; 2 * world.size()];
    /// let recv: Option<&mut dyn TensorMut> = (world.rank() == 0).then_some(&mut all);
    /// world.gather(&[7u8, 8], recv, 0)?;
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn gather(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: Option<&mut dyn TensorMut>,
        root: i32,
    ) -> Result<()> {
        let call = self.rooted(CallKind::Gather, None, root, refuse)?;
        self.run(call, Some(&send), recv)
    }

    /// Collects every rank's `send` in `recv` on all ranks, in the order of ranks.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let mut ranks = vec![-1i32; world.size()];
    /// world.all_gather(&world.rank(), &mut ranks)?;
    /// assert!(ranks.iter().zip(0..).all(|(found, expected)| *found == expected));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn all_gather(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: &mut (impl TensorMut + ?Sized),
    ) -> Result<()> {
        let call = call(CallKind::Allgather, None, 0);
        self.run(call, Some(&send), Some(&mut &mut *recv))
    }

    /// Gives every rank its block of the root's `send`, in the order of ranks; elsewhere `send` is `None`.
    ///
    /// ```
    /// use dlmpi::Tensor;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let all: Vec<i32> = (0..2 * world.size() as i32).collect();
    /// let mut mine = [0i32; 2];
    /// let send: Option<&dyn Tensor> = (world.rank() == 0).then_some(&all);
    /// world.scatter(send, &mut mine, 0)?;
    /// assert_eq!(mine[1], 2 * world.rank() + 1);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn scatter(
        &self,
        send: Option<&dyn Tensor>,
        recv: &mut (impl TensorMut + ?Sized),
        root: i32,
    ) -> Result<()> {
        let call = self.rooted(CallKind::Scatter, None, root, refuse)?;
        self.run(call, send, Some(&mut &mut *recv))
    }

    /// Gives block `r` of `send` to rank `r`, and gets as many blocks, in the order of ranks.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (send, mut recv) = (vec![world.rank(); world.size()], vec![-1i32; world.size()]);
    /// world.all_to_all(&send, &mut recv)?;
    /// assert_eq!(recv[0], 0);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn all_to_all(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: &mut (impl TensorMut + ?Sized),
    ) -> Result<()> {
        let call = call(CallKind::Alltoall, None, 0);
        self.run(call, Some(&send), Some(&mut &mut *recv))
    }

    /// Combines every rank's `send`, of which rank `r` gets block `r`.
    ///
    /// ```
    /// use dlmpi::Op;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (send, mut mine) = (vec![1f64; 3 * world.size()], [0f64; 3]);
    /// world.reduce_scatter(&send, &mut mine, Op::Sum)?;
    /// assert_eq!(mine, [world.size() as f64; 3]);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn reduce_scatter(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: &mut (impl TensorMut + ?Sized),
        op: Op,
    ) -> Result<()> {
        let call = call(CallKind::ReduceScatterBlock, Some(op), 0);
        self.run(call, Some(&send), Some(&mut &mut *recv))
    }

    /// Combines the `send` of this rank and all lower ones; with `exclusive` of the lower ones alone, and then rank
    /// 0's `recv` stays as it is.
    ///
    /// ```
    /// use dlmpi::Op;
    ///
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let (rows, mut first) = (10u64, 0u64);
    /// world.scan(&rows, &mut first, Op::Sum, true)?;
    /// assert_eq!(first, 10 * world.rank() as u64);
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - As for all collectives.
    #[track_caller]
    pub fn scan(
        &self,
        send: &(impl Tensor + ?Sized),
        recv: &mut (impl TensorMut + ?Sized),
        op: Op,
        exclusive: bool,
    ) -> Result<()> {
        let call = call(scan_kind(exclusive), Some(op), 0);
        self.run(call, Some(&send), Some(&mut &mut *recv))
    }

    /// A call with a root; `refuse` tells the others of a wrong one.
    #[track_caller]
    pub(crate) fn rooted(
        &self,
        kind: CallKind,
        op: Option<Op>,
        root: i32,
        refuse: Refuse,
    ) -> Result<Call> {
        match (self.checked_rank("root", root), self.enter()) {
            (Ok(root), _) => Ok(call(kind, op, root)),
            (Err(why), Ok(comm)) => {
                let told = refuse(&comm, kind, why.as_refusal());
                Err(why.after(told))
            }
            (Err(why), Err(_)) => Err(why),
        }
    }

    pub(crate) fn checked_rank(&self, name: &str, rank: i32) -> Result<i32> {
        if (0..self.size() as i32).contains(&rank) {
            return Ok(rank);
        }
        Err(Error::argument(format!(
            "{name}: {rank}, expected a rank from 0 to {}",
            self.size() - 1
        )))
    }

    /// Lends the tensors, runs the call, and tells the one that was written.
    #[track_caller]
    fn run(
        &self,
        mut call: Call,
        send: Option<&dyn Tensor>,
        recv: Option<&mut dyn TensorMut>,
    ) -> Result<()> {
        let comm = self.enter()?;
        let refused = |why: Error| {
            let told = refuse(&comm, call.kind, why.as_refusal());
            why.after(told)
        };
        let send = send.map(|tensor| tensor.lend()).transpose();
        let send = send.map_err(refused)?;
        let Some(recv) = recv else {
            call.send = send.as_ref().map_or(call.send, whole);
            // SAFETY:
            // - The loan keeps the memory.
            return Ok(unsafe { tensor_comm::run(&comm, &call) }?);
        };
        let loan = recv.lend_mut().map_err(refused)?;
        call.send = send.as_ref().map_or(call.send, whole);
        call.recv = whole(&loan);
        // SAFETY:
        // - The loans keep the memory, what is received into for us alone.
        let done = unsafe { tensor_comm::run(&comm, &call) };
        drop(loan);
        recv.wrote();
        Ok(done?)
    }
}
