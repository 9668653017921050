"""Memory layouts as a table: each row turns `n` elements into a shape with byte strides.

A layout with gaps leaves them between elements; the boxes built on it watch that they stay
untouched. A new layout is a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Strided:
    """Shape and byte strides; `lowest` is where the first byte lies relative to element 0."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    shift: int = 0

    def span(self, itemsize: int) -> tuple[int, int]:
        if 0 in self.shape:
            return 0, 0
        ends = [(d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)]
        return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends) + itemsize


Plan = Callable[[int, int, np.random.Generator], Strided]


@dataclass(frozen=True)
class Layout:
    """One row: `plan(n, itemsize, rng)`; `writable` is false where elements share memory."""

    name: str
    plan: Plan
    frameworks: tuple[str, ...] = ("numpy", "torch")
    writable: bool = True

    def __str__(self) -> str:
        return self.name


def factor(n: int, dims: int) -> list[int]:
    """`n` as a product of `dims` sizes, as even as its prime factors allow."""
    shape = [1] * dims
    if n == 0:
        shape = [3] * dims
        shape[dims // 2] = 0
        return shape
    divisor, rest, primes = 2, n, []
    while rest > 1:
        if rest % divisor == 0:
            primes.append(divisor)
            rest //= divisor
        else:
            divisor = divisor + 1 if divisor * divisor <= rest else rest
    for prime in reversed(primes):
        shape[shape.index(min(shape))] *= prime
    return shape


def dense(shape: list[int], order: list[int], itemsize: int, gaps: list[int]) -> Strided:
    """Strides for dimensions laid out in memory in `order`, slowest first; `gaps` elements are
    left after each dimension's extent."""
    strides, step = [0] * len(shape), itemsize
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1) + gaps[dim]
    return Strided(tuple(shape), tuple(strides))


def _compact(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    dims = int(rng.integers(0 if n == 1 else 1, 4))
    return dense(factor(n, dims), list(range(dims)), itemsize, [0] * dims)


def _permuted(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    order = [[2, 0, 1], [1, 2, 0], [0, 2, 1], [1, 0, 2]][int(rng.integers(4))]
    return dense(factor(n, 3), order, itemsize, [0] * 3)


def _windowed(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    dims = int(rng.integers(2, 4))
    gaps = [int(g) for g in rng.integers(1, 4, dims)]
    return dense(factor(n, dims), list(range(dims)), itemsize, gaps)


def _stepped(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    return Strided((n,), (int(rng.integers(2, 5)) * itemsize,))


def _flipped(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    shape, gaps = factor(n, 2), [int(g) for g in rng.integers(0, 3, 2)]
    plan = dense(shape, [[0, 1], [1, 0]][int(rng.integers(2))], itemsize, gaps)
    signs = [[-1, 1], [1, -1], [-1, -1]][int(rng.integers(3))]
    return Strided(plan.shape, tuple(s * g for s, g in zip(plan.strides, signs, strict=True)))


def _broadcast(n: int, itemsize: int, rng: np.random.Generator) -> Strided:
    rows, columns = factor(n, 2)
    return Strided((rows, columns), (0, itemsize) if rows > 1 else (itemsize, 0))


TABLE = (
    Layout("compact", _compact),
    Layout("fortran", lambda n, size, rng: dense(factor(n, 3), [2, 1, 0], size, [0] * 3)),
    Layout("permuted", _permuted),
    Layout("channels_last", lambda n, size, rng: dense(factor(n, 4), [0, 2, 3, 1], size, [0] * 4)),
    Layout("stepped", _stepped),
    Layout("windowed", _windowed),
    Layout("one_wide", lambda n, size, rng: Strided((1, n, 1), (991 * size, size, 7 * size))),
    Layout("flipped", _flipped, ("numpy",)),
    Layout("unaligned", lambda n, size, rng: Strided((n,), (size,), 1), ("numpy",)),
    Layout("field", lambda n, size, rng: Strided((n,), (size + 3,), 2), ("numpy",)),
    Layout("broadcast", _broadcast, writable=False),
)
BY_NAME = {layout.name: layout for layout in TABLE}
WRITABLE = tuple(layout for layout in TABLE if layout.writable)
