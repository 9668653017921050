"""Random inputs with everything that a floating format has (NaN, infinities, denormals, both zeros)
and an interval that any order of float additions or products must hit. Knows nothing of MPI."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from support.arithmetic import expected
from support.dtypes import DType, same

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def _tiny(dtype: DType) -> float:
    """The smallest positive value of the format."""
    codes = dtype.decode(np.array([1], f"u{dtype.itemsize}").view(dtype.store))
    return float(codes[0])


def draw(dtype: DType, op: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Stored elements; a tenth of them is special."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, n, np.uint8)
    if dtype.kind == "int":
        bits = rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype.store)
        return np.where(rng.random(n) < 0.3, 0, bits).astype(dtype.store)
    if dtype.kind == "complex":
        return dtype.encode(rng.normal(size=n) + 1j * rng.normal(size=n))
    values = rng.normal(size=n) if op != "PROD" else rng.uniform(0.5, 2, n)
    special = rng.random(n) < 0.1
    # Products of denormals underflow in an order of their own.
    choice = (*_SPECIAL, _tiny(dtype), -3 * _tiny(dtype)) if op != "PROD" else _SPECIAL
    values[special] = rng.choice(choice, int(special.sum()))
    return dtype.encode(values)


def extremum(op: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """MAX or MIN: NaN if there is one, and -0 below +0."""
    pick = np.maximum if op == "MAX" else np.minimum
    out = pick.reduce(parts)  # NumPy gives NaN where there is one
    zero = out == 0
    negative = np.array([np.signbit(p) & (p == 0) for p in parts])
    positive = np.array([~np.signbit(p) & (p == 0) for p in parts])
    wins = positive.any(axis=0) if op == "MAX" else ~negative.any(axis=0)
    return np.where(zero, np.where(wins, 0.0, -0.0), out)


def check(dtype: DType, op: str, parts: Sequence[np.ndarray], got: np.ndarray) -> None:
    """Assert that `got` (stored) is the sum, product or mean of `parts` (stored) in some order."""
    wide = np.array([dtype.decode(part) for part in parts])
    ranks = len(parts)
    with np.errstate(all="ignore"):
        exact = wide.prod(axis=0) if op == "PROD" else wide.sum(axis=0)
        scale = np.abs(wide).prod(axis=0) if op == "PROD" else np.abs(wide).sum(axis=0)
    if op == "AVG":
        exact, scale = exact / ranks, scale / ranks
    value = dtype.decode(got)
    finite = np.isfinite(exact)
    if dtype.kind == "complex":
        eps = np.finfo(dtype.store).eps
        growth = 8 if op == "PROD" else 2
        assert (np.abs(value - exact) <= growth * ranks * eps * scale).all()
        return
    np.testing.assert_array_equal(np.isnan(value), np.isnan(exact))
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(value[infinite], exact[infinite])
    eps = 2.0**-24 if dtype.kind == "half" else np.finfo(dtype.store).eps
    bound = (ranks + 1) * eps * scale[finite]
    if op == "AVG":  # a quotient among the denormals is off by up to one of them
        bound = bound + (2.0**-149 if dtype.kind == "half" else _tiny(dtype))
    if dtype.kind == "half":
        low = dtype.decode(dtype.encode(exact[finite] - bound))
        high = dtype.decode(dtype.encode(exact[finite] + bound))
        assert ((low <= value[finite]) & (value[finite] <= high)).all()
    else:
        assert (np.abs(value[finite] - exact[finite]) <= bound).all()
    if op == "SUM":  # only zeros that are all negative add up to a negative one
        zeros = (wide == 0).all(axis=0)
        negative = np.signbit(wide).all(axis=0)
        np.testing.assert_array_equal(np.signbit(value[zeros]), negative[zeros])


def compare(dtype: DType, op: str, parts: Sequence[np.ndarray], got: np.ndarray) -> None:
    """Assert that `got` is what the operation gives for the stored `parts`, in some order."""
    if dtype.kind in ("bool", "int"):
        assert same(dtype, got, expected(dtype, op, parts)).all()
    elif op in ("MAX", "MIN"):
        want = extremum(op, [dtype.decode(part) for part in parts])
        value = dtype.decode(got)
        np.testing.assert_array_equal(np.isnan(value), np.isnan(want))
        np.testing.assert_array_equal(value, want)
        real = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(value[real]), np.signbit(want[real]))
    else:
        check(dtype, op, parts, got)
