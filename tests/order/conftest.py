"""GPU tensors without a GPU: dlmpi as it ships, on the simulated driver, under mpiexec.

`ci/order` builds the driver, puts it where the loader looks, and runs these tests under each
schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from support import aware_mpi, fixtures, gpu_tensors, simulated
from support.gpu_operations import Lab
from support.gpu_tensors import PRODUCERS, Array

comm, rng, session_seed = fixtures.comm, fixtures.rng, fixtures.session_seed

aware_mpi.load()
gpu_tensors.pretend()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each library with each kind of current stream that it knows."""
    if "producer" in metafunc.fixturenames:
        rows = [(name, kind) for name, (_, kinds) in PRODUCERS.items() for kind in kinds]
        metafunc.parametrize("producer", rows, ids=[f"{name}-{kind}" for name, kind in rows])


class Simulated(Lab):
    """Tensors in the middle of their life."""

    dev = 0

    def __init__(self, producer: tuple[str, str], rng: np.random.Generator) -> None:
        super().__init__(rng)
        name, kind = producer
        self.type = PRODUCERS[name][0]
        self.immutable = bool(self.type.immutable)
        self.library = gpu_tensors.library(kind)
        self._checks: list[Callable[[], None]] = []

    def sent(self, values: np.ndarray, **where: Any) -> Array:
        tensor = self.type(self.library, values.shape, values.dtype, **({"dev": self.dev} | where))
        tensor.kernel(values)
        return tensor

    def received(self, like: np.ndarray, start: np.ndarray | None = None, **where: Any) -> Any:
        if self.immutable:
            return np.full_like(like, 77) if start is None else start.copy()
        tensor = self.type(self.library, like.shape, like.dtype, **({"dev": self.dev} | where))
        old = self.rng.integers(-1000, 1000, like.shape).astype(like.dtype)
        tensor.put(old)
        seen = tensor.watch()
        tensor.kernel(np.full_like(like, 99) if start is None else start)
        self._checks.append(
            lambda: np.testing.assert_array_equal(
                tensor.look(seen.now()), old, "a kernel from before the call saw what came later"
            )
        )
        return tensor

    def expect(self, got: Any, expected: np.ndarray) -> None:
        found = got.fetch() if isinstance(got, Array) else got
        np.testing.assert_array_equal(found, expected)
        for check in self._checks:
            check()
        self._checks.clear()


@pytest.fixture
def lab(producer: tuple[str, str], rng: np.random.Generator) -> Iterator[Lab]:
    before = simulated.current()
    yield Simulated(producer, rng)
    assert simulated.current() == before, "another device is current than before"
    gpu_tensors.reset_when_idle()
