//! What the engine's thread does for the watch, in steps between which it works on operations: answers
//! questions, asks where a wait has run out, reports, and ends the job.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::arrivals::{Arrivals, Heard, Late, Reply};
use super::inquiry::{Answer, Line, Question, digest, tell, traced};
use super::{About, Wait, report, waits};
use crate::error::{Error, Result};

/// How long ranks may think about a question.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between the report and the end of the job: the others report in that time.
const GRACE: Duration = Duration::from_millis(1500);
/// Between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

static REQUESTS: Mutex<Vec<(About, Arc<Reply>)>> = Mutex::new(Vec::new());

/// Asks for a thread that waits.
pub(super) fn request(about: About, reply: Arc<Reply>) {
    let mut requests = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    requests.push((about, reply));
}

/// Whom the answers are for.
enum Purpose {
    Report(Box<Wait>),
    Reply(Arc<Reply>),
}

/// One question to the members of a communicator.
struct Inquiry {
    token: u64,
    members: Vec<i32>,
    own: usize,
    sequence: u64,
    answers: Vec<Option<Answer>>,
    since: Instant,
    purpose: Purpose,
}

/// The state of the watch, on the engine's thread.
#[derive(Default)]
pub(crate) struct Watcher {
    line: Option<Line>,
    inquiries: Vec<Inquiry>,
    tokens: u64,
    next: Option<Instant>,
    end: Option<Instant>,
}

impl Watcher {
    /// Looks, if it is time to.
    pub fn step(&mut self) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + PERIOD);
        if self.end.is_some_and(|end| now >= end) {
            report::end_the_job();
        }
        let Some(mpi) = mpi_runtime::Mpi::global() else {
            return;
        };
        if self.line.is_none() && super::ANSWERING.load(std::sync::atomic::Ordering::Acquire) {
            self.line = crate::engine::allowed(mpi)
                .ok()
                .and_then(|()| Line::open(mpi));
        }
        // A line that fails is no use any more; those who wait learn that nobody could be asked.
        if self.talk().is_err() {
            self.line = None;
        }
        self.look(now);
        let asked: Vec<_> = {
            let mut requests = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
            requests.drain(..).collect()
        };
        for (about, reply) in asked {
            self.inquire(&about, Purpose::Reply(reply), false);
        }
        self.close(now);
    }

    /// Answers what was asked and takes what was answered.
    fn talk(&mut self) -> Result<()> {
        let Some(line) = &mut self.line else {
            return Ok(());
        };
        while let Some((rank, question)) = line.question()? {
            line.answer(rank, &tell(&question))?;
            if question.expired {
                expire(&question);
            }
        }
        while let Some((rank, answer)) = line.reply()? {
            let inquiry = self.inquiries.iter_mut().find(|i| i.token == answer.token);
            if let Some(inquiry) = inquiry
                && let Some(member) = inquiry.members.iter().position(|&m| m == rank)
            {
                inquiry.answers[member] = Some(answer);
            }
        }
        Ok(())
    }

    /// Asks about the waits that have run out.
    fn look(&mut self, now: Instant) {
        let run_out: Vec<Wait> = waits()
            .iter_mut()
            .filter(|wait| {
                let age = now.saturating_duration_since(wait.about.since);
                !wait.reported && wait.limit.is_some_and(|limit| age >= limit)
            })
            .map(|wait| {
                wait.reported = true;
                wait.clone()
            })
            .collect();
        for wait in run_out {
            let about = wait.about.clone();
            self.inquire(&about, Purpose::Report(Box::new(wait)), true);
        }
    }

    fn inquire(&mut self, about: &About, purpose: Purpose, expired: bool) {
        self.tokens += 1;
        let token = self.tokens;
        match self.put(about, token, expired) {
            Ok((members, own)) => self.inquiries.push(Inquiry {
                token,
                answers: vec![None; members.len()],
                members,
                own,
                sequence: about.sequence,
                since: Instant::now(),
                purpose,
            }),
            Err(why) => {
                let unasked = Arrivals {
                    unasked: Some(why.to_string()),
                    ..Arrivals::default()
                };
                self.done(purpose, unasked);
            }
        }
    }

    /// Sends the question; the members and this rank's place among them.
    fn put(&mut self, about: &About, token: u64, expired: bool) -> Result<(Vec<i32>, usize)> {
        let nobody = |why: &str| Error::State(why.to_owned());
        let state = about.state.upgrade();
        let state = state.ok_or_else(|| {
            nobody("calls on this communicator are not numbered, or it was freed")
        })?;
        let line = self.line.as_mut().ok_or_else(|| {
            nobody(
                "this needs DLMPI_TIMEOUT, MPI_THREAD_MULTIPLE and `dlmpi.MPI` imported (Rust: dlmpi::initialize or Comm::watch) on every rank of the job",
            )
        })?;
        let members = state.members()?.to_vec();
        let question = Question {
            token,
            id: state.id(),
            members: digest(&members),
            sequence: about.sequence,
            expired,
        };
        let undefined = state.comm().mpi().constants().undefined;
        for (rank, &member) in members.iter().enumerate() {
            if rank != state.rank() && member != undefined {
                line.ask(member, question)?;
            }
        }
        Ok((members, state.rank()))
    }

    /// Ends inquiries that are answered, or have waited long enough.
    fn close(&mut self, now: Instant) {
        let done: Vec<Inquiry> = self
            .inquiries
            .extract_if(.., |inquiry| {
                inquiry.is_answered() || now >= inquiry.since + PATIENCE
            })
            .collect();
        for inquiry in done {
            let arrivals = inquiry.arrivals();
            self.done(inquiry.purpose, arrivals);
        }
    }

    fn done(&mut self, purpose: Purpose, arrivals: Arrivals) {
        let wait = match purpose {
            Purpose::Reply(reply) => return reply.give(arrivals),
            Purpose::Report(wait) => wait,
        };
        let mut waits = waits();
        let Some(present) = waits.iter_mut().find(|present| present.key == wait.key) else {
            // It has ended after all.
            return;
        };
        let debugged = arrivals.debugged() || traced();
        if debugged {
            present.about.since = Instant::now();
            present.reported = false;
        }
        drop(waits);
        report::print(&wait, &arrivals, debugged);
        if !debugged {
            self.end.get_or_insert_with(|| Instant::now() + GRACE);
        }
    }
}

impl Inquiry {
    fn is_answered(&self) -> bool {
        let mut others = self.answers.iter().enumerate();
        others.all(|(rank, answer)| rank == self.own || answer.is_some())
    }

    fn arrivals(&self) -> Arrivals {
        let mut found = Arrivals::default();
        for (rank, answer) in self.answers.iter().enumerate() {
            match answer {
                _ if rank == self.own => found.arrived.push(rank),
                Some(answer) => {
                    let late = answer.reached < self.sequence;
                    if !late {
                        found.arrived.push(rank);
                    }
                    let rank = Late {
                        rank,
                        heard: Heard::Answer {
                            reached: answer.reached,
                            doing: answer.doing.clone(),
                            stack: answer.stack.clone(),
                            debugged: answer.debugged,
                        },
                    };
                    match (late, answer.inside) {
                        (true, _) => found.late.push(rank),
                        (false, false) => found.left.push(rank),
                        (false, true) => {}
                    }
                }
                None if self.members.get(rank).is_some_and(|&member| member < 0) => {
                    found.late.push(Late {
                        rank,
                        heard: Heard::Elsewhere,
                    });
                }
                None => found.late.push(Late {
                    rank,
                    heard: Heard::Silence,
                }),
            }
        }
        found
    }
}

/// The wait of another rank in the same call has run out, so this rank's has too.
fn expire(question: &Question) {
    // Looking for the communicator may call MPI: not while others want the list.
    let meant: Vec<u64> = {
        let all = waits().clone();
        let of = all.iter().filter(|wait| question.is_of(&wait.about));
        of.map(|wait| wait.key).collect()
    };
    for wait in waits().iter_mut() {
        if meant.contains(&wait.key) {
            wait.limit = Some(Duration::ZERO);
        }
    }
}
