//! Every kernel against a second opinion, on every tier that this processor has, for all short lengths and
//! some long ones, in memory without alignment. Refuses to know how a kernel computes.
#![allow(clippy::unwrap_used)]

#[path = "kernels/data.rs"]
mod data;
#[path = "kernels/oracle.rs"]
mod oracle;

use data::{Random, Shifted};
use oracle::Format;
use tensor_comm::DType;
use tensor_comm::kernels::{
    ReduceOp, Tier, kernel, kernel_for, meaning, narrow, narrow_for, scale, widen, widen_for,
};

const INTEGERS: [DType; 8] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];
const COMPLEX: [DType; 3] = [DType::C32, DType::C64, DType::C128];
const SMALL: [DType; 9] = [
    DType::F16,
    DType::BF16,
    DType::F8_E3M4,
    DType::F8_E4M3,
    DType::F8_E4M3B11FNUZ,
    DType::F8_E4M3FN,
    DType::F8_E4M3FNUZ,
    DType::F8_E5M2,
    DType::F8_E5M2FNUZ,
];

fn every_dtype() -> Vec<DType> {
    let others = [DType::BOOL, DType::F32, DType::F64, DType::F8_E8M0FNU];
    [&INTEGERS[..], &COMPLEX, &SMALL, &others].concat()
}

/// Every length up to 130, and some whose remainders are awkward.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=130).chain([255, 1023, 4099])
}

fn tiers() -> impl Iterator<Item = Tier> {
    Tier::ALL.into_iter().filter(|tier| tier.available())
}

/// Runs the kernel of a tier on two vectors of elements; memory is `shift` bytes off alignment.
fn reduce(
    tier: Tier,
    op: ReduceOp,
    dtype: DType,
    low: &[u8],
    high: &[u8],
    shift: usize,
) -> Vec<u8> {
    let kernel = kernel_for(tier, op, dtype).expect("a kernel for an operation with meaning");
    let input = Shifted::new(low, shift);
    let mut inout = Shifted::new(high, (shift * 3) % 8);
    let n = low.len() / dtype.itemsize().unwrap();
    // SAFETY: both have `n` elements of the dtype, in separate memory.
    unsafe { kernel(input.as_ptr(), inout.as_mut_ptr(), n) };
    assert_eq!(input.bytes(), low, "the input was written to");
    inout.bytes()
}

/// One number of `bytes`, as unsigned bits.
fn bits(bytes: &[u8], size: usize, at: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
    u64::from_le_bytes(whole)
}

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

/// A part of a number as a double, and how to tell whether bits are right for a double.
fn decode(dtype: DType, code: u64) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::from_bits(code),
        DType::F32 | DType::C64 => f64::from(f32::from_bits(code as u32)),
        _ => unreachable!("the small formats have their own table"),
    }
}

fn right(dtype: DType, code: u64, wanted: f64) -> bool {
    let found = decode(dtype, code);
    match dtype {
        DType::F64 | DType::C128 => {
            found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan())
        }
        // Twice rounded is once rounded: a double is wide enough.
        _ => {
            let wanted = wanted as f32;
            (found as f32).to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan())
        }
    }
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

/// The numbers of `bytes` as bits, each NaN as `None`.
fn without_nan(dtype: DType, bytes: &[u8]) -> Vec<Option<u64>> {
    let size = dtype.itemsize().unwrap() / if dtype.is_complex() { 2 } else { 1 };
    let format = match dtype {
        DType::C32 => Some(Format::of(DType::F16)),
        dtype if SMALL.contains(&dtype) => Some(Format::of(dtype)),
        _ => None,
    };
    let is_nan = |code: u64| match (&format, dtype) {
        (Some(format), _) => format.is_nan(code as u32),
        (None, DType::F8_E8M0FNU) => code == 255,
        (None, dtype) => decode(dtype, code).is_nan(),
    };
    let codes = (0..bytes.len() / size).map(|i| bits(bytes, size, i));
    codes.map(|code| (!is_nan(code)).then_some(code)).collect()
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

/// As [`without_nan`]; integers as they are.
fn without_nan_of(dtype: DType, bytes: &[u8]) -> Vec<Option<u64>> {
    if dtype.is_int() || dtype == DType::BOOL {
        return bytes.iter().map(|&byte| Some(byte.into())).collect();
    }
    without_nan(dtype, bytes)
}

/// Widens codes on a tier.
fn widened(tier: Tier, dtype: DType, codes: &[u8], n: usize, shift: usize) -> Vec<f32> {
    let input = Shifted::new(codes, shift);
    let count = if dtype.is_complex() { 2 * n } else { n };
    let mut output = Shifted::new(&vec![0x55; 4 * count], (shift * 3) % 8);
    // SAFETY: `input` has `n` elements, and `output` room for as many float32 (twice as many if complex).
    unsafe { widen_for(tier, dtype).unwrap()(input.as_ptr(), output.as_mut_ptr().cast(), n) };
    assert_eq!(input.bytes(), codes);
    output
        .bytes()
        .chunks(4)
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect()
}

/// Rounds float32 to codes on a tier.
fn narrowed(tier: Tier, dtype: DType, values: &[f32], shift: usize) -> Vec<u8> {
    let n = if dtype.is_complex() {
        values.len() / 2
    } else {
        values.len()
    };
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let input = Shifted::new(&bytes, shift);
    let mut output = Shifted::new(&vec![0x55; n * dtype.itemsize().unwrap()], (shift * 3) % 8);
    // SAFETY: `input` has as many float32 as `n` elements have parts, and `output` room for `n` elements.
    unsafe { narrow_for(tier, dtype).unwrap()(input.as_ptr().cast(), output.as_mut_ptr(), n) };
    output.bytes()
}

#[test]
fn every_code_widens_to_its_number_and_back() {
    for dtype in SMALL {
        let format = Format::of(dtype);
        let size = dtype.itemsize().unwrap();
        let codes: Vec<u8> = (0..format.codes())
            .flat_map(|code| code.to_le_bytes()[..size].to_vec())
            .collect();
        for tier in tiers() {
            let values = widened(tier, dtype, &codes, format.codes() as usize, 3);
            for (code, &value) in values.iter().enumerate() {
                let wanted = format.decode(code as u32);
                let fine = value.to_bits() == (wanted as f32).to_bits()
                    || (value.is_nan() && wanted.is_nan());
                assert!(
                    fine,
                    "{dtype} {tier:?} {code:#x}: {value:e}, not {wanted:e}"
                );
            }
            let back = narrowed(tier, dtype, &values, 5);
            for code in 0..format.codes() as usize {
                let found = bits(&back, size, code) as u32;
                let fine =
                    found == code as u32 || (format.is_nan(found) && format.is_nan(code as u32));
                assert!(fine, "{dtype} {tier:?} {code:#x} came back as {found:#x}");
            }
        }
    }
}

#[test]
fn rounding_is_to_nearest_even_at_every_boundary() {
    let mut random = Random::fresh();
    for dtype in SMALL {
        let format = Format::of(dtype);
        let mut values = vec![
            0.0,
            -0.0,
            f32::NAN,
            -f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
        ];
        values.extend([
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0xff80_ffff),
            f32::from_bits(1),
            f32::MIN_POSITIVE,
        ]);
        // Half-way between neighbours, and on either side of it; the last step leads beyond the largest.
        for code in 0..format.codes() / 2 {
            let (here, next) = (format.decode(code), format.decode(code + 1));
            let next = if next.is_finite() {
                next
            } else {
                2.0 * here - format.decode(code.max(1) - 1)
            };
            let middle = ((here + next) / 2.0) as f32;
            for value in [middle, middle.next_up(), middle.next_down()] {
                values.extend([value, -value]);
            }
        }
        values.extend((0..20_000).map(|_| f32::from_bits(random.next() as u32)));
        for tier in tiers() {
            let size = dtype.itemsize().unwrap();
            let found = narrowed(tier, dtype, &values, 1);
            for (i, &value) in values.iter().enumerate() {
                let code = bits(&found, size, i) as u32;
                assert!(
                    format.agrees(code, value.into()),
                    "{dtype} {tier:?}: {value:e} became {code:#x}; seed {}",
                    random.seed
                );
            }
        }
    }
}

#[test]
fn conversions_of_all_lengths_and_of_pairs() {
    let mut random = Random::fresh();
    for dtype in SMALL.into_iter().chain([DType::C32]) {
        for n in lengths() {
            let codes = random.elements(dtype, n);
            let plain = widened(Tier::Portable, dtype, &codes, n, 0);
            for tier in tiers() {
                let values = widened(tier, dtype, &codes, n, n % 5);
                let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits();
                assert!(
                    values.iter().zip(&plain).all(|(a, b)| same(a, b)),
                    "{dtype} {tier:?} {n}"
                );
                assert_eq!(
                    narrowed(tier, dtype, &values, n % 7),
                    narrowed(Tier::Portable, dtype, &plain, 0)
                );
            }
        }
    }
}

#[test]
fn half_agrees_with_the_half_crate() {
    let mut random = Random::fresh();
    let values: Vec<f32> = (0..50_000)
        .map(|_| f32::from_bits(random.next() as u32))
        .collect();
    for tier in tiers() {
        let halves = narrowed(tier, DType::F16, &values, 0);
        let brains = narrowed(tier, DType::BF16, &values, 0);
        for (i, &value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| !value.is_nan())
        {
            assert_eq!(
                bits(&halves, 2, i) as u16,
                half::f16::from_f32(value).to_bits(),
                "{value:e}"
            );
            assert_eq!(
                bits(&brains, 2, i) as u16,
                half::bf16::from_f32(value).to_bits(),
                "{value:e}"
            );
        }
    }
}

#[test]
fn means_are_divisions_rounded_once() {
    let mut random = Random::fresh();
    let floats = SMALL
        .into_iter()
        .chain(COMPLEX)
        .chain([DType::F32, DType::F64]);
    for dtype in floats {
        let parts = if dtype.is_complex() { 2 } else { 1 };
        let size = dtype.itemsize().unwrap() / parts;
        let format = match dtype {
            DType::C32 => Some(Format::of(DType::F16)),
            dtype if SMALL.contains(&dtype) => Some(Format::of(dtype)),
            _ => None,
        };
        for n in lengths() {
            let divisor = [1, 2, 3, 7, 48, 4096][n % 6];
            let sums = random.elements(dtype, n);
            let mut data = Shifted::new(&sums, n % 5);
            // SAFETY: `data` has `n` elements.
            assert!(unsafe { scale(dtype, data.as_mut_ptr(), n, divisor) });
            let found = data.bytes();
            for i in 0..n * parts {
                let (sum, mean) = (bits(&sums, size, i), bits(&found, size, i));
                let fine = match &format {
                    Some(format) => {
                        format.agrees(mean as u32, format.decode(sum as u32) / divisor as f64)
                    }
                    None => right(dtype, mean, decode(dtype, sum) / divisor as f64),
                };
                assert!(
                    fine,
                    "{dtype} {sum:#x} / {divisor} gave {mean:#x}; seed {}",
                    random.seed
                );
            }
        }
    }
}

#[test]
fn what_has_no_mean_is_not_touched() {
    let vector = DType::new(DType::F32.code, 32, 4);
    for dtype in [
        &INTEGERS[..],
        &[
            DType::BOOL,
            DType::F8_E8M0FNU,
            DType::LONG_DOUBLE,
            DType::raw(8),
            vector,
        ],
    ]
    .concat()
    {
        let mut data = Shifted::new(&[7; 64], 0);
        // SAFETY: `data` has room for two elements of any of these.
        assert!(!unsafe { scale(dtype, data.as_mut_ptr(), 2, 3) }, "{dtype}");
        assert_eq!(data.bytes(), [7; 64]);
    }
}

#[test]
fn meaning_and_kernels_agree() {
    for code in 0..=255 {
        for bits in [0, 1, 4, 6, 8, 16, 32, 64, 128, 255] {
            for lanes in [0, 1, 2, 4] {
                let dtype = DType::new(dlpack_core::TypeCode(code), bits, lanes);
                for op in ReduceOp::ALL {
                    let known = kernel(op, dtype).is_some();
                    let means = meaning(op, dtype).is_ok();
                    // The arithmetic of C's long double is the library's: meaning without a kernel.
                    let by_library = code == 200 || code == 201;
                    assert!(known == means || (by_library && means), "{op} {dtype}");
                }
                assert_eq!(widen(dtype).is_some(), narrow(dtype).is_some(), "{dtype}");
            }
        }
    }
}

#[test]
fn refusals_say_what_was_asked_and_what_can_be() {
    let message = meaning(ReduceOp::Sum, DType::BOOL).unwrap_err();
    for part in ["SUM", "bool", "LOR", "LAND"] {
        assert!(message.contains(part), "{message}");
    }
    let message = meaning(ReduceOp::Max, DType::C64).unwrap_err();
    for part in ["MAX", "complex64", "SUM, PROD", "order"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(
        meaning(ReduceOp::Band, DType::F32)
            .unwrap_err()
            .contains("BAND")
    );
    assert!(
        meaning(ReduceOp::Sum, DType::F4_E2M1FN)
            .unwrap_err()
            .contains("wider")
    );
    assert!(
        meaning(ReduceOp::Sum, DType::raw(12))
            .unwrap_err()
            .contains("moved")
    );
    assert!(
        meaning(ReduceOp::Sum, DType::F8_E8M0FNU)
            .unwrap_err()
            .contains("powers of two")
    );
}
