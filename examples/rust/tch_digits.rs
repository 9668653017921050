//! Data-parallel training of a tch model on handwritten digits, compared with the same training in one process.
//!
//!     mpiexec -n 3 tch_digits digits.csv
//!
//! The file has one line per picture: 64 grey values from 0 to 16, then the digit (scikit-learn's `load_digits`;
//! `make rust-demo` writes it). Every rank takes its share of each batch and averages the gradients; rank 0 trains a
//! second model of the same start alone, on whole batches. Fails where the two losses part, or below 93 % accuracy.

use std::process::ExitCode;

use dlmpi::tch::torch::nn::{self, Module, Optimizer, OptimizerConfig, VarStore};
use dlmpi::tch::torch::{Device, Kind, Tensor};
use dlmpi::tch::{average_grads, broadcast_vars};
use dlmpi::{Comm, Op, Result};

/// Pictures per step: divisible by 2, 3 and 4 ranks.
const BATCH: i64 = 120;
const EPOCHS: usize = 20;
/// The last pictures are kept for the test.
const TEST: i64 = 297;
/// A prime, so that its multiples reach every row.
const STRIDE: i64 = 611_953;
/// Largest relative difference of the two losses: sums of float32 in another order.
const TOLERANCE: f64 = 1e-3;

/// A model with its variables and optimiser.
struct Training {
    vars: VarStore,
    model: nn::Sequential,
    optimizer: Optimizer,
}

impl Training {
    fn new() -> Training {
        let vars = VarStore::new(Device::Cpu);
        let root = vars.root();
        let model = nn::seq()
            .add(nn::linear(&root / "first", 64, 64, Default::default()))
            .add_fn(|x| x.relu())
            .add(nn::linear(&root / "second", 64, 10, Default::default()));
        let sgd = nn::sgd(0.9, 0.0, 0.0, true);
        let optimizer = sgd.build(&vars, 0.05).expect("the model has variables");
        Training {
            vars,
            model,
            optimizer,
        }
    }

    /// Loss of a batch, and its gradients; `reduce` sees them before the step.
    fn step(
        &mut self,
        (pictures, digits): &(Tensor, Tensor),
        reduce: impl FnOnce(&VarStore) -> Result<()>,
    ) -> Result<f64> {
        let loss = self
            .model
            .forward(pictures)
            .cross_entropy_for_logits(digits);
        self.optimizer.zero_grad();
        loss.backward();
        reduce(&self.vars)?;
        self.optimizer.step();
        Ok(loss.double_value(&[]))
    }
}

/// Pictures and digits of the file.
fn read(path: &str) -> std::result::Result<(Tensor, Tensor), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let numbers: Vec<f32> = text
        .split([',', '\n'])
        .filter(|cell| !cell.trim().is_empty())
        .map(|cell| cell.trim().parse::<f32>())
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| format!("{path}: {error}"))?;
    if numbers.is_empty() || numbers.len() % 65 != 0 {
        return Err(format!("{path}: expected lines of 65 numbers"));
    }
    let table = Tensor::from_slice(&numbers).view([-1, 65]);
    // The writers come one after the other in the file: a fixed shuffle, the same on every rank, gives the test some of
    // each.
    let n = table.size()[0];
    let order: Vec<i64> = (0..n).map(|row| row * STRIDE % n).collect();
    let table = table.index_select(0, &Tensor::from_slice(&order));
    let pictures = table.narrow(1, 0, 64) / 16.0;
    let digits = table.select(1, 64).to_kind(Kind::Int64);
    Ok((pictures, digits))
}

fn rows(data: &(Tensor, Tensor), first: i64, n: i64) -> (Tensor, Tensor) {
    (data.0.narrow(0, first, n), data.1.narrow(0, first, n))
}

fn train(world: &Comm<'_>, data: &(Tensor, Tensor)) -> std::result::Result<(), String> {
    let (rank, ranks) = (i64::from(world.rank()), world.size() as i64);
    let words = |error: dlmpi::Error| error.to_string();
    // Another start on every rank, so that the broadcast has something to do.
    dlmpi::tch::torch::manual_seed(rank);
    let mut shared = Training::new();
    broadcast_vars(world, &shared.vars, 0).map_err(words)?;
    let mut alone = Training::new();
    alone
        .vars
        .copy(&shared.vars)
        .map_err(|error| error.to_string())?;

    let (train, each) = (data.0.size()[0] - TEST, BATCH / ranks);
    let mut parted = 0f64;
    for epoch in 0..EPOCHS {
        let mut last = (0.0, 0.0);
        for batch in 0..train / BATCH {
            let whole = rows(data, batch * BATCH, BATCH);
            let mine = rows(&whole, rank * each, each);
            let mut loss = shared
                .step(&mine, |vars| average_grads(world, vars))
                .map_err(words)?;
            world.all_reduce(&mut loss, Op::Avg).map_err(words)?;
            if rank == 0 {
                let single = alone.step(&whole, |_| Ok(())).map_err(words)?;
                parted = parted.max((loss - single).abs() / single);
                last = (loss, single);
            }
        }
        if rank == 0 {
            println!(
                "epoch {epoch:2}: loss {:.6} on {ranks} ranks, {:.6} on one",
                last.0, last.1
            );
        }
    }

    let (pictures, digits) = rows(data, train, TEST);
    let right = shared.model.forward(&pictures).accuracy_for_logits(&digits);
    let accuracy = right.double_value(&[]);
    if rank == 0 {
        println!(
            "accuracy {:.1} %, losses within {parted:.1e} of one process's",
            100.0 * accuracy
        );
    }
    if parted > TOLERANCE {
        return Err(format!(
            "the losses differ by {parted:.1e}, more than {TOLERANCE:.0e}"
        ));
    }
    if accuracy < 0.93 {
        return Err(format!("accuracy {accuracy:.3}, expected 0.93"));
    }
    Ok(())
}

fn run() -> Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let path = std::env::args().nth(1).unwrap_or("digits.csv".to_owned());
    let data = world.agree(match BATCH % world.size() as i64 {
        0 => read(&path),
        _ => Err(format!(
            "{BATCH} pictures a step cannot be divided by {} ranks",
            world.size()
        )),
    })?;
    world.agree(train(&world, &data))
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
