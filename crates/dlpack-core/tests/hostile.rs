//! The door against hostile tensors, and against a second opinion in wider arithmetic on what it should say.
#![allow(missing_docs)]

mod claim;

use claim::{Claim, MOST, look};
use dlpack_core::{Device, DeviceKind};
use proptest::prelude::*;

/// What the door should say, worked out in `i128` and by the letter of the rules: the size in bytes, or a refusal.
fn second_opinion(claim: &Claim) -> Option<u128> {
    let (code, bits, lanes) = claim.dtype;
    let total = u32::from(bits) * u32::from(lanes);
    let named = match code {
        7..=14 => Some(8),
        15 | 16 => Some(6),
        17 => Some(4),
        _ => None,
    };
    let dtype_ok = code < 200
        && code != 3
        && total > 0
        && named.is_none_or(|n| n == bits)
        && (total.is_multiple_of(8) || bits < 8);
    if claim.flags > 7 || !(0..=MOST as i32).contains(&claim.ndim) || !dtype_ok {
        return None;
    }
    let ndim = claim.ndim as usize;
    if ndim > 0 && claim.shape.is_none() {
        return None;
    }
    let pad = |array: &Option<Vec<i64>>| {
        array.clone().map(|mut array| {
            array.resize(ndim, 1);
            array
        })
    };
    let shape = pad(&claim.shape).unwrap_or_default();
    if shape.iter().any(|&size| size < 0) {
        return None;
    }
    let limit = i128::from(i64::MAX);
    let numel = if shape.contains(&0) {
        0
    } else {
        shape.iter().try_fold(1i128, |n, &s| {
            Some(n * i128::from(s)).filter(|&n| n <= limit)
        })?
    };
    let packed = !total.is_multiple_of(8) && claim.flags & 4 == 0;
    let item = if packed {
        1
    } else {
        i128::from(total.div_ceil(8))
    };
    if numel * item > limit {
        return None;
    }
    let strides = pad(&claim.strides);
    let (mut low, mut high) = (0i128, item);
    let mut compact = item;
    let mut contiguous = true;
    for axis in (0..ndim).rev() {
        let size = i128::from(shape[axis]);
        let stride = strides
            .as_ref()
            .map_or(compact, |s| i128::from(s[axis]) * item);
        if size > 1 && numel > 0 {
            if i64::try_from(stride).is_err() {
                return None;
            }
            contiguous &= stride == compact;
            let reach = (size - 1) * stride;
            if reach < 0 {
                low += reach
            } else {
                high += reach
            }
        }
        compact = compact
            .saturating_mul(size.max(1))
            .min(i128::MAX / (1 << 70));
    }
    if numel == 0 {
        return Some(0);
    }
    if low < i128::from(i64::MIN) || high > limit || high - low > limit || (packed && !contiguous) {
        return None;
    }
    let bytes = (numel * i128::from(total)) as u128;
    let bytes = if packed {
        bytes.div_ceil(8)
    } else {
        (numel * item) as u128
    };
    if bytes > limit as u128 || claim.data == 0 {
        return None;
    }
    let end = if packed { bytes as i128 } else { high };
    // No allocation is larger than half the address space.
    if i128::from(claim.byte_offset) > limit {
        return None;
    }
    let first = claim.data as i128 + i128::from(claim.byte_offset);
    let room = 0..=u64::MAX.into();
    if !room.contains(&first) || !room.contains(&(first + low)) || !room.contains(&(first + end)) {
        return None;
    }
    Some(bytes)
}

fn size() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => 0i64..=4,
        3 => Just(1i64),
        1 => prop::sample::select(vec![i64::MIN, -1, -7, i64::MAX, 1 << 31, 1 << 32, 1 << 61, 1 << 62]),
        1 => any::<i64>(),
    ]
}

fn stride() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -20i64..=20,
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, i64::MAX / 2, i64::MIN / 2, 1 << 60, -(1 << 60)]),
        1 => any::<i64>(),
    ]
}

fn claim() -> impl Strategy<Value = Claim> {
    let ndim = prop_oneof![
        12 => 0i32..=5,
        1 => 60i32..=64,
        1 => prop::sample::select(vec![-1, 65, 1 << 20, i32::MAX, i32::MIN]),
    ];
    let dtype = prop_oneof![
        6 => prop::sample::select(vec![(0u8, 32u8, 1u16), (2, 16, 1), (2, 64, 1), (4, 16, 1), (5, 128, 1), (6, 8, 1)]),
        4 => prop::sample::select(vec![(17u8, 4u8, 1u16), (15, 6, 1), (17, 4, 2), (6, 1, 1), (1, 4, 3), (10, 8, 1)]),
        1 => prop::sample::select(vec![(17u8, 8u8, 1u16), (200, 128, 1), (202, 8, 4), (0, 0, 1), (0, 32, 0), (1, 12, 1)]),
        2 => any::<(u8, u8, u16)>(),
    ];
    let data = prop_oneof![
        8 => Just(0x7f00_0000_1000usize),
        1 => Just(0usize),
        1 => prop::sample::select(vec![1usize, 64, usize::MAX, usize::MAX - 100]),
    ];
    let byte_offset = prop_oneof![6 => Just(0u64), 2 => 0u64..200, 1 => any::<u64>()];
    let flags = prop_oneof![10 => 0u64..8, 1 => any::<u64>()];
    let shape = prop::option::weighted(0.95, prop::collection::vec(size(), 0..=6));
    let strides = prop::option::weighted(0.6, prop::collection::vec(stride(), 0..=6));
    (
        data,
        any::<(i32, i32)>(),
        ndim,
        dtype,
        shape,
        strides,
        byte_offset,
        flags,
    )
        .prop_map(
            |(data, device, ndim, dtype, shape, strides, byte_offset, flags)| Claim {
                data,
                device,
                ndim,
                dtype,
                shape,
                strides,
                byte_offset,
                flags,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_says_what_the_rules_say(claim in claim()) {
        let seen = look(&claim);
        let expected = second_opinion(&claim);
        prop_assert_eq!(seen.as_ref().ok().map(|view| view.layout().nbytes() as u128), expected, "{:?}", seen);
        match seen {
            Err(why) => prop_assert!(why.to_string().len() > 20),
            Ok(view) => {
                prop_assert_eq!(view.device(), Device::new(DeviceKind(claim.device.0), claim.device.1));
                prop_assert_eq!(view.readonly(), claim.flags & 1 != 0);
                prop_assert_eq!(view.copied(), claim.flags & 2 != 0);
                if view.numel() > 0 {
                    prop_assert_eq!(view.data().addr() as u128, claim.data as u128 + u128::from(claim.byte_offset));
                }
                // Whatever the layout, these end and do not panic.
                let refused = claim.flags & 3 != 0 || view.layout().overlaps();
                prop_assert_eq!(view.check_writable().is_err(), refused);
            }
        }
    }
}
