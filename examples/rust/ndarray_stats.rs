//! Mean and covariance of a data set whose rows are spread over the ranks.
//!
//!     cargo run -p dlmpi-examples --bin ndarray_stats
//!     mpiexec -n 3 target/debug/ndarray_stats [file.csv]
//!
//! The default is Fisher's iris data (1936): 150 flowers, four lengths each. Rank 0 reads the file; the others get
//! their rows by `scatter`, and no rank but 0 ever holds them all.

use std::process::ExitCode;

use dlmpi::ndarray::{Array1, Array2, ArrayView2, Axis, s};
use dlmpi::{Comm, Op, Result, Tensor};

const IRIS: &str = include_str!("data/iris.csv");

/// The numbers of a CSV file with one line of names.
fn parse(text: &str) -> std::result::Result<Array2<f64>, String> {
    let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    let rows: Vec<Vec<f64>> = lines
        .map(|line| line.split(',').map(|cell| cell.trim().parse()).collect())
        .collect::<std::result::Result<_, std::num::ParseFloatError>>()
        .map_err(|error| format!("the file holds something else than numbers: {error}"))?;
    let columns = rows.first().map_or(0, Vec::len);
    Array2::from_shape_vec((rows.len(), columns), rows.into_iter().flatten().collect())
        .map_err(|_| "the lines of the file have different lengths".to_owned())
}

/// Spreads the rows of rank 0's table; the last ranks may get one row less.
fn spread(world: &Comm<'_>, table: Option<Array2<f64>>) -> Result<Array2<f64>> {
    let mut shape = table
        .as_ref()
        .map_or([0, 0], |t| [t.nrows() as u64, t.ncols() as u64]);
    world.broadcast(&mut shape, 0)?;
    let [rows, columns] = shape.map(|n| n as usize);
    let each = rows.div_ceil(world.size());
    // Blocks are equal, so the table is filled up with rows that are cut off again.
    let padded = table.map(|table| {
        let mut padded = Array2::zeros((each * world.size(), columns));
        padded.slice_mut(s![..rows, ..]).assign(&table);
        padded
    });
    let mut mine = Array2::zeros((each, columns));
    world.scatter(padded.as_ref().map(|t| t as &dyn Tensor), &mut mine, 0)?;
    let first = each * world.rank() as usize;
    let held = rows.saturating_sub(first).min(each);
    Ok(mine.slice_move(s![..held, ..]))
}

/// Mean and covariance (divided by n - 1) of the rows of all ranks together.
fn statistics(world: &Comm<'_>, rows: ArrayView2<'_, f64>) -> Result<(Array1<f64>, Array2<f64>)> {
    let mut count = rows.nrows() as f64;
    let mut mean = rows.sum_axis(Axis(0));
    world.all_reduce_many::<dyn dlmpi::TensorMut>([&mut count as _, &mut mean as _], Op::Sum)?;
    mean /= count;
    let centred = &rows - &mean;
    let mut covariance = centred.t().dot(&centred);
    world.all_reduce(&mut covariance, Op::Sum)?;
    covariance /= count - 1.0;
    Ok((mean, covariance))
}

fn run() -> Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    // Only rank 0 can fail here; `agree` makes that everybody's error.
    let table = world.agree(if world.rank() == 0 {
        match std::env::args().nth(1) {
            None => parse(IRIS).map(Some),
            Some(path) => std::fs::read_to_string(&path)
                .map_err(|error| format!("{path}: {error}"))
                .and_then(|text| parse(&text).map(Some)),
        }
    } else {
        Ok(None)
    })?;
    let mine = spread(&world, table)?;
    let (mean, covariance) = statistics(&world, mine.view())?;
    if world.rank() == 0 {
        println!("mean {mean:.6}");
        println!("covariance\n{covariance:.6}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
