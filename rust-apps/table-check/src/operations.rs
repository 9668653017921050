//! Predefined and own reduction operations.

use crate::suite::{Context, Suite, input, output};
use mpi_runtime::{Basic, BuiltinOp, Datatype, Mpi, UserOp};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

pub fn all(suite: &mut Suite) {
    suite.check("predefined operations", predefined);
    suite.check("predefined operations on every number", every_number);
    suite.check("an own operation, in rank order", own);
}

fn reduced<T: Copy>(c: &Context, basic: Basic, op: BuiltinOp, a: T, b: T) -> T {
    let mut inout = [b];
    // SAFETY:
    // - Both buffers hold one element of the datatype, which the callers pair with the right Rust type.
    unsafe {
        c.mpi.reduce_local(
            input(&[a]),
            output(&mut inout),
            1,
            c.datatype(basic),
            c.mpi.op(op),
        )
    }
    .unwrap_or_else(|error| panic!("{} on {}: {error}", op.name(), basic.name()));
    inout[0]
}

fn predefined(c: &Context) {
    let (a, b) = (12, 10);
    let expected = [
        (BuiltinOp::Sum, a + b),
        (BuiltinOp::Prod, a * b),
        (BuiltinOp::Max, a),
        (BuiltinOp::Min, b),
        (BuiltinOp::Land, 1),
        (BuiltinOp::Lor, 1),
        (BuiltinOp::Lxor, 0),
        (BuiltinOp::Band, a & b),
        (BuiltinOp::Bor, a | b),
        (BuiltinOp::Bxor, a ^ b),
    ];
    for (op, expected) in expected {
        assert_eq!(reduced(c, Basic::Int, op, a, b), expected, "{}", op.name());
    }
    assert_eq!(
        reduced(c, Basic::TwoInt, BuiltinOp::Maxloc, [7, 3], [7, 1]),
        [7, 1]
    );
    assert_eq!(
        reduced(c, Basic::TwoInt, BuiltinOp::Minloc, [6, 3], [7, 1]),
        [6, 3]
    );
    assert_eq!(reduced(c, Basic::CBool, BuiltinOp::Land, 1u8, 0u8), 0);
    assert_eq!(reduced(c, Basic::CBool, BuiltinOp::Lor, 1u8, 0u8), 1);
    for op in BuiltinOp::ALL {
        assert_eq!(c.mpi.builtin_op(c.mpi.op(*op)), Some(*op), "{}", op.name());
    }
    assert_eq!(c.mpi.builtin_op(c.mpi.op_null()), None);
    assert_eq!(c.mpi.op_commutative(c.sum()), Ok(true));
}

fn every_number(c: &Context) {
    use BuiltinOp::{Max, Sum};
    macro_rules! number {
        ($($basic:ident: $t:ty;)*) => { $(
            let (a, b) = (3 as $t, 4 as $t);
            assert_eq!(reduced(c, Basic::$basic, Sum, a, b), a + b, stringify!($basic));
            assert_eq!(reduced(c, Basic::$basic, Max, a, b), b, stringify!($basic));
        )* };
    }
    number! {
        SignedChar: i8; Short: i16; Int: i32; Long: i64; LongLong: i64;
        UnsignedChar: u8; UnsignedShort: u16; Unsigned: u32; UnsignedLong: u64; UnsignedLongLong: u64;
        Int8: i8; Int16: i16; Int32: i32; Int64: i64;
        Uint8: u8; Uint16: u16; Uint32: u32; Uint64: u64;
        Float: f32; Double: f64; Aint: i64; Count: i64; Offset: i64;
    }
    // (1 + 2i) (3 + 4i) = -5 + 10i
    assert_eq!(
        reduced(
            c,
            Basic::CFloatComplex,
            BuiltinOp::Prod,
            [1f32, 2.0],
            [3.0, 4.0]
        ),
        [-5.0, 10.0]
    );
    assert_eq!(
        reduced(
            c,
            Basic::CDoubleComplex,
            BuiltinOp::Prod,
            [1f64, 2.0],
            [3.0, 4.0]
        ),
        [-5.0, 10.0]
    );
}

static CALLS: AtomicI64 = AtomicI64::new(0);
static DATATYPE: AtomicU64 = AtomicU64::new(0);

/// Composition of the affine maps `x -> a x + b`: associative, not commutative.
struct Compose;

impl UserOp for Compose {
    unsafe fn reduce(input: *const u8, inout: *mut u8, len: i64, datatype: Datatype) {
        CALLS.fetch_add(1, SeqCst);
        DATATYPE.store(datatype.raw(), SeqCst);
        let (input, inout) = (input.cast::<[i64; 2]>(), inout.cast::<[i64; 2]>());
        for i in 0..len as usize {
            // SAFETY:
            // - The datatype is two Int64s, and there are `len` of them in both vectors.
            unsafe {
                let ([a, b], [p, q]) = (input.add(i).read(), inout.add(i).read());
                // First the lower rank's map, then the other: p (a x + b) + q.
                inout.add(i).write([p * a, p * b + q]);
            }
        }
    }
}

fn own(c: &Context) {
    let mpi: &Mpi = c.mpi;
    let mut pair = mpi
        .type_contiguous(2, c.datatype(Basic::Int64))
        .expect("contiguous");
    mpi.type_commit(pair).expect("commit");
    let mut op = mpi.op_create::<Compose>(false).expect("op_create");
    assert_eq!(mpi.op_commutative(op), Ok(false));

    const N: usize = 1000;
    let map = |rank: i64, i: i64| [2 + rank, 3 * rank + i % 5];
    let mine: Vec<[i64; 2]> = (0..N as i64).map(|i| map(i64::from(c.rank), i)).collect();
    let mut out = vec![[0i64; 2]; N];
    // SAFETY:
    // - Both buffers hold N elements of the datatype, for which the operation is defined.
    unsafe {
        mpi.allreduce(input(&mine), output(&mut out), N as i64, pair, op, c.comm)
            .expect("allreduce")
    };
    for (i, out) in out.iter().enumerate() {
        // Applied one after the other to x = 0 and x = 1.
        let apply = |x: i64| {
            (0..i64::from(c.size)).fold(x, |x, r| {
                let [a, b] = map(r, i as i64);
                a * x + b
            })
        };
        assert_eq!(*out, [apply(1) - apply(0), apply(0)], "element {i}");
    }
    let mut local = [[7i64, 8]];
    // SAFETY:
    // - Both buffers hold one element of the datatype.
    unsafe {
        mpi.reduce_local(input(&[[5i64, 6]]), output(&mut local), 1, pair, op)
            .expect("reduce_local")
    };
    assert_eq!(local, [[35, 50]]);
    assert!(CALLS.load(SeqCst) > 0);
    assert_eq!(
        DATATYPE.load(SeqCst),
        pair.raw(),
        "the callback is told the caller's datatype"
    );
    // SAFETY:
    // - Neither handle is used again.
    unsafe {
        mpi.op_free(&mut op).expect("free");
        mpi.type_free(&mut pair).expect("free");
    }
    assert_eq!(op, mpi.op_null());
}
