//! Property: ranks that make matching calls decide alike, whatever differs between them locally.
//!
//! Simulated ranks draw layout, memory order, device, aliasing and `IN_PLACE` at random; the wire must
//! come out equal. The other way round, changing one agreed field must be able to change it, or the
//! property would hold of anything.

use dlpack_core::{DType, Device, DeviceKind, View};
use mpi_runtime::Family;
use proptest::prelude::*;

use crate::agreed::{Agreed, CommFacts, Place, Shares, Standing};
use crate::arg::{Arg, Part};
use crate::call::{Call, CallKind, Op};
use crate::comm::Role;
use crate::ground::settings::Choice;
use crate::kernels::ReduceOp;
use crate::reduction::{counts, significant};
use crate::wire::{Wire, wire};

const KINDS: [CallKind; 6] = [
    CallKind::Reduce,
    CallKind::Allreduce,
    CallKind::Scan,
    CallKind::Exscan,
    CallKind::ReduceScatter,
    CallKind::ReduceScatterBlock,
];
const DTYPES: [DType; 8] = [
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::I32,
    DType::U8,
    DType::C64,
    DType::BOOL,
];
const OPS: [Op; 5] = [
    Op::Builtin(ReduceOp::Sum),
    Op::Builtin(ReduceOp::Max),
    Op::Builtin(ReduceOp::Prod),
    Op::Builtin(ReduceOp::Land),
    Op::Avg,
];

/// What one rank draws for itself.
#[derive(Debug, Clone, Copy)]
struct Local {
    stride: i64,
    reversed: bool,
    matrix: bool,
    device: i32,
    in_place: bool,
    alias: bool,
}

fn local() -> impl Strategy<Value = Local> {
    (
        1i64..4,
        any::<bool>(),
        any::<bool>(),
        0usize..3,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(stride, reversed, matrix, device, in_place, alias)| {
            let device = [
                DeviceKind::CPU.0,
                DeviceKind::CUDA.0,
                DeviceKind::CUDA_MANAGED.0,
            ][device];
            Local {
                stride,
                reversed,
                matrix,
                device,
                in_place,
                alias,
            }
        })
}

/// A view of `n` elements that nobody will ever read.
fn view(n: usize, dtype: DType, local: Local, address: usize) -> View {
    let item = dtype.itemsize().expect("whole bytes") as i64;
    let step = if local.reversed {
        -item * local.stride
    } else {
        item * local.stride
    };
    let (shape, strides) = match local.matrix && n.is_multiple_of(2) {
        // Two columns in Fortran order.
        true => (vec![n as i64 / 2, 2], vec![step, step * (n as i64 / 2)]),
        false => (vec![n as i64], vec![step]),
    };
    let device = Device::new(DeviceKind(local.device), 0);
    // SAFETY:
    // - the view is only looked at, never acted on, so no byte of it need exist.
    unsafe {
        View::from_parts(
            address as *mut u8,
            &shape,
            Some(&strides),
            dtype,
            device,
            false,
        )
    }
    .expect("a lawful layout")
}

/// The wire of one simulated rank, `None` where the call is refused.
fn decide(
    kind: CallKind,
    dtype: DType,
    op: Op,
    n: usize,
    ranks: usize,
    facts: CommFacts,
    me: (usize, Local),
) -> Option<Wire> {
    let (rank, local) = me;
    let scattered = matches!(kind, CallKind::ReduceScatter | CallKind::ReduceScatterBlock);
    let contributed = if scattered { n * ranks } else { n };
    let part = |n: usize, address: usize| Arg::Part(Part::whole(view(n, dtype, local, address)));
    let mut call = Call::new(kind);
    call.op = Some(op);
    call.recvcounts = Some(vec![n as i64; ranks]);
    let root = rank == 0;
    if local.in_place && (kind != CallKind::Reduce || root) {
        call.send = Arg::InPlace;
        call.recv = part(contributed, 1 << 44);
    } else {
        call.send = part(contributed, 1 << 44);
        let address = if local.alias { 1 << 44 } else { 1 << 45 };
        call.recv = if kind == CallKind::Reduce && !root {
            Arg::Absent
        } else {
            part(n, address)
        };
    }
    let role = if root { Role::Root } else { Role::Leaf };
    let significant = significant(&call, role, false);
    let counts = counts(&call, &significant, ranks, call.recvcounts.clone()).ok()?;
    wire(&Agreed::of(&call, counts.largest(), facts)).ok()
}

proptest! {
    #[test]
    fn ranks_decide_alike(
        kind in prop::sample::select(&KINDS[..]),
        dtype in prop::sample::select(&DTYPES[..]),
        op in prop::sample::select(&OPS[..]),
        n in prop_oneof![Just(0usize), 1usize..1000, 1000usize..1_000_000, (1usize << 31)..(1 << 33)],
        large_counts in any::<bool>(),
        one_call in any::<bool>(),
        choice in prop::sample::select(&[Choice::Auto, Choice::Mpi, Choice::Own, Choice::Ring, Choice::Halving, Choice::TwoLevel][..]),
        place in prop::sample::select(&[Place::Unknown, Place::Together, Place::Crowded, Place::Apart][..]),
        shares in prop::sample::select(&[Shares::Unknown, Shares::No, Shares::OneStep, Shares::Yes][..]),
        settled in any::<bool>(),
        reads in any::<bool>(),
        locals in prop::collection::vec(local(), 1..8),
    ) {
        let standing = Standing { place, shares, reads, settled };
        let facts = CommFacts { size: locals.len() as u32, large_counts, one_call, choice, standing, family: Family::OpenMpi };
        let decisions: Vec<Option<Wire>> = locals
            .iter()
            .enumerate()
            .map(|(rank, &local)| decide(kind, dtype, op, n, locals.len(), facts, (rank, local)))
            .collect();
        prop_assert!(decisions.iter().all(|d| *d == decisions[0]), "{decisions:?}");
    }
}

#[test]
fn agreed_fields_do_reach_the_wire() {
    let local = Local {
        stride: 1,
        reversed: false,
        matrix: false,
        device: 1,
        in_place: false,
        alias: false,
    };
    let facts = CommFacts {
        size: 2,
        large_counts: false,
        one_call: false,
        choice: Choice::Mpi,
        standing: Standing::NONE,
        family: Family::Mpich,
    };
    let base =
        |dtype, op, n, facts| decide(CallKind::Allreduce, dtype, op, n, 2, facts, (0, local));
    let (sum, max) = (OPS[0], OPS[1]);
    let f32_sum = base(DType::F32, sum, 8, facts);
    assert!(f32_sum.is_some());
    assert_ne!(f32_sum, base(DType::BF16, sum, 8, facts));
    assert_ne!(f32_sum, base(DType::F32, max, 8, facts));
    assert_ne!(f32_sum, base(DType::F32, Op::Avg, 8, facts));
    assert_ne!(f32_sum, base(DType::F32, sum, 1 << 32, facts));
    assert_eq!(
        f32_sum,
        base(
            DType::F32,
            sum,
            1 << 32,
            CommFacts {
                large_counts: true,
                ..facts
            }
        )
    );
    assert_eq!(
        base(
            DType::BF16,
            sum,
            8,
            CommFacts {
                one_call: true,
                ..facts
            }
        ),
        None
    );
    let auto = CommFacts {
        choice: Choice::Auto,
        standing: Standing {
            place: Place::Together,
            ..Standing::NONE
        },
        ..facts
    };
    assert_ne!(
        base(DType::F32, sum, 1 << 24, facts),
        base(DType::F32, sum, 1 << 24, auto)
    );
    assert_ne!(
        base(DType::F32, sum, 1, auto),
        base(
            DType::F32,
            sum,
            1,
            CommFacts {
                choice: Choice::Own,
                ..auto
            }
        )
    );
}
