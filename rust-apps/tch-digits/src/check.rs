//! Checks tch tensors over MPI: every kind and layout, lazy bits, gradients, versions, refusals, DLPack. Right values are
//! integers that every kind here holds.
//!
//!     mpiexec -n 2 tch_check

use dlmpi::dlpack::{Imported, export};
use dlmpi::tch::torch::nn::{self, VarStore};
use dlmpi::tch::torch::{Device, Kind, Tensor};
use dlmpi::tch::{adopt, average_grads, broadcast_vars, export as export_tensor};
use dlmpi::{Comm, ErrorKind, Op, Result};

fn factor(comm: &Comm<'_>) -> i64 {
    i64::from(comm.rank()) + 1
}

fn triangle(comm: &Comm<'_>) -> i64 {
    (comm.size() * (comm.size() + 1) / 2) as i64
}

fn cube(kind: Kind) -> Tensor {
    Tensor::arange(24, (Kind::Int64, Device::Cpu))
        .to_kind(kind)
        .view([2, 3, 4])
}

fn kinds(comm: &Comm<'_>) -> Result<()> {
    for kind in [
        Kind::Float,
        Kind::Double,
        Kind::Half,
        Kind::BFloat16,
        Kind::Int64,
        Kind::Int,
        Kind::Int16,
        Kind::Int8,
        Kind::Uint8,
        Kind::ComplexFloat,
        Kind::ComplexDouble,
    ] {
        let whole = (cube(kind) * factor(comm)).to_kind(kind);
        // Transposed, every second column, one row of three: what lies between stays.
        let mut part = whole.transpose(0, 2).slice(0, 0, 4, 2).narrow(1, 1, 1);
        comm.all_reduce(&mut part, Op::Sum)?;
        let expected = (cube(kind) * factor(comm)).to_kind(kind);
        let mut same = expected.transpose(0, 2).slice(0, 0, 4, 2).narrow(1, 1, 1);
        let _ = same.copy_(
            &(cube(kind) * triangle(comm))
                .to_kind(kind)
                .transpose(0, 2)
                .slice(0, 0, 4, 2)
                .narrow(1, 1, 1),
        );
        assert!(whole.equal(&expected), "{kind:?}");
    }
    // Of a single row the stride is never taken, and may be any number.
    let row = Tensor::ones([3], (Kind::Float, Device::Cpu));
    let mut far = row.as_strided([1i64, 2], [i64::MAX, 2], None);
    comm.all_reduce(&mut far, Op::Sum)?;
    let n = comm.size() as f64;
    assert_eq!([0, 1, 2].map(|i| row.double_value(&[i])), [n, 1.0, n]);
    let mut empty = Tensor::zeros([0, 3], (Kind::Float, Device::Cpu));
    comm.all_reduce(&mut empty, Op::Sum)?;
    let mut scalar = Tensor::from(2.5f64);
    comm.all_reduce(&mut scalar, Op::Avg)?;
    assert_eq!(scalar.double_value(&[]), 2.5);
    Ok(())
}

fn bits(comm: &Comm<'_>) -> Result<()> {
    let complex = Tensor::complex(&cube(Kind::Float), &cube(Kind::Float));
    // Lazy: its memory holds the number itself. The imaginary part of a conjugate is lazily negative.
    for mut lazy in [complex.conj(), complex.conj().imag()] {
        let mut sum = lazy.zeros_like();
        comm.all_reduce_into(&lazy, &mut sum, Op::Sum)?;
        let expected = lazy.resolve_conj().resolve_neg() * comm.size() as i64;
        assert!(sum.equal(&expected));
        let error = comm.all_reduce(&mut lazy, Op::Sum).expect_err("it is lazy");
        assert_eq!(error.kind(), ErrorKind::Tensor);
        assert!(error.to_string().contains("is_"), "{error}");
    }
    Ok(())
}

fn versions(comm: &Comm<'_>) -> Result<()> {
    let leaf = Tensor::ones([3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let mut saved = &leaf * 2.0;
    let squared = &saved * &saved;
    let before = saved.internal_version();
    comm.all_reduce(&mut saved, Op::Sum)?;
    assert!(saved.internal_version() > before);
    // Autograd needs the values from before: it must say so, not use the new ones.
    assert!(squared.sum(Kind::Float).f_backward().is_err());
    Ok(())
}

fn refusals(comm: &Comm<'_>) -> Result<()> {
    let device = (Kind::Float, Device::Cpu);
    let cases = [
        (
            Tensor::ones([2, 2], device).to_sparse_sparse_dim(2),
            "strided",
        ),
        (Tensor::ones([2, 2], device).to_sparse_csr(None), "strided"),
        (Tensor::ones([1], device).expand([4], false), "share memory"),
        (Tensor::ones([4], (Kind::Bool, Device::Cpu)), "truth values"),
    ];
    for (mut tensor, words) in cases {
        let error = comm.all_reduce(&mut tensor, Op::Sum).expect_err(words);
        assert_eq!(error.kind(), ErrorKind::Tensor);
        assert!(error.to_string().contains(words), "{error}");
    }
    Ok(())
}

fn gradients(comm: &Comm<'_>) -> Result<()> {
    let vars = VarStore::new(Device::Cpu);
    let root = vars.root();
    let used = root.f_var("used", &[300, 5], nn::Init::Const(factor(comm) as f64));
    let rare = root.f_var("rare", &[4], nn::Init::Const(7.0));
    let (used, rare) = (used.expect("a variable"), rare.expect("a variable"));
    broadcast_vars(comm, &vars, (comm.size() - 1) as i32)?;
    assert!(used.equal(&Tensor::full(
        [300, 5],
        comm.size() as f64,
        (Kind::Float, Device::Cpu)
    )));
    // Only rank 0's loss has both.
    let mut loss = (&used * factor(comm)).sum(Kind::Float);
    if comm.rank() == 0 {
        loss += (&rare * 12.0).sum(Kind::Float);
    }
    loss.backward();
    average_grads(comm, &vars)?;
    let (n, sum) = (comm.size() as f64, triangle(comm) as f64);
    for (variable, mean) in [(&used, sum / n), (&rare, 12.0 / n)] {
        let error = (variable.grad() - mean).abs().max().double_value(&[]);
        assert!(error <= 1e-6 * mean, "{error}");
    }
    Ok(())
}

fn dlpack(comm: &Comm<'_>) -> Result<()> {
    let tensor = Tensor::ones([5], (Kind::Float, Device::Cpu));
    // SAFETY:
    // - The clone below is not used while the import is lent.
    let managed = unsafe { export_tensor(tensor.shallow_clone()) }?;
    // SAFETY:
    // - It was exported above, for this only consumer.
    let mut imported = unsafe { Imported::new(managed) }?;
    comm.all_reduce(&mut imported, Op::Sum)?;
    drop(imported);
    assert_eq!(tensor.double_value(&[4]), comm.size() as f64);

    // SAFETY:
    // - As above.
    let mut imported = unsafe { Imported::new(export(vec![1i64, 2, 3])?) }?;
    // SAFETY:
    // - The tensor goes before the import does.
    let adopted = unsafe { adopt(&mut imported) }?;
    assert_eq!(adopted.sum(Kind::Int64).int64_value(&[]), 6);
    Ok(())
}

type Check = fn(&Comm<'_>) -> Result<()>;

fn main() -> Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let checks: [(&str, Check); 6] = [
        ("every kind, in a layout with gaps", kinds),
        ("lazy bits are resolved to send, refused to receive", bits),
        ("autograd is told of writes", versions),
        ("what has no plain memory is refused in words", refusals),
        ("variables are spread, gradients averaged", gradients),
        ("memory goes out and comes in by DLPack", dlpack),
    ];
    for (name, check) in checks {
        check(&world)?;
        if world.rank() == 0 {
            println!("ok {name}");
        }
    }
    if world.rank() == 0 {
        println!(
            "test result: ok. {} passed; 0 failed; 0 ignored",
            checks.len()
        );
    }
    Ok(())
}
