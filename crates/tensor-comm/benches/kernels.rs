//! How fast kernels are on each tier of this processor, on 64 Ki elements in cache:
//! `cargo bench -p tensor-comm --bench kernels`. Refuses to judge: it prints elements per second.
#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::{Duration, Instant};
use tensor_comm::DType;
use tensor_comm::kernels::{ReduceOp, Tier, kernel_for, narrow_for, widen_for};

const N: usize = 65_536;

/// Numbers around 1, whatever the dtype: arithmetic on subnormals and NaNs has another speed.
fn numbers(dtype: DType) -> Vec<u8> {
    let one: &[u8] = match dtype {
        DType::F64 | DType::C128 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        DType::F32 | DType::C64 => &[0, 0, 0x80, 0x3f],
        DType::BF16 => &[0x80, 0x3f],
        DType::F16 | DType::C32 => &[0, 0x3c],
        dtype if dtype.is_float() => &[0x38],
        _ => &[1],
    };
    let size = dtype.itemsize().unwrap_or(1);
    let mut bytes: Vec<u8> = one.iter().copied().cycle().take(N * size).collect();
    for (i, number) in bytes.chunks_mut(one.len()).enumerate() {
        number[0] |= (i % 7) as u8;
    }
    bytes
}

fn reductions(criterion: &mut Criterion) {
    let floats = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::F8_E4M3FN,
        DType::F8_E5M2,
    ];
    let rows = floats
        .into_iter()
        .flat_map(|dtype| [(ReduceOp::Sum, dtype), (ReduceOp::Max, dtype)])
        .chain([DType::C32, DType::C64, DType::C128].map(|dtype| (ReduceOp::Prod, dtype)))
        .chain([DType::I8, DType::I32, DType::I64].map(|dtype| (ReduceOp::Prod, dtype)))
        .chain([(ReduceOp::Max, DType::I64), (ReduceOp::Lor, DType::BOOL)]);
    for (op, dtype) in rows {
        let mut group = criterion.benchmark_group(format!("{op} {dtype}"));
        group.throughput(Throughput::Elements(N as u64));
        let (input, start) = (numbers(dtype), numbers(dtype));
        for tier in Tier::ALL {
            let Some(kernel) = kernel_for(tier, op, dtype) else {
                continue;
            };
            let mut inout = start.clone();
            group.bench_function(
                BenchmarkId::from_parameter(format!("{tier:?}")),
                |bencher| {
                    bencher.iter_custom(|times| {
                        let mut spent = Duration::ZERO;
                        for _ in 0..times {
                            // Repeated products would leave the numbers around 1.
                            inout.copy_from_slice(&start);
                            let begin = Instant::now();
                            // SAFETY: both have `N` elements of the dtype, in separate memory.
                            unsafe { kernel(input.as_ptr(), inout.as_mut_ptr(), N) };
                            spent += begin.elapsed();
                        }
                        spent
                    });
                },
            );
        }
        group.finish();
    }
}

fn conversions(criterion: &mut Criterion) {
    for dtype in [DType::F16, DType::BF16, DType::F8_E4M3FN] {
        let mut codes = numbers(dtype);
        let mut wide = vec![1f32; N];
        for tier in Tier::ALL {
            let (Some(widen), Some(narrow)) = (widen_for(tier, dtype), narrow_for(tier, dtype))
            else {
                continue;
            };
            let mut group = criterion.benchmark_group(format!("convert {dtype}"));
            group.throughput(Throughput::Elements(N as u64));
            group.bench_function(format!("widen/{tier:?}"), |bencher| {
                // SAFETY: both have `N` numbers, in separate memory.
                bencher.iter(|| unsafe { widen(codes.as_ptr(), wide.as_mut_ptr(), N) });
            });
            group.bench_function(format!("narrow/{tier:?}"), |bencher| {
                // SAFETY: both have `N` numbers, in separate memory.
                bencher.iter(|| unsafe { narrow(wide.as_ptr(), codes.as_mut_ptr(), N) });
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20);
    targets = reductions, conversions
}
criterion_main!(benches);
