"""GPU tensors without a GPU: dlmpi as it ships, on the simulated driver, under mpiexec.

`ci/order` builds the driver, puts it where the loader looks, and runs these tests under each
schedule."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from support import gpu_tensors, simulated
from support.gpu_tensors import PRODUCERS, Array

gpu_tensors.pretend()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each library with each kind of current stream that it knows."""
    if "producer" in metafunc.fixturenames:
        rows = [(name, kind) for name, (_, kinds) in PRODUCERS.items() for kind in kinds]
        metafunc.parametrize("producer", rows, ids=[f"{name}-{kind}" for name, kind in rows])


class Lab:
    """Makes tensors in the middle of their life, and looks at them afterwards."""

    def __init__(self, producer: tuple[str, str], rng: np.random.Generator, rank: int) -> None:
        name, kind = producer
        self.type = PRODUCERS[name][0]
        self.library = gpu_tensors.library(kind)
        self.rng, self.rank = rng, rank
        self.dev = 0
        self._checks: list[Callable[[], None]] = []

    def values(self, shape: Any, dtype: Any, ranks: int) -> list[np.ndarray]:
        """What each rank sends: the same list everywhere."""
        draw = self.rng.integers(-1000, 1000, (ranks, *np.atleast_1d(shape)))
        return list(draw.astype(dtype))

    def sent(self, values: np.ndarray, **where: Any) -> Array:
        """A tensor that a kernel is still writing."""
        tensor = self.type(self.library, values.shape, values.dtype, **({"dev": self.dev} | where))
        tensor.kernel(values)
        return tensor

    def received(self, like: np.ndarray, start: np.ndarray | None = None, **where: Any) -> Any:
        """Room that earlier kernels still read and write; it holds `start` when they are done."""
        if self.type.immutable:
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
        """What the library's next kernel sees."""
        found = got.fetch() if isinstance(got, Array) else got
        np.testing.assert_array_equal(found, expected)
        for check in self._checks:
            check()
        self._checks.clear()


@pytest.fixture
def lab(producer: tuple[str, str], rng: np.random.Generator, comm: Any) -> Iterator[Lab]:
    before = simulated.current()
    made = Lab(producer, rng, comm.rank)
    yield made
    assert simulated.current() == before, "another device is current than before"
    gpu_tensors.reset_when_idle()


@pytest.fixture(scope="session")
def session_seed() -> int:
    """A fresh seed each run, drawn by rank 0; the environment variable DLMPI_TEST_SEED pins it."""
    from mpi4py import MPI

    drawn = os.environ.get("DLMPI_TEST_SEED") or int.from_bytes(os.urandom(4))
    return int(MPI.COMM_WORLD.bcast(drawn, root=0))


@pytest.fixture
def rng(request: pytest.FixtureRequest, session_seed: int) -> np.random.Generator:
    """Random numbers of this test: the same on every rank, other ones in every run."""
    request.node.add_report_section("setup", "seed", f"DLMPI_TEST_SEED={session_seed}")
    return np.random.default_rng([session_seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def comm() -> Any:
    from dlmpi import MPI

    return MPI.COMM_WORLD
