//! The file of one rank: Chrome's trace format as an array, one event per line, so that it can be read at
//! any time, whatever became of the process. Only the writer's thread and [`stop`] write.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{EVENTS, Event, ON, What, clock, now};
use crate::brief::op_name;
use crate::error::{Error, Result};
use crate::ground::process;

/// Between two writes.
const PERIOD: Duration = Duration::from_millis(100);

static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Who writes.
#[derive(Debug, Clone)]
pub struct Header {
    /// Rank in `COMM_WORLD`.
    pub rank: usize,
    /// Ranks there.
    pub size: usize,
    /// The node, and a number of its boot: processes with the same ones share a clock.
    pub node: String,
    /// The MPI library.
    pub library: String,
}

/// Starts to trace into a new file.
///
/// # Errors
/// [`Error::State`] with the operating system's words.
pub fn start(path: &Path, header: &Header) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::State(format!("DLMPI_TRACE: {}: {error}", path.display()));
    let mut file = File::create(path).map_err(failed)?;
    file.write_all(head(header).as_bytes()).map_err(failed)?;
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    // First, since the thread ends as soon as it is off.
    ON.store(true, Ordering::Release);
    process::at_finalize(stop);
    std::thread::Builder::new()
        .name("dlmpi-trace".into())
        .spawn(|| {
            while ON.load(Ordering::Acquire) {
                std::thread::sleep(PERIOD);
                write(false);
            }
        })
        .map(drop)
        .map_err(failed)
        .inspect_err(|_| stop())
}

/// Ends the trace: everything is in the file, which is closed. Safe to call more than once. The file of a
/// forked child is its parent's.
pub fn stop() {
    if process::forked().is_none() && ON.swap(false, Ordering::AcqRel) {
        write(true);
    }
}

/// What everybody who reads the file must know.
fn head(header: &Header) -> String {
    let Header {
        rank,
        size,
        node,
        library,
    } = header;
    // Both clocks at once, as nearly as can be.
    let (monotonic, real) = (now(), clock(libc::CLOCK_REALTIME));
    format!(
        "[\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{rank},\"args\":{{\"name\":\"rank {rank}\"}}}},\n\
         {{\"ph\":\"M\",\"name\":\"dlmpi\",\"pid\":{rank},\"args\":{{\"rank\":{rank},\"size\":{size},\"node\":{},\"library\":{},\
         \"process\":{},\"monotonic_ns\":{monotonic},\"real_ns\":{real}}}}},\n",
        quoted(node),
        quoted(library),
        std::process::id()
    )
}

fn write(last: bool) {
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let events = std::mem::take(&mut *EVENTS.lock().unwrap_or_else(PoisonError::into_inner));
    let Some(open) = file.as_mut() else {
        return;
    };
    let mut text: String = events.iter().map(line).collect();
    if last {
        text += "{\"ph\":\"M\",\"name\":\"dlmpi_end\",\"args\":{}}\n]\n";
    }
    // A full disk must not end the program: the file keeps what it has.
    if open.write_all(text.as_bytes()).is_err() || last {
        *file = None;
    }
}

/// The line, or two, of an event.
fn line(event: &Event) -> String {
    let Event {
        what,
        start,
        end,
        thread,
    } = event;
    let at = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    let place = format!("\"pid\":{},\"tid\":{thread}", rank());
    let (brief, numbered, taken, flight, failed) = match what {
        What::Note(words) => {
            return format!(
                "{{\"ph\":\"X\",\"cat\":\"user\",\"name\":{},{place},\"ts\":{},\"dur\":{}}},\n",
                quoted(words),
                at(*start),
                at(end.saturating_sub(*start))
            );
        }
        What::Foreign { name, failed } => {
            let failed = if *failed { ",\"failed\":true" } else { "" };
            return format!(
                "{{\"ph\":\"X\",\"cat\":\"mpi4py\",\"name\":{},{place},\"ts\":{},\"dur\":{},\
                 \"args\":{{\"path\":\"mpi4py\",\"algorithm\":\"mpi4py\"{failed}}}}},\n",
                quoted(name),
                at(*start),
                at(end.saturating_sub(*start))
            );
        }
        What::Operation {
            brief,
            numbered,
            taken,
            flight,
            failed,
        } => (brief, numbered, taken, flight, failed),
    };
    let mut args = format!(
        "\"bytes\":{},\"path\":\"{}\",\"algorithm\":\"{}\"",
        brief.bytes(),
        taken.path(),
        taken.algorithm
    );
    let mut add = |text: String| {
        args.push(',');
        args.push_str(&text);
    };
    if let Some(dtype) = brief.dtype {
        add(format!("\"dtype\":{}", quoted(&dtype.to_string())));
    }
    if let Some(op) = brief.op {
        add(format!("\"op\":{}", quoted(&op_name(op))));
    }
    if let Some(root) = brief.root {
        add(format!("\"root\":{root}"));
    }
    if let Some(peer) = brief.peer {
        add(format!("\"peer\":{peer}"));
    }
    if let Some(tensors) = brief.tensors {
        add(format!("\"tensors\":{tensors}"));
    }
    if let Some((state, number)) = numbered {
        add(format!(
            "\"comm\":{},\"ranks\":{},\"call\":{number}",
            state.id(),
            state.size()
        ));
    }
    if *failed {
        add("\"failed\":true".to_owned());
    }
    let name = match (flight, brief.peer) {
        (Some(_), None) => quoted(&format!("I{}", brief.name.to_lowercase())),
        _ => quoted(brief.name),
    };
    let kind = match numbered.is_some() || brief.peer.is_none() {
        true => "collective",
        false => "message",
    };
    match flight {
        None => format!(
            "{{\"ph\":\"X\",\"cat\":\"{kind}\",\"name\":{name},{place},\"ts\":{},\"dur\":{},\"args\":{{{args}}}}},\n",
            at(*start),
            at(end.saturating_sub(*start))
        ),
        Some(number) => format!(
            "{{\"ph\":\"b\",\"cat\":\"{kind}\",\"name\":{name},\"id\":{number},{place},\"ts\":{},\"args\":{{{args}}}}},\n\
             {{\"ph\":\"e\",\"cat\":\"{kind}\",\"name\":{name},\"id\":{number},{place},\"ts\":{}}},\n",
            at(*start),
            at(*end)
        ),
    }
}

fn rank() -> i32 {
    static RANK: std::sync::OnceLock<i32> = std::sync::OnceLock::new();
    *RANK.get_or_init(|| {
        let mpi = mpi_runtime::Mpi::global();
        mpi.and_then(|mpi| mpi.comm_rank(mpi.comm_world()).ok())
            .unwrap_or(0)
    })
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_json() {
        assert_eq!(quoted("a\"b\\c\nä"), "\"a\\\"b\\\\c\\u000aä\"");
    }
}
