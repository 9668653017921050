//! What an element is: an open set of type codes with a width and a number of lanes. Knows no arithmetic.

use core::fmt;

/// A type code by its DLPack number. Unknown numbers are kept as they are.
///
/// Codes from [`TypeCode::FIRST_OWN`] on are dlmpi's own and never accepted from foreign memory.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TypeCode(pub u8);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)+) => {
        impl TypeCode {
            $($(#[$doc])* pub const $name: TypeCode = TypeCode($value);)+
        }
    };
}

codes! {
    /// Signed integer.
    INT = 0;
    /// Unsigned integer.
    UINT = 1;
    /// IEEE floating point.
    FLOAT = 2;
    /// A handle without meaning outside its framework.
    OPAQUE_HANDLE = 3;
    /// bfloat16.
    BFLOAT = 4;
    /// A pair of IEEE floats; the width is that of the pair.
    COMPLEX = 5;
    /// Truth value.
    BOOL = 6;
    /// 8-bit float.
    FLOAT8_E3M4 = 7;
    /// 8-bit float.
    FLOAT8_E4M3 = 8;
    /// 8-bit float.
    FLOAT8_E4M3B11FNUZ = 9;
    /// 8-bit float.
    FLOAT8_E4M3FN = 10;
    /// 8-bit float.
    FLOAT8_E4M3FNUZ = 11;
    /// 8-bit float.
    FLOAT8_E5M2 = 12;
    /// 8-bit float.
    FLOAT8_E5M2FNUZ = 13;
    /// 8-bit exponent only.
    FLOAT8_E8M0FNU = 14;
    /// 6-bit float.
    FLOAT6_E2M3FN = 15;
    /// 6-bit float.
    FLOAT6_E3M2FN = 16;
    /// 4-bit float.
    FLOAT4_E2M1FN = 17;
    /// A pair of bfloat16.
    BCOMPLEX = 18;
    /// The first code that only dlmpi uses.
    FIRST_OWN = 200;
    /// C `long double`.
    LONG_DOUBLE = 200;
    /// A pair of C `long double`.
    COMPLEX_LONG_DOUBLE = 201;
    /// Bytes without arithmetic: 8 bits times lanes.
    RAW = 202;
}

impl TypeCode {
    /// The width that this code fixes by its name, if it does, and the name.
    const fn fixed(self) -> Option<(u8, &'static str)> {
        Some(match self {
            TypeCode::FLOAT8_E3M4 => (8, "float8_e3m4"),
            TypeCode::FLOAT8_E4M3 => (8, "float8_e4m3"),
            TypeCode::FLOAT8_E4M3B11FNUZ => (8, "float8_e4m3b11fnuz"),
            TypeCode::FLOAT8_E4M3FN => (8, "float8_e4m3fn"),
            TypeCode::FLOAT8_E4M3FNUZ => (8, "float8_e4m3fnuz"),
            TypeCode::FLOAT8_E5M2 => (8, "float8_e5m2"),
            TypeCode::FLOAT8_E5M2FNUZ => (8, "float8_e5m2fnuz"),
            TypeCode::FLOAT8_E8M0FNU => (8, "float8_e8m0fnu"),
            TypeCode::FLOAT6_E2M3FN => (6, "float6_e2m3fn"),
            TypeCode::FLOAT6_E3M2FN => (6, "float6_e3m2fn"),
            TypeCode::FLOAT4_E2M1FN => (4, "float4_e2m1fn"),
            _ => return None,
        })
    }

    /// The width that this code fixes by its name: 8, 6 or 4 for the small floats.
    pub const fn fixed_bits(self) -> Option<u8> {
        match self.fixed() {
            Some((bits, _)) => Some(bits),
            None => None,
        }
    }
}

/// An element type: code, width in bits, lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType {
    /// What kind of number.
    pub code: TypeCode,
    /// Width of one lane in bits.
    pub bits: u8,
    /// Lanes of a vector type; 1 for a scalar.
    pub lanes: u16,
}

macro_rules! dtypes {
    ($($name:ident = $code:ident $bits:literal;)+) => {
        #[allow(missing_docs, reason = "each is its name")]
        impl DType {
            $(pub const $name: DType = DType::new(TypeCode::$code, $bits, 1);)+
        }
    };
}

dtypes! {
    BOOL = BOOL 8;
    I8 = INT 8;
    I16 = INT 16;
    I32 = INT 32;
    I64 = INT 64;
    U8 = UINT 8;
    U16 = UINT 16;
    U32 = UINT 32;
    U64 = UINT 64;
    F16 = FLOAT 16;
    F32 = FLOAT 32;
    F64 = FLOAT 64;
    BF16 = BFLOAT 16;
    C32 = COMPLEX 32;
    C64 = COMPLEX 64;
    C128 = COMPLEX 128;
    F8_E3M4 = FLOAT8_E3M4 8;
    F8_E4M3 = FLOAT8_E4M3 8;
    F8_E4M3B11FNUZ = FLOAT8_E4M3B11FNUZ 8;
    F8_E4M3FN = FLOAT8_E4M3FN 8;
    F8_E4M3FNUZ = FLOAT8_E4M3FNUZ 8;
    F8_E5M2 = FLOAT8_E5M2 8;
    F8_E5M2FNUZ = FLOAT8_E5M2FNUZ 8;
    F8_E8M0FNU = FLOAT8_E8M0FNU 8;
    F6_E2M3FN = FLOAT6_E2M3FN 6;
    F6_E3M2FN = FLOAT6_E3M2FN 6;
    F4_E2M1FN = FLOAT4_E2M1FN 4;
    LONG_DOUBLE = LONG_DOUBLE 128;
    COMPLEX_LONG_DOUBLE = COMPLEX_LONG_DOUBLE 0;
}

impl DType {
    /// An element type from its parts.
    pub const fn new(code: TypeCode, bits: u8, lanes: u16) -> DType {
        DType { code, bits, lanes }
    }

    /// `itemsize` bytes that are moved and never reduced.
    pub const fn raw(itemsize: u16) -> DType {
        DType::new(TypeCode::RAW, 8, itemsize)
    }

    /// Width of one element in bits, all lanes together.
    #[inline]
    pub const fn bits_total(self) -> usize {
        match self.code {
            // A pair of 128-bit lanes does not fit into `bits`.
            TypeCode::COMPLEX_LONG_DOUBLE => 256 * self.lanes as usize,
            _ => self.bits as usize * self.lanes as usize,
        }
    }

    /// Bytes of one element; `None` for types that are packed across byte boundaries.
    #[inline]
    pub const fn itemsize(self) -> Option<usize> {
        match self.bits_total() {
            bits if bits.is_multiple_of(8) => Some(bits / 8),
            _ => None,
        }
    }

    /// IEEE, bfloat16, the small floats and `long double`.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(
            self.code,
            TypeCode::FLOAT | TypeCode::BFLOAT | TypeCode::LONG_DOUBLE
        ) || self.code.fixed_bits().is_some()
    }

    /// Signed or unsigned.
    #[inline]
    pub const fn is_int(self) -> bool {
        matches!(self.code, TypeCode::INT | TypeCode::UINT)
    }

    /// A pair of floats.
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(
            self.code,
            TypeCode::COMPLEX | TypeCode::BCOMPLEX | TypeCode::COMPLEX_LONG_DOUBLE
        )
    }

    /// A truth value.
    #[inline]
    pub const fn is_bool(self) -> bool {
        matches!(self.code, TypeCode::BOOL)
    }

    /// Does this type come from dlmpi itself, so that no DLPack producer may claim it?
    #[inline]
    pub const fn is_own(self) -> bool {
        self.code.0 >= TypeCode::FIRST_OWN.0
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits;
        match self.code {
            TypeCode::RAW => return write!(f, "raw{}", self.bits_total() / 8),
            TypeCode::LONG_DOUBLE => f.write_str("longdouble")?,
            TypeCode::COMPLEX_LONG_DOUBLE => f.write_str("clongdouble")?,
            TypeCode::BOOL if bits == 8 => f.write_str("bool")?,
            TypeCode::BOOL => write!(f, "bool{bits}")?,
            TypeCode::INT => write!(f, "int{bits}")?,
            TypeCode::UINT => write!(f, "uint{bits}")?,
            TypeCode::FLOAT => write!(f, "float{bits}")?,
            TypeCode::BFLOAT => write!(f, "bfloat{bits}")?,
            TypeCode::COMPLEX => write!(f, "complex{bits}")?,
            TypeCode::BCOMPLEX => write!(f, "bcomplex{bits}")?,
            TypeCode::OPAQUE_HANDLE => write!(f, "opaque_handle{bits}")?,
            code => match code.fixed() {
                Some((width, name)) if width == bits => f.write_str(name)?,
                Some((_, name)) => write!(f, "{name} of {bits} bits")?,
                None => write!(f, "dtype code {} of {bits} bits", code.0)?,
            },
        }
        match self.lanes {
            1 => Ok(()),
            lanes => write!(f, "x{lanes}"),
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
