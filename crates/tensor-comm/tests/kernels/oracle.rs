//! Number formats by their definition: every code decoded by formula, every number encoded by a search for
//! the nearest code. Refuses to know the crate: it is the second opinion.

use tensor_comm::DType;

/// What lies beyond the largest number, and where NaN is.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Infinities and NaNs share the largest exponent.
    Ieee,
    /// All ones are NaN; there is no infinity.
    Fn,
    /// The bits of -0 are NaN; there is no infinity.
    Fnuz,
}

/// A format of one sign bit, `exponent` bits with a bias, and `mantissa` bits.
pub struct Format {
    pub dtype: DType,
    pub exponent: u32,
    pub mantissa: u32,
    pub bias: i32,
    pub kind: Kind,
    /// Every finite non-negative number, by its code: they rise with it.
    finite: Vec<f64>,
}

impl Format {
    pub fn all() -> Vec<Format> {
        use Kind::*;
        [
            (DType::F16, 5, 10, 15, Ieee),
            (DType::BF16, 8, 7, 127, Ieee),
            (DType::F8_E3M4, 3, 4, 3, Ieee),
            (DType::F8_E4M3, 4, 3, 7, Ieee),
            (DType::F8_E4M3B11FNUZ, 4, 3, 11, Fnuz),
            (DType::F8_E4M3FN, 4, 3, 7, Fn),
            (DType::F8_E4M3FNUZ, 4, 3, 8, Fnuz),
            (DType::F8_E5M2, 5, 2, 15, Ieee),
            (DType::F8_E5M2FNUZ, 5, 2, 16, Fnuz),
        ]
        .map(|(dtype, exponent, mantissa, bias, kind)| {
            let mut format = Format {
                dtype,
                exponent,
                mantissa,
                bias,
                kind,
                finite: vec![],
            };
            format.finite = (0..format.first_special())
                .map(|code| format.formula(code))
                .collect();
            format
        })
        .into()
    }

    pub fn of(dtype: DType) -> Format {
        let mut all = Format::all();
        let at = all
            .iter()
            .position(|format| format.dtype == dtype)
            .expect("a format of the table");
        all.swap_remove(at)
    }

    /// Number of codes.
    pub fn codes(&self) -> u32 {
        2 << (self.exponent + self.mantissa)
    }

    fn sign(&self) -> u32 {
        self.codes() / 2
    }

    /// The first code after the finite non-negative numbers.
    fn first_special(&self) -> u32 {
        match self.kind {
            Kind::Ieee => ((1 << self.exponent) - 1) << self.mantissa,
            Kind::Fn => self.sign() - 1,
            Kind::Fnuz => self.sign(),
        }
    }

    /// The definition: `1.m * 2^(e - bias)`, or `0.m * 2^(1 - bias)` where `e` is 0.
    fn formula(&self, code: u32) -> f64 {
        let one = 1u32 << self.mantissa;
        let (exponent, mantissa) = (code >> self.mantissa, code & (one - 1));
        let (significand, power) = match exponent {
            0 => (mantissa, 1 - self.bias),
            _ => (mantissa + one, exponent as i32 - self.bias),
        };
        f64::from(significand) / f64::from(one) * 2f64.powi(power)
    }

    pub fn is_nan(&self, code: u32) -> bool {
        match self.kind {
            Kind::Ieee => code & (self.sign() - 1) > self.first_special(),
            Kind::Fn => code & (self.sign() - 1) == self.sign() - 1,
            Kind::Fnuz => code == self.sign(),
        }
    }

    pub fn decode(&self, code: u32) -> f64 {
        if self.is_nan(code) {
            return f64::NAN;
        }
        let magnitude = code & (self.sign() - 1);
        let value = match self.finite.get(magnitude as usize) {
            Some(&value) => value,
            None => f64::INFINITY,
        };
        if code >= self.sign() { -value } else { value }
    }

    /// The code of the nearest number, of the even one of two as near; `None` for NaN, whose code is free.
    pub fn encode(&self, value: f64) -> Option<u32> {
        if value.is_nan() {
            return None;
        }
        let magnitude = value.abs();
        let largest = self.finite.len() - 1;
        // The number that would come next, if the format went on.
        let next = 2.0 * self.finite[largest] - self.finite[largest - 1];
        let at = |code: usize| self.finite.get(code).copied().unwrap_or(next);
        let above = self.finite.partition_point(|&finite| finite < magnitude);
        let code = if above == 0 || at(above.min(largest + 1)) == magnitude {
            above
        } else {
            let (down, up) = (magnitude - at(above - 1), at(above) - magnitude);
            match down.total_cmp(&up) {
                std::cmp::Ordering::Less => above - 1,
                std::cmp::Ordering::Greater => above,
                std::cmp::Ordering::Equal => above - 1 + (above - 1) % 2,
            }
        };
        let negative = value.is_sign_negative();
        if code > largest {
            return match self.kind {
                Kind::Ieee => Some(self.first_special() | if negative { self.sign() } else { 0 }),
                _ => None,
            };
        }
        // A format without -0 has one zero.
        let signed = negative && !(code == 0 && self.kind == Kind::Fnuz);
        Some(code as u32 | if signed { self.sign() } else { 0 })
    }

    /// Is `code` right where `value`, rounded to float32 and then once more, is wanted?
    pub fn agrees(&self, code: u32, value: f64) -> bool {
        // A double holds sums and products of these numbers so exactly that rounding it to float32 gives
        // what one float32 operation gives.
        match self.encode(f64::from(value as f32)) {
            Some(wanted) => code == wanted,
            None => self.is_nan(code),
        }
    }
}

/// MAX by the documented rule: NaN wins, -0 < +0. `None` stands for NaN.
pub fn max(a: f64, b: f64) -> Option<f64> {
    if a.is_nan() || b.is_nan() {
        return None;
    }
    Some(match a.total_cmp(&b) {
        std::cmp::Ordering::Less => b,
        _ => a,
    })
}

/// MIN by the documented rule.
pub fn min(a: f64, b: f64) -> Option<f64> {
    max(-a, -b).map(|value| -value)
}

#[test]
fn the_oracle_knows_published_numbers() {
    // Largest and smallest numbers, from the OCP 8-bit specification, IEEE 754 and ml_dtypes' finfo.
    let published = [
        (DType::F16, 65504.0, 2f64.powi(-24)),
        (DType::BF16, 3.3895313892515355e38, 2f64.powi(-133)),
        (DType::F8_E3M4, 15.5, 2f64.powi(-6)),
        (DType::F8_E4M3, 240.0, 2f64.powi(-9)),
        (DType::F8_E4M3B11FNUZ, 30.0, 2f64.powi(-13)),
        (DType::F8_E4M3FN, 448.0, 2f64.powi(-9)),
        (DType::F8_E4M3FNUZ, 240.0, 2f64.powi(-10)),
        (DType::F8_E5M2, 57344.0, 2f64.powi(-16)),
        (DType::F8_E5M2FNUZ, 57344.0, 2f64.powi(-17)),
    ];
    for (dtype, largest, smallest) in published {
        let format = Format::of(dtype);
        assert_eq!(format.finite.last(), Some(&largest), "{dtype}");
        assert_eq!(format.finite[1], smallest, "{dtype}");
    }
    let e4m3fn = Format::of(DType::F8_E4M3FN);
    // 464 is half-way to 480, which is NaN here: 448 is the even one of the two.
    assert_eq!(e4m3fn.encode(464.0), Some(0x7e));
    assert_eq!(e4m3fn.encode(464.1), None);
    assert_eq!(Format::of(DType::F16).encode(65520.0), Some(0x7c00));
    assert_eq!(Format::of(DType::F16).encode(65519.0), Some(0x7bff));
    assert_eq!(Format::of(DType::F8_E5M2FNUZ).encode(-0.0), Some(0));
}
