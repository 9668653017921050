//! What NumPy's array interface (`typestr`, dtype names) says about an element, as a [`DType`].
//! Knows no Python object.

use dlpack_core::{DType, TypeCode};

use crate::format::raw;

/// The element type of a `typestr` such as `<f4`, or in words why there is none.
///
/// # Errors
/// In words: foreign byte order, Python objects, unknown kinds.
pub fn parse(typestr: &str) -> Result<DType, String> {
    let bytes = typestr.as_bytes();
    let (order, kind, size) = match bytes {
        [order @ (b'<' | b'>' | b'|' | b'='), kind, size @ ..] => (*order, *kind, size),
        [kind, size @ ..] => (b'=', *kind, size),
        [] => return Err("the typestr is empty".to_owned()),
    };
    if kind == b'O' {
        return Err(format!(
            "typestr '{typestr}' holds Python objects, which mean nothing in another process; use mpi4py's lower-case methods, which pickle"
        ));
    }
    let unknown = || format!("typestr '{typestr}' is not known");
    // Datetimes carry their unit behind the size: `<M8[ns]`.
    let size = size.split(|&c| c == b'[').next().unwrap_or(size);
    let size: usize = std::str::from_utf8(size)
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or_else(unknown)?;
    let bits = u8::try_from(size.saturating_mul(8)).unwrap_or(0);
    let dtype = match (kind, size) {
        (b'b', 1) => DType::BOOL,
        (b'i', 1 | 2 | 4 | 8) => DType::new(TypeCode::INT, bits, 1),
        (b'u', 1 | 2 | 4 | 8) => DType::new(TypeCode::UINT, bits, 1),
        (b'f', 2 | 4 | 8) => DType::new(TypeCode::FLOAT, bits, 1),
        (b'f', 16) => DType::LONG_DOUBLE,
        (b'c', 4 | 8 | 16) => DType::new(TypeCode::COMPLEX, bits, 1),
        (b'c', 32) => DType::COMPLEX_LONG_DOUBLE,
        (b'V' | b'S' | b'M' | b'm', _) => raw(size)?,
        (b'U', _) => raw(size.saturating_mul(4))?,
        _ => return Err(unknown()),
    };
    let foreign = if cfg!(target_endian = "little") {
        b'>'
    } else {
        b'<'
    };
    let has_order = !matches!(kind, b'b' | b'V' | b'S') && size > 1;
    if order == foreign && has_order {
        return Err(format!(
            "typestr '{typestr}' has foreign byte order; convert it to native order first, e.g. `a.astype(a.dtype.newbyteorder('='))`"
        ));
    }
    Ok(dtype)
}

/// Dtypes that no `typestr` can tell, by the name their array gives them (`ml_dtypes`), with the
/// bytes that one element really takes: sub-byte types take a whole byte there.
const NAMED: &[(&str, usize, DType)] = &[
    ("bfloat16", 2, DType::BF16),
    ("complex32", 4, DType::C32),
    ("bcomplex32", 4, DType::new(TypeCode::BCOMPLEX, 32, 1)),
    ("float8_e3m4", 1, DType::F8_E3M4),
    ("float8_e4m3", 1, DType::F8_E4M3),
    ("float8_e4m3b11fnuz", 1, DType::F8_E4M3B11FNUZ),
    ("float8_e4m3fn", 1, DType::F8_E4M3FN),
    ("float8_e4m3fnuz", 1, DType::F8_E4M3FNUZ),
    ("float8_e5m2", 1, DType::F8_E5M2),
    ("float8_e5m2fnuz", 1, DType::F8_E5M2FNUZ),
    ("float8_e8m0fnu", 1, DType::F8_E8M0FNU),
];

/// The element type that an array calls `name`, if its items are as wide as that.
pub fn named(name: &str, itemsize: usize) -> Option<DType> {
    NAMED
        .iter()
        .find(|row| row.0 == name && row.1 == itemsize)
        .map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_kind_and_size() {
        let native = if cfg!(target_endian = "little") {
            '<'
        } else {
            '>'
        };
        for (text, dtype) in [
            ("f4", DType::F32),
            ("i8", DType::I64),
            ("c16", DType::C128),
            ("u2", DType::U16),
        ] {
            assert_eq!(parse(&format!("{native}{text}")), Ok(dtype));
            assert_eq!(parse(text), Ok(dtype), "mpi4py's form has no byte order");
        }
        assert_eq!(parse("|b1"), Ok(DType::BOOL));
        assert_eq!(parse("<f16"), Ok(DType::LONG_DOUBLE));
        assert_eq!(parse("<M8[ns]"), Ok(DType::raw(8)));
        assert_eq!(parse("<U3"), Ok(DType::raw(12)));
    }

    #[test]
    fn refusals_are_in_words() {
        let foreign = if cfg!(target_endian = "little") {
            ">f4"
        } else {
            "<f4"
        };
        assert!(parse(foreign).is_err_and(|e| e.contains("byte order")));
        assert!(parse("|O").is_err_and(|e| e.contains("pickle")));
        assert!(parse("|O8").is_err_and(|e| e.contains("pickle")));
        assert!(parse("<f3").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn a_name_alone_is_not_believed() {
        assert_eq!(named("bfloat16", 2), Some(DType::BF16));
        assert_eq!(named("bfloat16", 4), None);
        assert_eq!(named("float32", 4), None);
    }
}
