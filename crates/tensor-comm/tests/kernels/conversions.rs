//! Widening, rounding, means and refusals. Refuses to know reductions.

use crate::data::{Random, Shifted};
use crate::oracle::Format;
use crate::run::*;
use tensor_comm::DType;
use tensor_comm::kernels::{ReduceOp, Tier, kernel, meaning, narrow, scale, widen};

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
