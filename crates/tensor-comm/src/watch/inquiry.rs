//! Questions among the ranks of `COMM_WORLD`, and their answers, as messages on its private duplicate: how
//! far is your count of collectives on this communicator, and what are you doing?
//!
//! Only the engine's thread is here, which asks and answers between other work and never waits.

use std::time::Instant;

use mpi_runtime::{Comm, Mpi, Request, StatusBuf, StatusPtr};

use super::{About, stack, waits};
use crate::error::Result;
use crate::ground::state::State;
use crate::wiretype::byte;

/// A question: numbers, in this order.
const QUESTION: usize = 6;
/// An answer is cut at this many bytes.
const ANSWER: usize = 16 << 10;
/// Words of debuggers in a Python stack.
const DEBUGGERS: [&str; 4] = ["/bdb.py\"", "/pdb.py\"", "pydevd", "debugpy"];

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub token: u64,
    /// The communicator, by its number where all ranks have agreed on one (else 0), and by its members.
    pub id: u64,
    pub members: u64,
    pub sequence: u64,
    /// The asking rank's wait has run out, so that of everybody in the same call has.
    pub expired: bool,
}

impl Question {
    /// Whether it is this communicator that is meant.
    fn is_about(&self, state: &State) -> bool {
        match state.id() {
            0 => state.members().is_ok_and(|m| digest(m) == self.members),
            id => id == self.id,
        }
    }

    /// Whether it is this call that is meant.
    pub fn is_of(&self, about: &About) -> bool {
        about.sequence == self.sequence
            && about
                .state
                .upgrade()
                .is_some_and(|state| self.is_about(&state))
    }
}

/// What comes back.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub token: u64,
    pub reached: u64,
    /// The call that was asked about is under way there.
    pub inside: bool,
    pub debugged: bool,
    pub doing: String,
    pub stack: String,
}

/// The messages.
pub(super) struct Line {
    mpi: &'static Mpi,
    comm: Comm,
    tags: [i32; 2],
    /// Messages that have not left yet, and their bytes.
    leaving: Vec<(Request, Box<[u8]>)>,
}

impl Line {
    /// On the private duplicate of `COMM_WORLD`, if it is there already.
    pub fn open(mpi: &'static Mpi) -> Option<Line> {
        let world = State::of(crate::Comm::new(mpi, mpi.comm_world()).ok()?).ok()?;
        Some(Line {
            mpi,
            comm: world.private_now()?,
            tags: world.spare_tags(),
            leaving: Vec::new(),
        })
    }

    /// Asks a rank of `COMM_WORLD`.
    pub fn ask(&mut self, rank: i32, question: Question) -> Result<()> {
        let numbers: [u64; QUESTION] = [
            question.token,
            question.id,
            question.members,
            question.sequence,
            question.expired.into(),
            0,
        ];
        let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.post(rank, 0, bytes)
    }

    /// Answers a rank of `COMM_WORLD`.
    pub fn answer(&mut self, rank: i32, answer: &Answer) -> Result<()> {
        let (inside, debugged) = (answer.inside.into(), answer.debugged.into());
        let mut bytes: Vec<u8> = [answer.token, answer.reached, inside, debugged]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        bytes.extend(answer.doing.bytes().filter(|&byte| byte != 0));
        bytes.push(0);
        bytes.extend(answer.stack.bytes());
        bytes.truncate(ANSWER);
        self.post(rank, 1, bytes.into())
    }

    /// The next question that has come, and who asks.
    pub fn question(&mut self) -> Result<Option<(i32, Question)>> {
        let Some((rank, bytes)) = self.next(0)? else {
            return Ok(None);
        };
        let numbers: Vec<u64> = words(&bytes);
        Ok(match numbers[..] {
            [token, id, members, sequence, expired, _] => Some((
                rank,
                Question {
                    token,
                    id,
                    members,
                    sequence,
                    expired: expired != 0,
                },
            )),
            _ => None,
        })
    }

    /// The next answer that has come, and from whom.
    pub fn reply(&mut self) -> Result<Option<(i32, Answer)>> {
        let Some((rank, bytes)) = self.next(1)? else {
            return Ok(None);
        };
        let (numbers, text) = bytes.split_at(bytes.len().min(32));
        let [token, reached, inside, debugged] = words(numbers)[..] else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(text);
        let (doing, stack) = text.split_once('\0').unwrap_or((&text, ""));
        Ok(Some((
            rank,
            Answer {
                token,
                reached,
                inside: inside != 0,
                debugged: debugged != 0,
                doing: doing.to_owned(),
                stack: stack.to_owned(),
            },
        )))
    }

    fn post(&mut self, rank: i32, tag: usize, bytes: Box<[u8]>) -> Result<()> {
        self.leaving.retain_mut(|(request, _)| {
            // SAFETY:
            // - the request is ours, and completed nowhere else. One that fails is let go with its bytes kept.
            !unsafe { self.mpi.test(request, StatusPtr::ignore()) }.unwrap_or(false)
        });
        let (mpi, tag) = (self.mpi, self.tags[tag]);
        // SAFETY:
        // - the bytes are on the heap and stay in `leaving` until they have left (`Drop` leaks the rest).
        let request = unsafe {
            mpi.isend(
                bytes.as_ptr(),
                bytes.len() as i64,
                byte(mpi),
                rank,
                tag,
                self.comm,
            )
        }?;
        self.leaving.push((request, bytes));
        Ok(())
    }

    fn next(&mut self, tag: usize) -> Result<Option<(i32, Vec<u8>)>> {
        let (mpi, tag) = (self.mpi, self.tags[tag]);
        let mut status = StatusBuf::new();
        let any = mpi.constants().any_source;
        // SAFETY:
        // - the status is our own and writable.
        let message = unsafe { mpi.improbe(any, tag, self.comm, status.as_ptr()) }?;
        let Some(mut message) = message else {
            return Ok(None);
        };
        // SAFETY:
        // - the probe has filled the status.
        let (rank, size) = unsafe {
            let size = mpi.get_count(status.as_ptr(), byte(mpi))?;
            (mpi.status_source(status.as_ptr()), size.unwrap_or(0))
        };
        let mut bytes = vec![0; size as usize];
        // SAFETY:
        // - there is room for the whole message, which was matched here and is received once.
        unsafe {
            mpi.mrecv(
                bytes.as_mut_ptr(),
                size,
                byte(mpi),
                &mut message,
                StatusPtr::ignore(),
            )
        }?;
        Ok(Some((rank, bytes)))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // MPI may still read them.
        self.leaving
            .drain(..)
            .for_each(|(_, bytes)| std::mem::forget(bytes));
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
        .collect()
}

/// The answer of this process.
pub(super) fn tell(question: &Question) -> Answer {
    let reached = State::all()
        .iter()
        .filter(|state| question.is_about(state))
        .map(|state| state.reached())
        .max()
        .unwrap_or(0);
    let inside = waits().iter().any(|wait| question.is_of(&wait.about));
    let late = reached < question.sequence;
    let stack = if inside { String::new() } else { stack() };
    let doing: Vec<String> = waits().iter().map(|wait| under_way(&wait.about)).collect();
    let doing = match doing.is_empty() {
        true => "it is in no collective of dlmpi".to_owned(),
        false => format!("it is in {}", doing.join(" and in ")),
    };
    Answer {
        token: question.token,
        reached,
        inside,
        debugged: late && (traced() || DEBUGGERS.iter().any(|word| stack.contains(word))),
        doing: format!("process {}: {doing}", std::process::id()),
        stack,
    }
}

/// A collective and its age.
pub(super) fn under_way(about: &About) -> String {
    let age = Instant::now().saturating_duration_since(about.since);
    format!(
        "{}{} for {:.1} s",
        about.brief,
        number_words(about.sequence),
        age.as_secs_f64()
    )
}

pub(super) fn number_words(sequence: u64) -> String {
    match sequence {
        0 => String::new(),
        n => format!(" (collective number {n})"),
    }
}

/// Whether another process traces this one: gdb and its like.
pub(super) fn traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// FNV-1a over the members: equal lists give equal words.
pub(super) fn digest(members: &[i32]) -> u64 {
    members
        .iter()
        .flat_map(|rank| rank.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
