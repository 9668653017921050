"""Right bytes, without dlmpi: NumPy's for its own dtypes, written out by hand for the others."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["as_bytes", "default", "room"]

#: 0, 1, 2 and 3 (0, 1, 2 and 4 where 3 is no number of the type) in dtypes that NumPy has not.
_BITS = {
    "bfloat16": np.array([0x0000, 0x3F80, 0x4000, 0x4040], np.uint16),
    "float8_e4m3": np.array([0x00, 0x38, 0x40, 0x44], np.uint8),
    "float8_e4m3fn": np.array([0x00, 0x38, 0x40, 0x44], np.uint8),
    "float8_e5m2": np.array([0x00, 0x3C, 0x40, 0x42], np.uint8),
    "float8_e3m4": np.array([0x00, 0x30, 0x40, 0x48], np.uint8),
    "float8_e4m3fnuz": np.array([0x00, 0x40, 0x48, 0x4C], np.uint8),
    "float8_e5m2fnuz": np.array([0x00, 0x40, 0x44, 0x46], np.uint8),
    "float8_e4m3b11fnuz": np.array([0x00, 0x58, 0x60, 0x64], np.uint8),
    "float8_e8m0fnu": np.array([0x7F, 0x80, 0x81, 0x82], np.uint8),
    "complex32": np.array([0, 0, 1, 0, 2, 0, 3, 0], np.float16),
    "bool": np.array([False, True, True, True]),
}


def default(dtype: str) -> Any:
    """Return 0, 1, 2, 3 in a dtype, as an array whose bytes are right (e8m0: 1, 2, 4, 8)."""
    return _BITS[dtype] if dtype in _BITS else np.arange(4, dtype=np.dtype(dtype))


def as_bytes(value: Any) -> bytes:
    """Return the bytes of an array in C order, or bytes as they are."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return bytes(np.ascontiguousarray(value).tobytes())


def room(dtype: str, n: int) -> Any:
    """Return `n` elements to reduce into, or None where NumPy has no such dtype here."""
    try:
        return np.zeros(n, np.dtype(dtype))
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, dtype, None)
    return None if found is None else np.zeros(n, np.dtype(found))
