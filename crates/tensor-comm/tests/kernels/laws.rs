//! What holds for kernels whatever they compute: tiers agree, order is lawful, memory may be shared; and the
//! formats that are no floats like others. Refuses to know the arithmetic of the rest.

use crate::data::{Random, Shifted};
use crate::run::*;
use tensor_comm::DType;
use tensor_comm::kernels::{ReduceOp, Tier, kernel, meaning, narrow, widen};

#[test]
fn every_pair_of_scale_factors() {
    // 2^(code - 127), and 255 is NaN: a product is a sum of exponents, or NaN beyond them.
    let all: Vec<u8> = (0..=255).collect();
    for tier in tiers() {
        for byte in 0..=255u8 {
            let found = |op| reduce(tier, op, DType::F8_E8M0FNU, &all, &[byte; 256], 0);
            let (prod, max, min) = (
                found(ReduceOp::Prod),
                found(ReduceOp::Max),
                found(ReduceOp::Min),
            );
            for a in 0..=255u8 {
                let power = |code: u8| {
                    if code == 255 {
                        f64::NAN
                    } else {
                        2f64.powi(i32::from(code) - 127)
                    }
                };
                let product = power(a) * power(byte);
                let wanted = (0..255).find(|&code| power(code) == product).unwrap_or(255);
                assert_eq!(prod[a as usize], wanted, "{a} * {byte}");
                let nan = a == 255 || byte == 255;
                assert_eq!(max[a as usize], if nan { 255 } else { a.max(byte) });
                assert_eq!(min[a as usize], if nan { 255 } else { a.min(byte) });
            }
        }
    }
    assert!(widen(DType::F8_E8M0FNU).is_none() && narrow(DType::F8_E8M0FNU).is_none());
}

/// An x87 number with these bits, and rubbish in its padding.
#[cfg(target_arch = "x86_64")]
fn extended(negative: bool, exponent: u16, significand: u64, rubbish: u64) -> [u8; 16] {
    let top = u64::from(exponent | if negative { 0x8000 } else { 0 }) | rubbish << 16;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&significand.to_le_bytes());
    bytes[8..].copy_from_slice(&top.to_le_bytes());
    bytes
}

#[test]
#[cfg(target_arch = "x86_64")]
fn long_doubles_in_order() {
    // Rising, by IEEE: -inf, two normal numbers that differ in the last bit, a subnormal, -0, and the same above.
    const ONE: u64 = 1 << 63;
    let above = [
        (0, 0),
        (0, 3),
        (1, ONE),
        (16383, ONE),
        (16383, ONE + 1),
        (32766, u64::MAX),
        (32767, ONE),
    ];
    let mut numbers: Vec<_> = above
        .iter()
        .rev()
        .map(|&(e, m)| extended(true, e, m, 0x5eed))
        .collect();
    numbers.extend(above.map(|(e, m)| extended(false, e, m, 0xabcd)));
    let nans = [false, true].map(|negative| extended(negative, 32767, ONE | 1 << 62 | 7, 1));
    for tier in tiers() {
        for (i, a) in numbers.iter().enumerate() {
            for (k, b) in numbers.iter().enumerate() {
                let of = |op| reduce(tier, op, DType::LONG_DOUBLE, a, b, 3);
                assert_eq!(of(ReduceOp::Max), numbers[i.max(k)], "max {i} {k}");
                assert_eq!(of(ReduceOp::Min), numbers[i.min(k)], "min {i} {k}");
            }
            for nan in &nans {
                for op in [ReduceOp::Max, ReduceOp::Min] {
                    assert_eq!(
                        reduce(tier, op, DType::LONG_DOUBLE, a, nan, 1),
                        nan,
                        "{op} {i}"
                    );
                    assert_eq!(
                        reduce(tier, op, DType::LONG_DOUBLE, nan, a, 1),
                        nan,
                        "{op} {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn tiers_agree_to_the_bit() {
    let mut random = Random::fresh();
    for dtype in every_dtype() {
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|&op| meaning(op, dtype).is_ok())
        {
            // Which NaN arithmetic gives is the processor's affair; elsewhere every bit counts.
            let free = matches!(op, ReduceOp::Sum | ReduceOp::Prod)
                && (dtype.is_float() || dtype.is_complex());
            let mut n = 0;
            while n < 700 {
                let (a, b) = (random.elements(dtype, n), random.elements(dtype, n));
                let plain = reduce(Tier::Portable, op, dtype, &a, &b, n % 7);
                for tier in tiers() {
                    let found = reduce(tier, op, dtype, &a, &b, n % 5);
                    if free {
                        assert_eq!(
                            without_nan(dtype, &found),
                            without_nan(dtype, &plain),
                            "{op} {dtype} {tier:?}"
                        );
                    } else {
                        assert_eq!(found, plain, "{op} {dtype} {tier:?} seed {}", random.seed);
                    }
                }
                n = n * 3 / 2 + 1;
            }
        }
    }
}

#[test]
fn order_is_commutative_and_associative() {
    // What algorithms may rely on: any tree over the ranks gives the same bits, whichever NaNs are in it.
    let mut random = Random::fresh();
    for dtype in every_dtype().into_iter().filter(|dtype| dtype.is_float()) {
        let n = 3000;
        let [a, b, c] = [0; 3].map(|_| random.elements(dtype, n));
        for op in [ReduceOp::Max, ReduceOp::Min] {
            let of = |x: &[u8], y: &[u8]| reduce(Tier::best(), op, dtype, x, y, 0);
            assert_eq!(of(&a, &b), of(&b, &a), "{op} {dtype} seed {}", random.seed);
            assert_eq!(
                of(&of(&a, &b), &c),
                of(&a, &of(&b, &c)),
                "{op} {dtype} seed {}",
                random.seed
            );
        }
    }
}

#[test]
fn operands_may_be_the_same_memory() {
    let mut random = Random::fresh();
    for dtype in every_dtype() {
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|&op| meaning(op, dtype).is_ok())
        {
            for n in [1, 7, 64, 203] {
                let a = random.elements(dtype, n);
                let wanted = reduce(Tier::best(), op, dtype, &a, &a, 1);
                let mut both = Shifted::new(&a, 1);
                let kernel = kernel(op, dtype).unwrap();
                // SAFETY: `both` has `n` elements; the same address for both is allowed.
                unsafe { kernel(both.as_ptr(), both.as_mut_ptr(), n) };
                assert_eq!(
                    without_nan_of(dtype, &both.bytes()),
                    without_nan_of(dtype, &wanted),
                    "{op} {dtype}"
                );
            }
        }
    }
}
