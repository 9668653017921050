//! Kernels and conversions called safely, and their results told apart.
//! Refuses to know what is right.

use crate::data::Shifted;
use crate::oracle::Format;
use tensor_comm::DType;
use tensor_comm::kernels::{ReduceOp, Tier, kernel_for, narrow_for, widen_for};

pub const INTEGERS: [DType; 8] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];
pub const COMPLEX: [DType; 3] = [DType::C32, DType::C64, DType::C128];
pub const SMALL: [DType; 9] = [
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

pub fn every_dtype() -> Vec<DType> {
    let others = [DType::BOOL, DType::F32, DType::F64, DType::F8_E8M0FNU];
    [&INTEGERS[..], &COMPLEX, &SMALL, &others].concat()
}

/// Every length up to 130, and some whose remainders are awkward.
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..=130).chain([255, 1023, 4099])
}

pub fn tiers() -> impl Iterator<Item = Tier> {
    Tier::ALL.into_iter().filter(|tier| tier.available())
}

/// Runs the kernel of a tier on two vectors of elements; memory is `shift` bytes off alignment.
pub fn reduce(
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
pub fn bits(bytes: &[u8], size: usize, at: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
    u64::from_le_bytes(whole)
}

/// A part of a number as a double, and how to tell whether bits are right for a double.
pub fn decode(dtype: DType, code: u64) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::from_bits(code),
        DType::F32 | DType::C64 => f64::from(f32::from_bits(code as u32)),
        _ => unreachable!("the small formats have their own table"),
    }
}

pub fn right(dtype: DType, code: u64, wanted: f64) -> bool {
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

/// The numbers of `bytes` as bits, each NaN as `None`.
pub fn without_nan(dtype: DType, bytes: &[u8]) -> Vec<Option<u64>> {
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

/// As [`without_nan`]; integers as they are.
pub fn without_nan_of(dtype: DType, bytes: &[u8]) -> Vec<Option<u64>> {
    if dtype.is_int() || dtype == DType::BOOL {
        return bytes.iter().map(|&byte| Some(byte.into())).collect();
    }
    without_nan(dtype, bytes)
}

/// Widens codes on a tier.
pub fn widened(tier: Tier, dtype: DType, codes: &[u8], n: usize, shift: usize) -> Vec<f32> {
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
pub fn narrowed(tier: Tier, dtype: DType, values: &[f32], shift: usize) -> Vec<u8> {
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
