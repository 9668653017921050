//! How fast tensors of several forms are packed and unpacked: `cargo bench -p tensor-comm --bench pack`.
//! The first row, a contiguous one, is the scale. Refuses to judge: it prints bytes per second.
#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use tensor_comm::Layout;
use tensor_comm::pack::{pack, unpack};

/// A name, sizes, strides in bytes, and bytes of an element.
type Form = (&'static str, &'static [i64], &'static [i64], usize);

const FORMS: [Form; 13] = [
    ("contiguous f32 2048x2048", &[2048, 2048], &[8192, 4], 4),
    ("transposed u8 2048x2048", &[2048, 2048], &[1, 2048], 1),
    ("transposed bf16 2048x2048", &[2048, 2048], &[2, 4096], 2),
    ("transposed f32 2048x2048", &[2048, 2048], &[4, 8192], 4),
    ("transposed f32 2000x2000", &[2000, 2000], &[4, 8000], 4),
    ("transposed f64 2048x2048", &[2048, 2048], &[8, 16384], 8),
    ("X[:, :1024] f32", &[2048, 1024], &[8192, 4], 4),
    ("X[:, :64] f32", &[2048, 64], &[8192, 4], 4),
    ("X[:, :1] f32", &[2048, 1], &[8192, 4], 4),
    ("X[:, ::2] f32", &[2048, 1024], &[8192, 8], 4),
    ("X[::-1] f32", &[4_194_304], &[-4], 4),
    (
        "channels last f32 8x64x56x56",
        &[8, 64, 56, 56],
        &[802_816, 4, 14_336, 256],
        4,
    ),
    (
        "channels last u8 8x3x224x224",
        &[8, 3, 224, 224],
        &[150_528, 1, 672, 3],
        1,
    ),
];

fn forms(criterion: &mut Criterion) {
    for (name, shape, strides, itemsize) in FORMS {
        let Ok(layout) = Layout::new(shape, Some(strides), itemsize) else {
            continue;
        };
        let (low, high) = layout.span();
        let mut memory = vec![1u8; (high - low) as usize];
        let first = low.unsigned_abs();
        let n = layout.numel();
        let mut packed = vec![2u8; layout.nbytes()];
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(layout.nbytes() as u64));
        group.bench_function("pack", |bencher| {
            // SAFETY:
            // - `memory` is the span of the layout, and `first` its first logical element;
            // - `packed` has room for all elements.
            bencher.iter(|| unsafe {
                pack(
                    &layout,
                    memory.as_ptr().add(first),
                    0,
                    n,
                    packed.as_mut_ptr(),
                )
            });
        });
        group.bench_function("unpack", |bencher| {
            // SAFETY:
            // - `memory` is the span of the layout, which has no overlap, and `first` its first element;
            // - `packed` has all elements.
            bencher.iter(|| unsafe {
                unpack(
                    &layout,
                    memory.as_mut_ptr().add(first),
                    0,
                    n,
                    packed.as_ptr(),
                )
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(10);
    targets = forms
}
criterion_main!(benches);
