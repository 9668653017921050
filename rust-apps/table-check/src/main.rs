//! Opens a libmpi at run time, without rsmpi and without Python, and calls every method of the table
//! at least once, on two ranks or more, comparing results with closed forms.
//!
//!     mpiexec -n 2 table-check [--mpi LIBMPI] [--values VALUES_SO] [--large]
//!     table-check --emit-values > values.c
//!
//! `--values` names a library built from `--emit-values` with the headers of that MPI: every constant
//! is then compared with what a C compiler makes of them. `--large` sends more than 2^31 bytes in one
//! message and needs about 5 GB of memory per rank.

mod attributes;
mod collectives;
mod communicators;
mod datatypes;
mod environment;
mod errors;
mod far;
mod generalized;
mod immediate;
mod large;
mod large_counts;
mod messages;
mod operations;
mod requests;
mod suite;
mod values;
mod vectors;

use mpi_runtime::{Mpi, ThreadLevel};
use std::path::PathBuf;
use std::process::ExitCode;
use suite::Suite;

fn main() -> ExitCode {
    let mut library = None;
    let mut values = None;
    let mut large = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--mpi" => library = arguments.next().map(PathBuf::from),
            "--values" => values = arguments.next().map(PathBuf::from),
            "--large" => large = true,
            "--emit-values" => {
                print!("{}", values::source());
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("unknown argument {other}; see the first lines of main.rs");
                return ExitCode::from(2);
            }
        }
    }
    let mpi = match Mpi::open(library.as_deref()) {
        Ok(mpi) => mpi,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    run(mpi, library.as_deref(), values.as_deref(), large)
}

fn run(
    mpi: &'static Mpi,
    library: Option<&std::path::Path>,
    values: Option<&std::path::Path>,
    large: bool,
) -> ExitCode {
    environment::before_init(mpi, library);
    let provided = mpi
        .init_thread(ThreadLevel::Multiple)
        .expect("MPI_Init_thread");
    let mut suite = Suite::new(mpi);
    suite.announce(provided);

    suite.check("environment", environment::after_init);
    match values {
        Some(values) => suite.check("constants and handles against the C headers", |c| {
            values::compare(c, values)
        }),
        None => suite.ignore(
            "constants and handles against the C headers",
            "no --values library was given",
        ),
    }
    messages::all(&mut suite);
    requests::all(&mut suite);
    collectives::all(&mut suite);
    immediate::all(&mut suite);
    vectors::all(&mut suite);
    communicators::all(&mut suite);
    attributes::all(&mut suite);
    datatypes::all(&mut suite);
    operations::all(&mut suite);
    generalized::all(&mut suite);
    errors::all(&mut suite);
    large_counts::all(&mut suite);
    if large {
        large::all(&mut suite);
    } else {
        suite.ignore("more than 2^31 bytes in one call", "no --large was given");
    }
    attributes::before_finalize(&mut suite);
    let code = suite.finish();
    attributes::after_finalize();
    code
}
