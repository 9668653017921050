//! What a PEP 3118 format string says about an element, as a [`DType`]. Knows no Python object.
//!
//! Widths come from the exporter's item size, not from the letter: `l` is 4 or 8 bytes depending on
//! platform and byte-order prefix, the item size is what the memory really has.

use dlpack_core::{DType, TypeCode};

/// Letters of signed integers (`n` is `ssize_t`).
const SIGNED: &[u8] = b"bhilqn";
/// Letters of unsigned integers (`P` is a pointer-sized integer, as mpi4py has it).
const UNSIGNED: &[u8] = b"BHILQNP";
/// Codes that are an address in this process and mean nothing in another one.
const ADDRESSES: &[u8] = b"O&X";

/// The element type of `format`, or in words why there is none.
///
/// # Errors
/// In words: foreign byte order, Python objects and pointers, unknown codes.
pub fn parse(format: &[u8], itemsize: usize) -> Result<DType, String> {
    let (order, code) = match format.first() {
        Some(b'@' | b'=' | b'<' | b'>' | b'!' | b'^') => (format[0], &format[1..]),
        _ => (b'@', format),
    };
    let scalar = match code {
        [letter] => number(*letter, itemsize),
        [b'Z', letter] => complex(*letter, itemsize),
        b"bfloat16" if itemsize == 2 => Some(DType::BF16),
        _ => None,
    };
    if let Some(dtype) = scalar {
        return match foreign_order(order) && itemsize > 1 {
            true => Err(format!(
                "format '{}' has foreign byte order; convert it to native order first, e.g. `a.astype(a.dtype.newbyteorder('='))`",
                text(format)
            )),
            false => Ok(dtype),
        };
    }
    no_addresses(format)?;
    if has_foreign_numbers(order, code) {
        return Err(format!(
            "format '{}' holds numbers of foreign byte order; convert them to native order first, e.g. `a.astype(a.dtype.newbyteorder('='))`",
            text(format)
        ));
    }
    let lone_number =
        matches!(code, [letter] if !b"csxpuw".contains(letter)) || code.first() == Some(&b'Z');
    if lone_number || !is_record(code) {
        return Err(format!(
            "format '{}' with {itemsize} bytes an element is not known",
            text(format)
        ));
    }
    raw(itemsize)
}

/// Refuses formats with Python objects or pointers, which are no data.
///
/// # Errors
/// In words.
pub fn no_addresses(format: &[u8]) -> Result<(), String> {
    match without_names(format).any(|letter| ADDRESSES.contains(&letter)) {
        true => Err(format!(
            "format '{}' holds Python objects or pointers, which mean nothing in another process; use mpi4py's lower-case methods, which pickle",
            text(format)
        )),
        false => Ok(()),
    }
}

/// `itemsize` bytes that are moved and never reduced.
///
/// # Errors
/// In words, when one element is larger than a [`DType`] can say.
pub fn raw(itemsize: usize) -> Result<DType, String> {
    match u16::try_from(itemsize) {
        Ok(size) if size > 0 => Ok(DType::raw(size)),
        Ok(_) => Err("elements of 0 bytes carry no data".to_owned()),
        Err(_) => Err(format!(
            "elements of {itemsize} bytes are too large (at most {} bytes); pass a view of bytes",
            u16::MAX
        )),
    }
}

fn number(letter: u8, itemsize: usize) -> Option<DType> {
    if SIGNED.contains(&letter) {
        return integer(TypeCode::INT, itemsize);
    }
    if UNSIGNED.contains(&letter) {
        return integer(TypeCode::UINT, itemsize);
    }
    match (letter, itemsize) {
        (b'?', 1) => Some(DType::BOOL),
        (b'e', 2) => Some(DType::F16),
        (b'f', 4) => Some(DType::F32),
        (b'd', 8) | (b'g', 8) => Some(DType::F64),
        (b'g', 16) => Some(DType::LONG_DOUBLE),
        // UCS-2 and UCS-4 code units: mpi4py moves them as unsigned integers.
        (b'u', 2) | (b'w', 4) => integer(TypeCode::UINT, itemsize),
        (b'E' | b'F' | b'D' | b'G', _) => complex(letter.to_ascii_lowercase(), itemsize),
        _ => None,
    }
}

/// A complex number of two `letter`s.
fn complex(letter: u8, itemsize: usize) -> Option<DType> {
    match (letter, itemsize) {
        (b'e', 4) => Some(DType::C32),
        (b'f', 8) => Some(DType::C64),
        (b'd', 16) | (b'g', 16) => Some(DType::C128),
        (b'g', 32) => Some(DType::COMPLEX_LONG_DOUBLE),
        _ => None,
    }
}

fn integer(code: TypeCode, itemsize: usize) -> Option<DType> {
    match itemsize {
        1 | 2 | 4 | 8 => Some(DType::new(code, itemsize as u8 * 8, 1)),
        _ => None,
    }
}

/// Has a record a number of more than one byte in another byte order? A mark counts until the next one.
fn has_foreign_numbers(order: u8, code: &[u8]) -> bool {
    const ONE_BYTE: &[u8] = b"?bBcsxpT";
    let mut order = order;
    without_names(code).any(|c| {
        if b"@=<>!^".contains(&c) {
            order = c;
        }
        foreign_order(order) && c.is_ascii_alphabetic() && !ONE_BYTE.contains(&c)
    })
}

/// Is this prefix another byte order than this machine's?
fn foreign_order(order: u8) -> bool {
    match order {
        b'<' => cfg!(target_endian = "big"),
        b'>' | b'!' => cfg!(target_endian = "little"),
        _ => false,
    }
}

/// The codes of a record without its field names, which stand between colons.
fn without_names(code: &[u8]) -> impl Iterator<Item = u8> {
    code.split(|&c| c == b':').step_by(2).flatten().copied()
}

/// Something whose bytes can be moved though it is no single number: characters, strings, padding,
/// records, repeated or nested numbers.
fn is_record(code: &[u8]) -> bool {
    const LETTERS: &[u8] = b"?bhilqnBHILQNPefdgEFDGZcspxuw";
    const MARKS: &[u8] = b"T{}(),0123456789 \t\n@=<>!^";
    !code.is_empty() && without_names(code).all(|c| LETTERS.contains(&c) || MARKS.contains(&c))
}

fn text(format: &[u8]) -> String {
    String::from_utf8_lossy(format).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_prefixes_all_mean_the_same() {
        for prefix in [
            "",
            "@",
            "=",
            if cfg!(target_endian = "little") {
                "<"
            } else {
                ">"
            },
        ] {
            assert_eq!(
                parse(format!("{prefix}d").as_bytes(), 8),
                Ok(DType::F64),
                "{prefix}"
            );
            assert_eq!(
                parse(format!("{prefix}Zf").as_bytes(), 8),
                Ok(DType::C64),
                "{prefix}"
            );
        }
    }

    #[test]
    fn width_comes_from_the_item_size() {
        assert_eq!(parse(b"l", 8), Ok(DType::I64));
        assert_eq!(parse(b"=l", 4), Ok(DType::I32));
        assert_eq!(parse(b"N", 8), Ok(DType::U64));
        assert_eq!(parse(b"g", 16), Ok(DType::LONG_DOUBLE));
        assert_eq!(parse(b"Zg", 32), Ok(DType::COMPLEX_LONG_DOUBLE));
    }

    #[test]
    fn foreign_byte_order_is_refused_in_words() {
        let foreign = if cfg!(target_endian = "little") {
            b">d"
        } else {
            b"<d"
        };
        assert!(parse(foreign, 8).is_err_and(|e| e.contains("byte order")));
        assert_eq!(parse(b">B", 1), Ok(DType::U8), "one byte has no order");
    }

    #[test]
    fn objects_and_pointers_are_refused_also_inside_records() {
        for format in ["O", "T{d:a:O:b:}", "&d", "X{}"] {
            assert!(
                parse(format.as_bytes(), 16).is_err_and(|e| e.contains("pickle")),
                "{format}"
            );
        }
    }

    #[test]
    fn records_move_as_bytes_and_field_names_are_not_codes() {
        assert_eq!(parse(b"T{=i:Oops:d:&x:}", 12), Ok(DType::raw(12)));
        assert_eq!(parse(b"5s", 5), Ok(DType::raw(5)));
        assert_eq!(parse(b"c", 1), Ok(DType::raw(1)));
        assert_eq!(parse(b"3w", 12), Ok(DType::raw(12)));
    }

    #[test]
    fn foreign_byte_order_is_found_inside_records() {
        let (foreign, native) = if cfg!(target_endian = "little") {
            ('>', '<')
        } else {
            ('<', '>')
        };
        for format in [
            format!("T{{{foreign}i:a:}}"),
            format!("T{{b:a:T{{{native}d:x:{foreign}d:y:}}:b:}}"),
            format!("{foreign}2w"),
        ] {
            assert!(
                parse(format.as_bytes(), 16).is_err_and(|e| e.contains("byte order")),
                "{format}"
            );
        }
        let harmless = format!("T{{{foreign}b:a:5s:b:{native}i:c:}}");
        assert_eq!(parse(harmless.as_bytes(), 10), Ok(DType::raw(10)));
    }

    #[test]
    fn impossible_widths_and_unknown_codes_are_errors() {
        assert!(parse(b"d", 4).is_err());
        assert!(parse(b"Zf", 16).is_err());
        assert!(parse(b"Y", 4).is_err());
        assert!(parse(b"", 1).is_err());
        assert!(parse(b"5s", 0).is_err());
        assert!(raw(70_000).is_err());
    }
}
