"""A tensor inside poisoned memory: build it in any framework and layout, then say what it must
hold. Everything else in the memory must be as it was. Knows nothing of MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from support.dtypes import DType, same
from support.layouts import Layout, Strided

_GUARD = 8  # elements before and after


def _numpy(raw: np.ndarray, offset: int, plan: Strided, dtype: DType) -> np.ndarray:
    return np.ndarray(plan.shape, dtype.numpy, raw, offset, plan.strides)


def _torch(raw: np.ndarray, offset: int, plan: Strided, dtype: DType) -> torch.Tensor:
    size = dtype.itemsize
    flat = torch.from_numpy(raw).view(dtype.torch)
    return flat.as_strided(plan.shape, [s // size for s in plan.strides], offset // size)


FRAMEWORKS = {"numpy": _numpy, "torch": _torch}


class Box:
    """`n` elements of `dtype` as a tensor of `framework`, with guards around and in the gaps."""

    tensor: Any

    def __init__(
        self, framework: str, dtype: DType, layout: Layout, n: int, rng: np.random.Generator
    ) -> None:
        self.dtype, self.framework, self.layout = dtype, framework, layout
        plan = layout.plan(n, dtype.itemsize, rng)
        low, high = plan.span(dtype.itemsize)
        guard = _GUARD * dtype.itemsize
        offset = guard - low + plan.shift
        size = offset + high + guard
        size += -size % dtype.itemsize
        self.raw = rng.integers(0, 256, size, np.uint8)
        self.plan, self._offset = plan, offset
        self.tensor = FRAMEWORKS[framework](self.raw, offset, plan, dtype)
        self._snapshot()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.plan.shape))
        return f"{self.framework} {self.dtype} {self.layout} {shape}"

    @property
    def _elements(self) -> np.ndarray:
        return np.ndarray(
            self.plan.shape, self.dtype.store, self.raw, self._offset, self.plan.strides
        )

    def _snapshot(self) -> None:
        self._before = self.raw.copy()

    def fill(self, stored: np.ndarray) -> Box:
        """Put elements in, in C order. Shared memory keeps the last one: read `flat` afterwards."""
        self._elements.flat[:] = stored
        self._snapshot()
        return self

    def flat(self) -> np.ndarray:
        """The elements as stored, in C order."""
        return self._elements.flatten()

    def expect(self, stored: np.ndarray, start: int = 0) -> None:
        """Elements from `start` on hold `stored`; every other byte is as it was."""
        self.expect_where(stored, np.arange(start, start + len(stored)))

    def expect_first(self, stored: np.ndarray) -> None:
        """The first elements hold `stored`; the others may hold anything (MPI leaves them open)."""
        self._compare(stored, np.arange(len(stored)))
        self._untouched(np.arange(self._elements.size))

    def expect_where(self, stored: np.ndarray, where: np.ndarray) -> None:
        """The elements of these C-order numbers hold `stored`; every other byte is as it was."""
        self._compare(stored, where)
        self._untouched(where)

    def _compare(self, stored: np.ndarray, where: np.ndarray) -> None:
        got = self.flat()[where]
        good = same(self.dtype, got, stored)
        if not good.all():
            bad = np.flatnonzero(~good)
            i = bad[0]
            raise AssertionError(
                f"{self!r}: {len(bad)} of {len(stored)} elements are wrong; "
                f"first at {where[i]}: got {got[i]!r}, want {stored[i]!r} "
                f"({self.dtype.decode(got[i : i + 1])[0]} for "
                f"{self.dtype.decode(stored[i : i + 1])[0]})"
            )

    def expect_untouched(self) -> None:
        """No byte has changed."""
        self._untouched(np.arange(0))

    def _untouched(self, but: np.ndarray) -> None:
        numbers = np.zeros(self._elements.size, bool)
        numbers[but] = True
        mine = np.zeros(len(self.raw), bool)
        shape, strides = (*self.plan.shape, self.dtype.itemsize), (*self.plan.strides, 1)
        allowed = np.ndarray(shape, bool, mine, self._offset, strides)
        allowed[numbers.reshape(self.plan.shape)] = True
        changed = np.flatnonzero((self.raw != self._before) & ~mine)
        assert not len(changed), (
            f"{self!r}: {len(changed)} bytes outside the elements written have changed, first at "
            f"byte {changed[0] - self._offset} from the first element"
        )
