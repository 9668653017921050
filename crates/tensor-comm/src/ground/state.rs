//! The state of one communicator, kept in an MPI attribute on it.
//!
//! A handle's value is reused as soon as a communicator is freed, so nothing is ever keyed by it: MPI
//! itself tells, by the delete callback, when the communicator goes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use mpi_runtime::{Keyval, Mpi};

use super::arena::Arena;
use super::asking::Asking;
use super::awareness::Reach;
use super::peers::Peers;
use super::place::Places;
use super::private::{self, Private};
use super::process;
use super::receives::Receives;
use super::recent;
use super::settings::{Aware, Choice, Settings};
use super::turns::Turns;
use crate::agreed::{Place, Standing};
use crate::comm::Comm;
use crate::error::{Error, Result};

/// What dlmpi knows of a communicator.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) comm: Comm,
    rank: usize,
    size: usize,
    tag_ub: i32,
    /// Collectives made so far.
    sequence: AtomicU64,
    /// The order in which non-blocking collectives are issued.
    turns: Mutex<Turns>,
    pub(super) private: Mutex<Private>,
    /// What it has come to be, once it is there.
    pub(super) duplicate: OnceLock<mpi_runtime::Comm>,
    /// Receives that look for their messages.
    receives: Mutex<Receives>,
    /// The thread that works on the duplicate (private.rs), or 0.
    pub(super) holder: AtomicUsize,
    /// Where the ranks run, once they have agreed on it.
    pub(super) places: OnceLock<Places>,
    /// A non-blocking collective has asked, and how far that is.
    pub(super) asking: Mutex<Option<Result<Asking>>>,
    /// What the ranks share, once they have agreed on it.
    pub(super) arena: OnceLock<Option<Arena>>,
    /// That is for non-blocking calls alone.
    pub(super) arena_of_engine: AtomicBool,
    /// Which ranks take device memory from which, once they have agreed on it.
    reach: OnceLock<Reach>,
    /// A number that all ranks know this communicator by, once they have agreed on it, else 0.
    id: AtomicU64,
    /// The members' ranks in `COMM_WORLD`, once somebody asked.
    members: OnceLock<Vec<i32>>,
    /// The user's communicator was freed.
    left: AtomicBool,
    /// This process has revoked it.
    pub(super) revoked: AtomicBool,
    /// Peers need not be dlmpi.
    plain: AtomicBool,
    /// All ranks hand large blocks over by themselves.
    hands_over: AtomicBool,
    /// Whose algorithms its reductions use, where that was said of it: [`Choice::from_byte`].
    choice: AtomicU8,
}

static CREATING: Mutex<()> = Mutex::new(());
static ALL: Mutex<Vec<Weak<State>>> = Mutex::new(Vec::new());

impl State {
    /// The state of an intracommunicator; made at the first call.
    pub fn of(comm: Comm) -> Result<Arc<State>> {
        let keyval = keyval(comm)?;
        if let Some(state) = State::found(comm, keyval)? {
            return Ok(state);
        }
        let _one_at_a_time = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = State::found(comm, keyval)? {
            return Ok(state);
        }
        let mpi = comm.mpi();
        let state = Arc::new(State {
            comm,
            rank: comm.rank()? as usize,
            size: comm.size()?,
            tag_ub: mpi.tag_ub(comm.raw())?,
            sequence: AtomicU64::new(0),
            turns: Mutex::default(),
            private: Mutex::new(Private::Absent),
            duplicate: OnceLock::new(),
            receives: Mutex::default(),
            places: OnceLock::new(),
            asking: Mutex::new(None),
            arena: OnceLock::new(),
            arena_of_engine: AtomicBool::new(false),
            reach: OnceLock::new(),
            id: AtomicU64::new(0),
            members: OnceLock::new(),
            holder: AtomicUsize::new(0),
            left: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            plain: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
            choice: AtomicU8::new(Choice::UNSAID),
        });
        let value = Arc::into_raw(Arc::clone(&state)).cast_mut().cast();
        // SAFETY:
        // - the value is what `delete` expects: one strong count of an Arc<State>.
        let set = unsafe { mpi.comm_set_attr(comm.raw(), keyval, value) };
        if let Err(error) = set {
            // SAFETY:
            // - MPI did not take the value, so its strong count is still ours.
            drop(unsafe { Arc::from_raw(value.cast::<State>().cast_const()) });
            return Err(error.into());
        }
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|state| state.strong_count() > 0);
        all.push(Arc::downgrade(&state));
        Ok(state)
    }

    /// All states of this process.
    pub fn all() -> Vec<Arc<State>> {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The state of a communicator that has one.
    #[inline]
    pub fn existing(comm: Comm) -> Result<Option<Arc<State>>> {
        let asked = recent::Asked::about(comm.raw());
        if let Some(state) = asked.known() {
            return Ok(Some(state));
        }
        let found = State::found(comm, keyval(comm)?)?;
        if let Some(state) = &found {
            asked.found(state);
        }
        Ok(found)
    }

    /// The state of a communicator that this thread has used last.
    #[inline]
    pub fn known(comm: mpi_runtime::Comm) -> Option<Arc<State>> {
        recent::Asked::about(comm).known()
    }

    /// Looks at the state of a communicator that this thread has used last, without holding it. `look` calls no MPI.
    #[inline]
    pub fn look<R>(comm: mpi_runtime::Comm, look: impl FnOnce(&State) -> R) -> Option<R> {
        recent::Asked::about(comm).look(look)
    }

    fn found(comm: Comm, keyval: Keyval) -> Result<Option<Arc<State>>> {
        let Some(value) = comm.mpi().comm_get_attr(comm.raw(), keyval)? else {
            return Ok(None);
        };
        let state = value.cast::<State>().cast_const();
        // SAFETY:
        // - the attribute holds a strong count of an Arc<State> (`of`) until the communicator is freed,
        //   which must not happen during a call on it.
        unsafe {
            Arc::increment_strong_count(state);
            Ok(Some(Arc::from_raw(state)))
        }
    }

    /// The user's communicator, with what was said of it.
    pub fn comm(&self) -> Comm {
        self.comm.choosing(self.choice())
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether exactly one plain MPI call is made per collective.
    pub fn is_plain(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    /// Makes it so, or not.
    pub fn set_plain(&self, plain: bool) {
        self.plain.store(plain, Ordering::Relaxed);
    }

    /// Whether all ranks hand large blocks over by themselves.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Relaxed)
    }

    /// They do from now on, where they can use each other's memory and none gives device memory to MPI: a card cannot be
    /// read there. At the same call on every rank, after they have agreed on both; nobody else sends messages on it.
    pub fn hand_over(&self) -> Result<()> {
        let device =
            self.reach().is_none_or(Reach::anywhere) || Settings::get()?.gpu_aware == Aware::Yes;
        let can = self.peers().is_some() && !device;
        self.hands_over.store(can, Ordering::Relaxed);
        Ok(())
    }

    /// Whose algorithms reductions use, where that was said of this communicator.
    pub fn choice(&self) -> Option<Choice> {
        Choice::from_byte(self.choice.load(Ordering::Relaxed))
    }

    /// Says so.
    pub fn set_choice(&self, choice: Choice) {
        self.choice.store(choice as u8, Ordering::Relaxed);
    }

    /// The number of the call that is being made, from 1 on.
    pub fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the call that is being made has this number: another thread may have made one meanwhile.
    pub fn takes(&self, number: u64) -> bool {
        let order = Ordering::Relaxed;
        let taken = self
            .sequence
            .compare_exchange(number - 1, number, order, order);
        taken.is_ok()
    }

    /// The number of the last call.
    pub fn reached(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// The number that all ranks know this communicator by, or 0.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// What this rank proposes for that number: one that no process proposes twice, nor two of them.
    pub fn proposed_id(&self) -> Result<u64> {
        static COUNTER: AtomicU64 = AtomicU64::new(1);
        let mpi = self.comm.mpi();
        let world = mpi.comm_rank(mpi.comm_world())? as u64;
        Ok(world << 40 | COUNTER.fetch_add(1, Ordering::Relaxed))
    }

    /// All ranks know it by this number from now on.
    pub fn agree_id(&self, id: u64) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// The members' ranks in `COMM_WORLD`; `UNDEFINED` where a member is of another job.
    pub fn members(&self) -> Result<&[i32]> {
        if let Some(members) = self.members.get() {
            return Ok(members);
        }
        let comm = match self.left.load(Ordering::Acquire) {
            false => Some(self.comm.raw()),
            true => self.private_now(),
        };
        let gone = || Error::State("the communicator was freed".into());
        let members = ranks_in_world(self.comm.mpi(), comm.ok_or_else(gone)?)?;
        Ok(self.members.get_or_init(|| members))
    }

    /// Tags of the private duplicate that no call uses: for questions and for their answers.
    pub fn spare_tags(&self) -> [i32; 2] {
        [self.tag_ub, self.tag_ub - 1]
    }

    /// Where the ranks run, as far as they have agreed on it.
    pub fn place(&self) -> Place {
        self.places
            .get()
            .map_or(Place::Unknown, |known| known.place)
    }

    /// What the ranks know of each other by now, at a call after many or not.
    pub fn standing(&self, settled: bool) -> Standing {
        Standing {
            place: self.place(),
            shares: self.shares(),
            reads: self.places.get().is_some_and(|known| known.peers.is_some()),
            settled,
        }
    }

    /// Each rank's node, as far as they have agreed on it.
    pub fn nodes(&self) -> Option<Arc<[usize]>> {
        self.places.get().map(|known| Arc::clone(&known.nodes))
    }

    /// The ranks' processes, where all have found that they can read each other's memory.
    pub fn peers(&self) -> Option<Arc<Peers>> {
        self.places.get().and_then(|known| known.peers.clone())
    }

    /// Which ranks take device memory from which, as far as they have agreed on it.
    pub fn reach(&self) -> Option<&Reach> {
        self.reach.get()
    }

    /// Agrees which ranks take device memory from which, at the same blocking call on every rank.
    pub fn agree_reach(&self) -> Result<()> {
        if self.reach.get().is_none() {
            let reach = Reach::agree(self.comm)?;
            self.reach.get_or_init(|| reach);
        }
        Ok(())
    }

    /// A tag for the private duplicate that tells concurrent exchanges apart, and the phases of a call: two
    /// of the comparison, one of our own algorithm.
    pub fn tag(&self, sequence: u64, phase: u64) -> i32 {
        ((sequence * 4 + phase) % (self.tag_ub.max(1) as u64 - 1)) as i32
    }

    /// This non-blocking call's place in the order of issue.
    pub fn ticket(&self) -> u64 {
        self.turns().next_ticket()
    }

    /// Takes this number for the call that is being made, and its turn, which has come: `false`, and nothing is done, where
    /// others are still to be issued, or another thread has taken the number.
    pub fn takes_its_turn(&self, number: u64) -> bool {
        let mut turns = self.turns();
        let taken = turns.is_idle() && self.takes(number);
        if taken {
            turns.next_ticket();
        }
        taken
    }

    /// Whether it is this ticket's turn to be issued.
    pub fn is_turn(&self, ticket: u64) -> bool {
        self.turns().is_turn(ticket)
    }

    /// Whether all non-blocking calls so far were issued.
    pub fn is_idle(&self) -> bool {
        self.turns().is_idle()
    }

    /// The ticket whose turn it is was issued.
    pub fn pass_turn(&self) {
        self.turns().pass();
    }

    /// This ticket will never be issued.
    pub fn forfeit(&self, ticket: u64) {
        self.turns().forfeit(ticket);
    }

    /// The receives that look for their messages.
    pub fn receives(&self) -> MutexGuard<'_, Receives> {
        self.receives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an MPI error on the private duplicate to the error handler of the user's communicator.
    pub fn report(&self, error: Error) -> Error {
        if let (Error::Mpi(mpi_runtime::Error::Mpi(inner)), false) =
            (&error, self.left.load(Ordering::Acquire))
        {
            // What the handler returns changes nothing: the error goes up either way.
            let _ = self
                .comm
                .mpi()
                .comm_call_errhandler(self.comm.raw(), inner.code);
        }
        error
    }

    /// The user's communicator goes away, operations on the private duplicate may still be under way.
    fn leave(&self) {
        self.left.store(true, Ordering::Release);
        if private::must_wait(self.comm.mpi()) && process::alive().is_ok() {
            // Every rank that frees the communicator has started the duplicate, so it does complete; a
            // failure shows where the duplicate is used.
            let _ = self.await_pending();
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // MPI frees what is left at Finalize, and after it nothing may be called; a forked child has none of it.
        if process::alive().is_ok() {
            self.with_private(|private, mpi| private.free(mpi));
        }
    }
}

/// The world's ranks of the members of a communicator.
fn ranks_in_world(mpi: &Mpi, comm: mpi_runtime::Comm) -> Result<Vec<i32>> {
    let (mut group, mut world) = (mpi.comm_group(comm)?, mpi.comm_group(mpi.comm_world())?);
    let ranks: Vec<i32> = (0..mpi.group_size(group)?).collect();
    let members = mpi.group_translate_ranks(group, &ranks, world);
    // SAFETY:
    // - both groups were made here and are used no more. A failure leaves nothing to do.
    let _ = unsafe { (mpi.group_free(&mut group), mpi.group_free(&mut world)) };
    Ok(members?)
}

fn keyval(comm: Comm) -> Result<Keyval> {
    static KEYVAL: OnceLock<Keyval> = OnceLock::new();
    if let Some(&keyval) = KEYVAL.get() {
        return Ok(keyval);
    }
    let _one_at_a_time = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&keyval) = KEYVAL.get() {
        return Ok(keyval);
    }
    // SAFETY:
    // - only `State::of` sets values under this key, as `delete` expects them.
    let keyval = unsafe { comm.mpi().comm_create_keyval(delete) }?;
    Ok(*KEYVAL.get_or_init(|| keyval))
}

unsafe extern "C" fn delete(value: *mut c_void) {
    // SAFETY:
    // - `value` is the strong count that `State::of` gave to MPI, taken back here once.
    let state = unsafe { Arc::from_raw(value.cast::<State>().cast_const()) };
    recent::forget();
    state.leave();
}
