//! Runs the crate dlmpi's operations on several ranks. Right values are integers and closed forms; what is received
//! into is poisoned first.
//!
//!     mpiexec -n 3 facade-check             over an MPI that dlmpi starts
//!     mpiexec -n 3 facade-check --rsmpi     over a communicator of rsmpi's
//!     mpiexec -n 3 facade-check --single     MPI without threads
//!     mpiexec -n 3 facade-check --late      rank 0 never comes: DLMPI_TIMEOUT is to end the job

mod arrays;
mod hostile;
mod immediate;
mod plain;

use std::process::ExitCode;

use dlmpi::{Comm, Result};

/// One check; a panic ends the job.
type Check = fn(&Comm<'_>) -> Result<()>;

const CHECKS: [(&str, Check); 27] = [
    ("sums of every layout and size", arrays::sums),
    ("16-bit floats are added up in f32", arrays::halves),
    ("collectives move strided arrays", arrays::movements),
    (
        "reductions to one rank, scattered, and so far",
        arrays::reductions,
    ),
    ("many tensors at once", arrays::many),
    ("numbers and slices are tensors", plain::numbers),
    ("messages and their status", plain::messages),
    (
        "bad arguments are found before MPI is entered",
        plain::arguments,
    ),
    ("ranks that differ all hear of it", plain::mismatch),
    ("an error of one rank is everybody's", plain::agree),
    ("communicators are divided and freed", plain::split),
    ("threads take their turns", plain::threads),
    ("memory goes out and comes in by DLPack", plain::dlpack),
    ("requests end in any order", immediate::orders),
    (
        "dropped and forgotten requests end with the scope",
        immediate::forgotten,
    ),
    ("a panic leaves requests to the scope", immediate::panics),
    (
        "a loan that panics leaves no operation behind",
        immediate::sharp,
    ),
    ("every non-blocking collective", immediate::all),
    (
        "non-blocking scans, and collectives with a root",
        immediate::rooted,
    ),
    ("non-blocking messages", immediate::messages),
    (
        "what one rank refuses every rank hears of",
        immediate::refusals,
    ),
    (
        "errors nobody waited for come from the scope",
        immediate::unseen,
    ),
    ("what one rank does wrong all hear of", hostile::deeds),
    (
        "a panic while a tensor is lent begins nothing",
        hostile::panics,
    ),
    ("tensors without elements", hostile::nothing),
    ("shared arrays change their own copy", hostile::shared),
    ("elements and errors of other types", hostile::own_types),
];

fn run(comm: &Comm<'_>) -> Result<()> {
    if std::env::args().any(|argument| argument == "--late") {
        comm.watch()?;
        comm.barrier()?;
        while comm.rank() == 0 {
            std::thread::park();
        }
        return comm.all_reduce(&mut [1f32; 5], dlmpi::Op::Sum);
    }
    for (name, check) in CHECKS {
        check(comm)?;
        comm.barrier()?;
        if comm.rank() == 0 {
            println!("ok {name}");
        }
    }
    if comm.rank() == 0 {
        let passed = CHECKS.len();
        println!("test result: ok. {passed} passed; 0 failed; 0 ignored");
    }
    Ok(())
}

fn over_dlmpi() -> Result<()> {
    let universe = dlmpi::initialize()?;
    run(&universe.world())
}

fn over_rsmpi() -> Result<()> {
    let started = mpi::initialize_with_threading(mpi::Threading::Multiple);
    let (universe, _) = started.expect("MPI was not started before");
    let world = universe.world();
    let comm = Comm::from_rsmpi(&world)?;
    comm.return_errors()?;
    run(&comm)
}

fn without_threads() -> Result<()> {
    let universe = mpi::initialize().expect("MPI was not started before");
    let world = universe.world();
    hostile::without_threads(&Comm::from_rsmpi(&world)?)
}

fn main() -> ExitCode {
    // A panic of one rank must not leave the others waiting: dlmpi's universe ends the job, rsmpi's does not.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::exit(101);
    }));
    let result = match std::env::args().nth(1).as_deref() {
        Some("--single") => without_threads(),
        _ if std::env::args().any(|argument| argument == "--rsmpi") => over_rsmpi(),
        _ => over_dlmpi(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            // Not the long way round by MPI_Finalize, in which the others would be waited for.
            std::process::exit(3)
        }
    }
}
