//! Every operation on every dtype, element by element, against the second opinion.
//! Refuses to know how results are compared beyond that.

use crate::data::Random;
use crate::oracle::{self, Format};
use crate::run::*;
use tensor_comm::DType;
use tensor_comm::kernels::{ReduceOp, Tier, meaning};

/// Integers in 128 bits, cut to their width; truth values by `!= 0`.
fn integer_oracle(op: ReduceOp, dtype: DType, a: u64, b: u64) -> u64 {
    let width = 8 * dtype.itemsize().unwrap() as u32;
    let value = |x: u64| match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            i128::from((x << (64 - width)) as i64 >> (64 - width))
        }
        _ => i128::from(x),
    };
    let (x, y) = (value(a), value(b));
    let result = match op {
        ReduceOp::Sum => x + y,
        ReduceOp::Prod => x.wrapping_mul(y),
        ReduceOp::Max => x.max(y),
        ReduceOp::Min => x.min(y),
        ReduceOp::Land => i128::from(x != 0 && y != 0),
        ReduceOp::Lor => i128::from(x != 0 || y != 0),
        ReduceOp::Lxor => i128::from((x != 0) != (y != 0)),
        ReduceOp::Band => x & y,
        ReduceOp::Bor => x | y,
        ReduceOp::Bxor => x ^ y,
    };
    (result as u64) & (u64::MAX >> (64 - width))
}

/// What a floating-point operation should give; `None` where it has no answer in numbers (NaN).
fn float_oracle(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Prod => a * b,
        ReduceOp::Max => oracle::max(a, b).unwrap_or(f64::NAN),
        ReduceOp::Min => oracle::min(a, b).unwrap_or(f64::NAN),
        _ => unreachable!("only arithmetic"),
    }
}

#[test]
fn integers_and_truth_values() {
    let mut random = Random::fresh();
    for dtype in INTEGERS.into_iter().chain([DType::BOOL]) {
        let size = dtype.itemsize().unwrap();
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|&op| meaning(op, dtype).is_ok())
        {
            for n in lengths() {
                let (a, b) = (random.elements(dtype, n), random.elements(dtype, n));
                let logical = match op {
                    ReduceOp::Band if dtype == DType::BOOL => ReduceOp::Land,
                    ReduceOp::Bor if dtype == DType::BOOL => ReduceOp::Lor,
                    ReduceOp::Bxor if dtype == DType::BOOL => ReduceOp::Lxor,
                    op => op,
                };
                for tier in tiers() {
                    let found = reduce(tier, op, dtype, &a, &b, n % 5);
                    for i in 0..n {
                        let wanted =
                            integer_oracle(logical, dtype, bits(&a, size, i), bits(&b, size, i));
                        assert_eq!(
                            bits(&found, size, i),
                            wanted,
                            "{op} {dtype} {tier:?} [{i}] seed {}",
                            random.seed
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn single_and_double() {
    let mut random = Random::fresh();
    for dtype in [DType::F32, DType::F64] {
        let size = dtype.itemsize().unwrap();
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
            for n in lengths() {
                let (a, b) = (random.elements(dtype, n), random.elements(dtype, n));
                for tier in tiers() {
                    let found = reduce(tier, op, dtype, &a, &b, n % 5);
                    for i in 0..n {
                        let (x, y) = (
                            decode(dtype, bits(&a, size, i)),
                            decode(dtype, bits(&b, size, i)),
                        );
                        let wanted = float_oracle(op, x, y);
                        let code = bits(&found, size, i);
                        assert!(
                            right(dtype, code, wanted),
                            "{op} {dtype} {tier:?}: {x:e}, {y:e} gave {:e}, not {wanted:e}; seed {}",
                            decode(dtype, code),
                            random.seed
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn complex_numbers() {
    let mut random = Random::fresh();
    let half = Format::of(DType::F16);
    for dtype in COMPLEX {
        let size = dtype.itemsize().unwrap() / 2;
        let number = |bytes: &[u8], i: usize| match dtype {
            DType::C32 => half.decode(bits(bytes, 2, i) as u32),
            _ => decode(dtype, bits(bytes, size, i)),
        };
        // Each step of the plain formula, rounded as float32 (complex128: as float64).
        let round = |x: f64| {
            if dtype == DType::C128 {
                x
            } else {
                f64::from(x as f32)
            }
        };
        for n in lengths() {
            let (a, b) = (random.elements(dtype, n), random.elements(dtype, n));
            for tier in tiers() {
                let sums = reduce(tier, ReduceOp::Sum, dtype, &a, &b, n % 5);
                let products = reduce(tier, ReduceOp::Prod, dtype, &a, &b, n % 3);
                for i in 0..n {
                    let (x, y) = (number(&a, 2 * i), number(&a, 2 * i + 1));
                    let (u, v) = (number(&b, 2 * i), number(&b, 2 * i + 1));
                    let wanted = [
                        (x + u, bits(&sums, size, 2 * i)),
                        (y + v, bits(&sums, size, 2 * i + 1)),
                        (round(x * u) - round(y * v), bits(&products, size, 2 * i)),
                        (
                            round(x * v) + round(y * u),
                            bits(&products, size, 2 * i + 1),
                        ),
                    ];
                    for (wanted, code) in wanted {
                        let fine = match dtype {
                            DType::C32 => half.agrees(code as u32, wanted),
                            _ => right(dtype, code, wanted),
                        };
                        assert!(
                            fine,
                            "{dtype} {tier:?} ({x}, {y}) ({u}, {v}): {wanted}, {code:x}; seed {}",
                            random.seed
                        );
                    }
                }
            }
        }
    }
}

/// Is the result of `op` on two codes of a small format right?
fn small_is_right(format: &Format, op: ReduceOp, a: u32, b: u32, found: u32) -> bool {
    let (x, y) = (format.decode(a), format.decode(b));
    match op {
        ReduceOp::Sum | ReduceOp::Prod => format.agrees(found, float_oracle(op, x, y)),
        // The answer is one of the operands, to the bit.
        _ => {
            let wanted = float_oracle(op, x, y);
            match format.encode(wanted) {
                Some(code) => found == code,
                None => format.is_nan(found) && (found == a || found == b),
            }
        }
    }
}

#[test]
fn small_floats_of_all_lengths() {
    let mut random = Random::fresh();
    for dtype in SMALL {
        let format = Format::of(dtype);
        let size = dtype.itemsize().unwrap();
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
            for n in lengths() {
                let (a, b) = (random.elements(dtype, n), random.elements(dtype, n));
                for tier in tiers() {
                    let found = reduce(tier, op, dtype, &a, &b, n % 5);
                    for i in 0..n {
                        let [x, y, z] = [&a, &b, &found].map(|bytes| bits(bytes, size, i) as u32);
                        assert!(
                            small_is_right(&format, op, x, y, z),
                            "{op} {dtype} {tier:?}: {x:#x} ({}), {y:#x} ({}) gave {z:#x} ({}); seed {}",
                            format.decode(x),
                            format.decode(y),
                            format.decode(z),
                            random.seed
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_pair_of_eight_bit_floats() {
    // All bytes against each byte in turn.
    let all: Vec<u8> = (0..=255).collect();
    for dtype in SMALL.into_iter().filter(|dtype| dtype.bits == 8) {
        let format = Format::of(dtype);
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
            for byte in 0..=255 {
                let found = reduce(Tier::best(), op, dtype, &all, &[byte; 256], 0);
                for (&a, &z) in all.iter().zip(&found) {
                    assert!(
                        small_is_right(&format, op, a.into(), byte.into(), z.into()),
                        "{op} {dtype}: {a:#x}, {byte:#x} gave {z:#x}"
                    );
                }
            }
        }
    }
}
