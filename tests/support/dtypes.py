"""The table of dtypes: what each is called in NumPy, torch and MPI, and how its values are kept.

`store` is the NumPy dtype in which the tests look at an element's memory. A new dtype is a row."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import torch

from support.floats import SMALL


@dataclass(frozen=True)
class DType:
    """One dtype. `kind` is its class: what arithmetic it has, and how random values are drawn."""

    name: str
    kind: str
    store: np.dtype
    numpy: np.dtype | None
    torch: torch.dtype | None
    mpi: str | None = None
    frameworks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        has = {"numpy": self.numpy is not None, "torch": self.torch is not None}
        object.__setattr__(self, "frameworks", tuple(name for name in has if has[name]))

    def __str__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        return self.store.itemsize

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """Stored elements in a type wide enough to compute in."""
        if self.name in SMALL:
            return SMALL[self.name].decode(stored.view(SMALL[self.name].store))
        wide = {"float32": np.float64, "complex64": np.complex128}
        return stored.astype(wide.get(self.name, stored.dtype))

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Values rounded once to this dtype, as stored."""
        if self.name in SMALL:
            return SMALL[self.name].encode(values).view(self.store)
        return np.asarray(values).astype(self.store)


def _row(name: str, kind: str, mpi: str | None = None) -> DType:
    store = np.dtype("u1" if kind in ("bool", "float8") else "u2" if name == "bfloat16" else name)
    numpy = getattr(ml_dtypes, name, None) if kind in ("float8", "half") else np.dtype(name)
    if name == "float16":
        numpy = np.dtype("float16")
    return DType(name, kind, store, numpy and np.dtype(numpy), getattr(torch, name, None), mpi)


TABLE = (
    _row("bool", "bool", "C_BOOL"),
    *(_row(f"int{b}", "int", f"INT{b}_T") for b in (8, 16, 32, 64)),
    *(_row(f"uint{b}", "int", f"UINT{b}_T") for b in (8, 16, 32, 64)),
    _row("float16", "half"),
    _row("bfloat16", "half"),
    _row("float32", "float", "FLOAT"),
    _row("float64", "float", "DOUBLE"),
    _row("longdouble", "longdouble", "LONG_DOUBLE"),
    _row("complex64", "complex", "C_FLOAT_COMPLEX"),
    _row("complex128", "complex", "C_DOUBLE_COMPLEX"),
    _row("clongdouble", "longcomplex", "C_LONG_DOUBLE_COMPLEX"),
    _row("float8_e4m3fn", "float8"),
    _row("float8_e5m2", "float8"),
    _row("float8_e4m3fnuz", "float8"),
    _row("float8_e5m2fnuz", "float8"),
    _row("float8_e8m0fnu", "float8"),
)
BY_NAME = {dtype.name: dtype for dtype in TABLE}
KINDS = tuple(dict.fromkeys(dtype.kind for dtype in TABLE))


def random_bits(dtype: DType, n: int, rng: np.random.Generator) -> np.ndarray:
    """Any value that the dtype can hold, for data that is only moved."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, n, np.uint8)
    if dtype.kind in ("longdouble", "longcomplex"):  # random padding bits need not be a number
        values = rng.normal(size=n) + np.longdouble(2) ** -60
        return (values * (1 + 2j) if dtype.kind == "longcomplex" else values).astype(dtype.store)
    return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype.store)


def same(dtype: DType, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Which elements are the same: bit for bit, except where the dtype has padding bits."""
    if dtype.kind in ("longdouble", "longcomplex"):
        return (got == want) | (np.isnan(got) & np.isnan(want))
    rows = (len(got), dtype.itemsize)
    return (
        np.ascontiguousarray(got).view(np.uint8).reshape(rows)
        == np.ascontiguousarray(want).view(np.uint8).reshape(rows)
    ).all(axis=1)
