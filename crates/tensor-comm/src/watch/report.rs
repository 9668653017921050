//! What a rank prints when its collective takes too long, and the end of the job.
//!
//! Written by one system call, each line with the rank in front, so that what several ranks write stays
//! readable.

use std::fmt::Write as _;
use std::time::Duration;

use mpi_runtime::Mpi;

use super::arrivals::{Arrivals, Heard};
use super::inquiry::number_words;
use super::{EXIT_CODE, STACK, Wait, stack};

/// Stacks of late ranks that are printed at most.
const STACKS: usize = 8;
/// How long `MPI_Abort` may take.
const LAST: Duration = Duration::from_secs(5);

/// Prints the report of one wait.
pub(super) fn print(wait: &Wait, arrivals: &Arrivals, debugged: bool) {
    // The communicator itself may be gone: a window outlives it.
    let (rank, size) = match wait.about.state.upgrade() {
        Some(state) => (state.rank(), state.size()),
        None => match (wait.comm.rank(), wait.comm.size()) {
            (Ok(rank), Ok(size)) => (rank as usize, size),
            _ => (0, 0),
        },
    };
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "dlmpi: {}{} on a communicator of {size} ranks does not end: rank {rank} waits for {:.1} s",
        wait.about.brief,
        number_words(wait.about.sequence),
        wait.about.since.elapsed().as_secs_f64(),
    );
    if let Some(line) = called_at(
        &stack(),
        wait.thread,
        STACK.get().map_or("", |stack| &stack.own),
    ) {
        let _ = writeln!(text, "  called at {line}");
    }
    if let Some(why) = &arrivals.unasked {
        let _ = writeln!(text, "  which ranks are late is not known: {why}");
    } else if arrivals.late.is_empty() {
        text.push_str("  every rank has made this call, and yet it does not end\n");
    }
    for late in &arrivals.late {
        let _ = writeln!(text, "  not arrived: {late}");
    }
    // Where some are late, those that are through with their part are no news.
    let left = match arrivals.late.is_empty() {
        true => &arrivals.left[..],
        false => &[],
    };
    for left in left {
        let _ = writeln!(
            text,
            "  no longer in it, since it failed there or its part is done: {left}"
        );
    }
    // One of those that wait shows the stacks for all.
    if arrivals.arrived.first() == Some(&rank) {
        for late in arrivals.late.iter().chain(left).take(STACKS) {
            if let Heard::Answer { stack, .. } = &late.heard
                && !stack.is_empty()
            {
                let _ = writeln!(text, "  the Python stack of rank {}:", late.rank);
                stack.lines().for_each(|line| {
                    let _ = writeln!(text, "    {line}");
                });
            }
        }
    }
    let _ = match debugged {
        true => writeln!(text, "  a debugger is at work, so the job goes on"),
        false => writeln!(text, "  the job is ended with exit code {EXIT_CODE}"),
    };
    let label = world_rank().map_or_else(String::new, |rank| format!("[rank {rank}] "));
    let lines: Vec<String> = text
        .lines()
        .map(|line| format!("{label}{line}\n"))
        .collect();
    write(lines.concat().as_bytes());
}

fn world_rank() -> Option<i32> {
    let mpi = Mpi::global()?;
    mpi.comm_rank(mpi.comm_world()).ok()
}

/// Writes all to standard error, past every lock that another thread may hold.
fn write(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY:
        // - the bytes are readable for as long as the call takes.
        let written = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => bytes = bytes.get(written..).unwrap_or_default(),
            _ => return,
        }
    }
}

/// The innermost frame of a thread that is not dlmpi's own, as `file:line in function`.
fn called_at(stack: &str, thread: usize, own: &str) -> Option<String> {
    let head = format!("{thread:x} ");
    let mut lines = stack.lines().skip_while(|line| {
        !(line.contains("hread 0x")
            && line
                .split("0x")
                .nth(1)
                .is_some_and(|l| l.trim_start_matches('0').starts_with(&head)))
    });
    lines.next()?;
    let frame = lines
        .take_while(|line| line.starts_with("  File"))
        .find(|line| own.is_empty() || !line.contains(own))?;
    let mut parts = frame.trim().trim_start_matches("File ").splitn(3, ", ");
    let (file, line) = (parts.next()?.trim_matches('"'), parts.next()?);
    let line = line.trim_start_matches("line ");
    let (line, function) = line.split_once(" in ").unwrap_or((line, "?"));
    Some(format!("{file}:{line} in {function}"))
}

/// Ends all processes of the job.
pub(super) fn end_the_job() -> ! {
    let ended = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(LAST);
        leave()
    });
    match Mpi::global() {
        Some(mpi) if crate::engine::allowed(mpi).is_ok() && ended.is_ok() => {
            mpi.abort(mpi.comm_world(), EXIT_CODE)
        }
        // Launchers end the others when one process leaves without MPI_Finalize.
        _ => leave(),
    }
}

fn leave() -> ! {
    // SAFETY:
    // - it ends the process at once: nothing of it is used any more.
    unsafe { libc::_exit(EXIT_CODE) }
}

#[cfg(test)]
mod tests {
    use super::called_at;

    #[test]
    fn the_users_frame_of_a_thread_is_found() {
        let stack = "Thread 0x00007f00000000ab (most recent call first):\n  File \"/a/other.py\", line 3 in idle\n\n\
            Thread 0x00007f0000000abc (most recent call first):\n  File \"/x/dlmpi/functional.py\", line 9 in allreduce\n  \
            File \"/x/train.py\", line 12 in step\n  File \"/x/train.py\", line 40 in <module>\n";
        assert_eq!(
            called_at(stack, 0x7f00_0000_0abc, "/x/dlmpi/").as_deref(),
            Some("/x/train.py:12 in step")
        );
        assert_eq!(
            called_at(stack, 0x7f00_0000_00ab, "").as_deref(),
            Some("/a/other.py:3 in idle")
        );
        assert_eq!(called_at(stack, 0xdead, ""), None);
    }
}
