//! Inputs: fresh random numbers with every special one among them, in memory without alignment.
//! Refuses to know operations.

use std::hash::{BuildHasher, RandomState};
use tensor_comm::DType;

/// A generator whose seed is new in each run, and named when a test fails.
pub struct Random {
    pub seed: u64,
    state: u64,
}

impl Random {
    pub fn fresh() -> Random {
        let seed = RandomState::new().hash_one(0);
        Random { seed, state: seed }
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// `n` elements as bytes.
    pub fn elements(&mut self, dtype: DType, n: usize) -> Vec<u8> {
        let parts = if dtype.is_complex() { 2 } else { 1 };
        let part = dtype.itemsize().expect("whole bytes") / parts;
        let mut bytes = Vec::with_capacity(n * parts * part);
        for _ in 0..n * parts {
            let number = self.number(dtype, part);
            bytes.extend_from_slice(&number.to_le_bytes()[..part]);
        }
        bytes
    }

    /// The bits of one number: any bits, a moderate number, or a special one.
    fn number(&mut self, dtype: DType, part: usize) -> u64 {
        let bits = self.next();
        let choice = self.next() % 8;
        if dtype.is_int() || dtype == DType::BOOL {
            return match choice {
                0 | 1 => 0,
                2 => bits % 3,
                3 => u64::MAX,
                4 => 1 << (8 * part - 1),
                5 => (1 << (8 * part - 1)) - 1,
                _ => bits,
            };
        }
        let sign = 1u64 << (8 * part - 1);
        // The bits of the exponent above the mantissa, and those of 1.0.
        let (infinity, one): (u64, u64) = match (part, dtype) {
            (8, _) => (0x7ff0_0000_0000_0000, 0x3ff0_0000_0000_0000),
            (4, _) => (0x7f80_0000, 0x3f80_0000),
            (2, DType::BF16) => (0x7f80, 0x3f80),
            (2, _) => (0x7c00, 0x3c00),
            // Eight bits are few enough to meet every number among any bits.
            _ => return bits,
        };
        let quantum = infinity & infinity.wrapping_neg();
        match choice {
            0 => [
                0,
                sign,
                infinity,
                infinity | sign,
                infinity + 1,
                infinity | sign | (quantum / 2),
                infinity + quantum - 1,
            ][bits as usize % 7],
            1 => bits & (sign | (quantum - 1)), // subnormal
            2 | 3 => bits,
            _ => (one & infinity).wrapping_add(bits & (sign | (2 * quantum - 1))), // about 1
        }
    }
}

/// A copy of `bytes` that begins at any address, `shift` bytes after an aligned one, with guards.
pub struct Shifted {
    memory: Vec<u64>,
    shift: usize,
    length: usize,
}

const GUARD: u64 = 0xdead_beef_fee1_900d;

impl Shifted {
    pub fn new(bytes: &[u8], shift: usize) -> Shifted {
        assert!(shift < 8, "less than the guard before");
        let memory = vec![GUARD; 4 + bytes.len().div_ceil(8)];
        let mut shifted = Shifted {
            memory,
            shift,
            length: bytes.len(),
        };
        // SAFETY: `start` has room for the bytes: four words more than they fill were made.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), shifted.as_mut_ptr(), bytes.len()) };
        shifted
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.memory
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(8 + self.shift)
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory
            .as_mut_ptr()
            .cast::<u8>()
            .wrapping_add(8 + self.shift)
    }

    /// The bytes; fails if any byte around them has changed.
    pub fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self
            .memory
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let (start, end) = (8 + self.shift, 8 + self.shift + self.length);
        let guard = GUARD.to_ne_bytes();
        for (i, &byte) in all.iter().enumerate() {
            if !(start..end).contains(&i) {
                assert_eq!(
                    byte,
                    guard[i % 8],
                    "byte {i} beside {start}..{end} was written to"
                );
            }
        }
        all[start..end].to_vec()
    }
}
