//! What a careless or hostile rank can do without `unsafe`: wrong sizes, dtypes, roots and operations on it alone, tensors
//! that refuse or panic or lie of themselves. Every rank hears of it, and the communicator stays usable.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use dlmpi::ndarray::{ArcArray1, Array1, Array2, CowArray, s};
use dlmpi::{
    Comm, DType, Device, Element, ErrorKind, KnownTo, Loan, Op, Result, Tensor, TensorMut, View,
};

/// A tensor that is lent as it is told.
struct Forged(fn() -> Result<Loan<'static>>);

// SAFETY:
// - The loans below describe nothing, static memory, or memory that they keep.
unsafe impl Tensor for Forged {
    fn lend(&self) -> Result<Loan<'_>> {
        (self.0)()
    }
}

// SAFETY:
// - As above; what is static says that it is read-only.
unsafe impl TensorMut for Forged {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        (self.0)()
    }
}

static FIXED: [f32; 4] = [1.0; 4];

fn describe(shape: &[i64], strides: &[i64], dtype: DType, readonly: bool) -> Result<Loan<'static>> {
    let room = vec![0f32; 64];
    let data = match readonly {
        true => FIXED.as_ptr().cast_mut().cast(),
        false => room.as_ptr().cast_mut().cast(),
    };
    // SAFETY:
    // - The callers stay within the memory, which is static or goes into the loan.
    let view =
        unsafe { View::from_parts(data, shape, Some(strides), dtype, Device::CPU, readonly) };
    Ok(Loan::keeping(view?, room))
}

fn refused() -> Result<Loan<'static>> {
    Err(dlmpi::Error::tensor("the image was never decoded"))
}
fn fixed() -> Result<Loan<'static>> {
    describe(&[4], &[4], DType::F32, true)
}
fn folded() -> Result<Loan<'static>> {
    describe(&[4], &[0], DType::F32, false)
}
fn bools() -> Result<Loan<'static>> {
    describe(&[4], &[1], DType::BOOL, false)
}
fn longer() -> Result<Loan<'static>> {
    describe(&[5], &[4], DType::F32, false)
}
fn falls() -> Result<Loan<'static>> {
    resume_unwind(Box::new("on purpose"))
}

/// What rank 0 does while all others sum four `f32`, and whether it finds the fault itself.
type Deed = (&'static str, bool, fn(&Comm<'_>) -> Result<()>);

const DEEDS: [Deed; 12] = [
    ("refuses", true, |c| {
        c.all_reduce(&mut Forged(refused), Op::Sum)
    }),
    ("read-only", true, |c| {
        c.all_reduce(&mut Forged(fixed), Op::Sum)
    }),
    ("shared elements", true, |c| {
        c.all_reduce(&mut Forged(folded), Op::Sum)
    }),
    ("truth values", true, |c| {
        c.all_reduce(&mut Forged(bools), Op::Sum)
    }),
    ("refuses to be sent", true, |c| {
        c.all_reduce_into(&Forged(refused), &mut [0f32; 4], Op::Sum)
    }),
    ("one of many refuses", true, |c| {
        let all: [&mut dyn TensorMut; 2] = [&mut [1f32; 4], &mut Forged(refused)];
        c.all_reduce_many(all, Op::Sum)
    }),
    ("no such operation", true, |c| {
        c.all_reduce(&mut [1f32; 4], Op::BitwiseAnd)
    }),
    ("two sizes", true, |c| {
        c.all_reduce_into(&[1f32; 3], &mut [0f32; 4], Op::Sum)
    }),
    ("another size", false, |c| {
        c.all_reduce(&mut Forged(longer), Op::Sum)
    }),
    ("another dtype", false, |c| {
        c.all_reduce(&mut [1f64; 4], Op::Sum)
    }),
    ("another operation", false, |c| {
        c.all_reduce(&mut [1f32; 4], Op::Prod)
    }),
    ("another collective", false, |c| c.barrier()),
];

/// One rank's deed is an error on every rank, writes nothing there, and leaves a usable communicator.
pub fn deeds(comm: &Comm<'_>) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let fresh = comm.duplicate()?;
    for (name, own_fault, deed) in DEEDS {
        let mut data = [1f32; 4];
        let outcome = match fresh.rank() {
            0 => deed(&fresh),
            _ => fresh.all_reduce(&mut data, Op::Sum),
        };
        let error = outcome.expect_err(name);
        assert_eq!(error.known_to(), KnownTo::EveryRank, "{name}: {error:?}");
        let mismatch = error.kind() == ErrorKind::Mismatch;
        assert_eq!(
            mismatch,
            !(own_fault && fresh.rank() == 0),
            "{name}: {error:?}"
        );
        assert_eq!(data, [1.0; 4], "{name}");
        fresh.all_reduce(&mut data, Op::Sum)?;
        assert_eq!(data, [fresh.size() as f32; 4], "after {name}");
    }
    Ok(())
}

/// A tensor that panics while it is lent leaves nothing begun: on every rank alike, blocking or not.
pub fn panics(comm: &Comm<'_>) -> Result<()> {
    let fresh = comm.duplicate()?;
    let fell = catch_unwind(AssertUnwindSafe(|| {
        fresh.all_reduce(&mut Forged(falls), Op::Sum)
    }));
    assert!(fell.is_err());
    let fell = catch_unwind(AssertUnwindSafe(|| {
        let mut others = [[1f32; 3]; 2];
        let [first, second] = &mut others;
        let all: [&mut dyn TensorMut; 3] = [first, &mut Forged(falls), second];
        fresh.all_reduce_many(all, Op::Sum)
    }));
    assert!(fell.is_err());
    let mut data = [1f32; 3];
    fresh.all_reduce(&mut data, Op::Sum)?;
    assert_eq!(data, [fresh.size() as f32; 3]);
    Ok(())
}

/// Tensors without elements take part in everything, whatever shape says so.
pub fn nothing(comm: &Comm<'_>) -> Result<()> {
    let (mut none, mut flat) = (Array2::<f64>::zeros((0, 7)), Vec::<f64>::new());
    comm.all_reduce(&mut none, Op::Avg)?;
    comm.broadcast(&mut flat, 0)?;
    comm.all_gather(&none, &mut flat)?;
    comm.all_to_all(&flat, &mut none)?;
    comm.reduce_scatter(&flat, &mut none, Op::Max)?;
    comm.all_reduce_many(std::iter::empty::<&mut Vec<f32>>(), Op::Sum)?;
    comm.all_reduce_many([&mut Vec::<f32>::new()], Op::Sum)?;
    let (rank, size) = (comm.rank(), comm.size() as i32);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let status = comm.sendrecv(&flat, right, 0, &mut [1u8; 3], left, 0)?;
    assert_eq!(status.elements, 0);
    dlmpi::scope(|scope| {
        let first = comm.immediate_all_reduce(scope, &mut none, Op::Sum)?;
        let second = comm.immediate_broadcast(scope, &mut flat, size - 1)?;
        second.wait()?;
        first.wait().map(|_| ())
    })
}

/// Arrays that share their memory until they are written: a reduction changes its own copy alone.
pub fn shared(comm: &Comm<'_>) -> Result<()> {
    let n = comm.size() as f32;
    let mut mine = ArcArray1::from(vec![1f32; 9]);
    let other = mine.clone();
    comm.all_reduce(&mut mine, Op::Sum)?;
    assert!(mine.iter().all(|x| *x == n) && other.iter().all(|x| *x == 1.0));
    let mut again = other.clone();
    dlmpi::scope(|scope| {
        let request = comm.immediate_all_reduce(scope, &mut again, Op::Sum)?;
        // The memory that both had is read meanwhile.
        assert!(other.iter().all(|x| *x == 1.0));
        request.wait().map(|_| ())
    })?;
    assert!(again.iter().all(|x| *x == n) && other.iter().all(|x| *x == 1.0));
    let base = Array1::from_elem(6, 1f32);
    let mut lazy = CowArray::from(base.view());
    comm.all_reduce(&mut lazy, Op::Sum)?;
    assert!(lazy.iter().all(|x| *x == n) && base.iter().all(|x| *x == 1.0));
    // Sent from where it is also received: what is broadcast in memory, and reversed.
    let wide = base.broadcast((4, 6)).expect("it can be");
    let mut table = Array2::from_elem((4, 6), f32::NAN);
    comm.all_reduce_into(&wide, &mut table.slice_mut(s![..;-1, ..;-1]), Op::Sum)?;
    assert!(table.iter().all(|x| *x == n));
    Ok(())
}

/// A type of another crate that promises to be numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
struct Metres(f64);

// SAFETY:
// - It is its number.
unsafe impl Element for Metres {
    const DTYPE: DType = DType::F64;
}

/// Elements and errors of the caller's own types.
pub fn own_types(comm: &Comm<'_>) -> Result<()> {
    let mut lengths = vec![Metres(1.5); 3];
    comm.all_reduce(&mut lengths, Op::Sum)?;
    assert_eq!(lengths, [Metres(1.5 * comm.size() as f64); 3]);
    // What a rank has to say is cut where it is too long, between two letters.
    let long = "ä".repeat(70_000);
    let outcome = comm.agree(match comm.rank() {
        0 => Err(long),
        _ => Ok(()),
    });
    let error = outcome.expect_err("rank 0 failed");
    let text = error.to_string();
    assert!(
        text.starts_with("rank 0: ä") && text.len() <= 1 << 16,
        "{}",
        text.len()
    );
    assert!(
        text.trim_start_matches("rank 0: ")
            .chars()
            .all(|letter| letter == 'ä')
    );
    Ok(())
}

/// Below `MPI_THREAD_MULTIPLE` the thread that initialised MPI communicates, and others are told so.
pub fn without_threads(comm: &Comm<'_>) -> Result<()> {
    let level = mpi::environment::threading_support();
    assert!(level < mpi::Threading::Multiple, "this MPI gave {level:?}");
    let made = comm.duplicate()?;
    let mut sum = [1f32; 3];
    std::thread::scope(|threads| {
        let elsewhere = threads.spawn(|| {
            let outcomes = [
                made.barrier(),
                made.send(&1u8, 0, 0),
                made.split(None, 0).map(|_| ()),
                made.agree::<_, String>(Ok(())),
                dlmpi::scope(|scope| made.immediate_barrier(scope)?.wait()),
            ];
            outcomes.map(|outcome| outcome.expect_err("another thread").kind())
        });
        let kinds = elsewhere.join().expect("no panic");
        assert_eq!(kinds, [ErrorKind::State; 5]);
    });
    let begun = dlmpi::scope(|scope| {
        let request = made.immediate_all_reduce(scope, &mut sum, Op::Sum)?;
        request.wait().map(|_| ())
    });
    assert_eq!(begun.map_err(|error| error.kind()), Err(ErrorKind::State));
    made.all_reduce(&mut sum, Op::Sum)?;
    assert_eq!(sum, [made.size() as f32; 3]);
    // Dropped where it may not be freed: left to MPI, without a call.
    let dropped = std::thread::scope(|threads| threads.spawn(move || drop(made)).join().is_ok());
    assert!(dropped);
    comm.barrier()?;
    if comm.rank() == 0 {
        println!("ok threads are refused\ntest result: ok. 1 passed; 0 failed; 0 ignored");
    }
    Ok(())
}
