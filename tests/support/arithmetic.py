"""What a reduction must give: which operation means something for which kind of dtype, inputs whose
results are exact in any order, and the result by NumPy in a wide type. Knows nothing of MPI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from support.dtypes import DType

LOGICAL = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}
BITWISE = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
NUMERIC = {"SUM": np.add, "PROD": np.multiply}
ORDER = {"MAX": np.maximum, "MIN": np.minimum}
UFUNCS = LOGICAL | BITWISE | NUMERIC | ORDER
OPS = (*UFUNCS, "AVG")

_MEANING = {
    "bool": {*LOGICAL},
    "int": {*LOGICAL, *BITWISE, *NUMERIC, *ORDER},
    "half": {*NUMERIC, *ORDER, "AVG"},
    "float": {*NUMERIC, *ORDER, "AVG"},
    "longdouble": {*NUMERIC, *ORDER},
    "complex": {*NUMERIC, "AVG"},
    "longcomplex": {*NUMERIC},
    "float8": set(),
}


def has_meaning(op: str, dtype: DType) -> bool:
    """Whether every MPI must give this result. Not a list of refusals: see `REFUSED`."""
    return op in _MEANING[dtype.kind]


# What must be refused in words: (op, kind).
REFUSED = (
    *((op, "bool") for op in ("SUM", "PROD", "MAX", "MIN", "AVG")),
    *((op, "int") for op in ("AVG",)),
    *((op, kind) for op in BITWISE for kind in ("half", "float", "longdouble", "complex")),
    *((op, "complex") for op in ORDER),
    *((op, "longcomplex") for op in ORDER),
)


def exact(dtype: DType, op: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Stored inputs for which every order of `op` over a few ranks is exact in the dtype."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, n, np.uint8)
    if dtype.kind == "int":
        bits = rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype.store)
        return np.where(rng.random(n) < 0.3, 0, bits).astype(dtype.store)  # zero means false

    def part() -> np.ndarray:
        if op == "PROD":
            return rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], n)
        return rng.integers(-16, 17, n) / 2.0  # sums of 4 stay within the 8 bits of bfloat16

    if "complex" not in dtype.kind:
        return dtype.encode(part())
    if op == "PROD":  # no power of 2+i has a part that is zero, whose sign would depend on order
        return dtype.encode((2 + 1j) * rng.choice([1, 1j, -1, -1j, 0.5, -0.5j], n))
    return dtype.encode(part() + 1j * part())


def expected(dtype: DType, op: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """The stored result over the ranks' stored inputs, rounded once."""
    wide = [dtype.decode(part) for part in parts]
    if op == "AVG":
        total = reduce(np.add, wide)
        if dtype.kind == "half":  # the steps are: exact sum, float32 quotient, one rounding
            total = (total.astype(np.float32) / np.float32(len(parts))).astype(np.float64)
        elif dtype.kind == "complex":
            total = total.real / len(parts) + 1j * (total.imag / len(parts))
        else:
            total = total / len(parts)
        return dtype.encode(total)
    if op in LOGICAL and len(parts) == 1:
        return parts[0].copy()
    with np.errstate(over="ignore"):
        return dtype.encode(reduce(UFUNCS[op], wide))
