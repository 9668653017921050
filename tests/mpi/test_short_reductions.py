"""Reductions of plain arrays through memory that ranks share: one way with those of any tensor.

Ranks of one call come as NumPy arrays, as message forms or as torch tensors. Oracles: integers and
their quotients in float64, which all dtypes here hold exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI

pytestmark = pytest.mark.mpi

#: Before it, a communicator's collectives are compared and never take the short way.
FIRST = 64
#: Elements: beside the counters, in one step, in chunks, in many chunks.
SIZES = [1, 13, 900, 5001, 300_007]
CODES = {"e": None, "f": MPI.FLOAT, "d": MPI.DOUBLE, "b": MPI.SIGNED_CHAR}


@pytest.fixture(scope="module")
def settled():
    comm = MPI.COMM_WORLD.Dup()
    for _ in range(FIRST + 1):
        comm.Allreduce(np.ones(1), np.empty(1))
    yield comm
    comm.Free()


def form(array, code, way):
    """Give the array in one of several ways that mean the same."""
    if way % 3 == 1:
        return torch.from_numpy(array)
    return array if way % 3 == 0 or CODES[code] is None else [array, CODES[code]]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("n", SIZES)
def test_whole_results_and_prefixes(settled, rng, code, n):
    size, rank = settled.size, settled.rank
    given = rng.integers(-9, 10, (size, n))
    mine = given[rank].astype(code)
    calls = [
        (settled.Allreduce, MPI.SUM, given.sum(0)),
        (settled.Allreduce, MPI.MAX, given.max(0)),
        (settled.Scan, MPI.SUM, given[: rank + 1].sum(0)),
        (settled.Scan, MPI.MIN, given[: rank + 1].min(0)),
        (settled.Exscan, MPI.SUM, given[:rank].sum(0) if rank else np.full(n, 77)),
    ]
    for number, (call, op, expected) in enumerate(calls):
        way = rank + number + int(rng.integers(3))
        room = np.full(n + 2, 77).astype(code)
        call(form(mine, code, way), form(room[1:-1], code, way // 2), op=op)
        assert np.array_equal(room[1:-1], expected), (op.name, way)
        assert room[0] == room[-1] == 77
        assert np.array_equal(mine, given[rank])
        home = mine.copy()
        call(MPI.IN_PLACE, form(home, code, way), op=op)
        first = call == settled.Exscan and not rank
        assert np.array_equal(home, mine if first else expected), (op.name, way)


@pytest.mark.parametrize("code", ["e", "f", "d"])
@pytest.mark.parametrize("n", SIZES[:-1])
def test_mean_and_nan(settled, rng, code, n):
    size, rank = settled.size, settled.rank
    given = rng.integers(-9, 10, (size, n)) * size
    got = np.full(n, 77).astype(code)
    settled.Allreduce(form(given[rank].astype(code), code, rank), got, op=dlmpi.AVG)
    assert np.array_equal(got, given.sum(0) / size)
    values = given.astype(code)
    values[rng.integers(size), rng.integers(n)] = np.nan
    for op, expected in [(MPI.MAX, np.maximum), (MPI.MIN, np.minimum)]:
        settled.Allreduce(values[rank], form(got, code, rank), op=op)
        assert np.array_equal(got, expected.reduce(values), equal_nan=True)


def test_ranks_that_differ_in_a_call_are_told_so(settled):
    """Through shared memory every call is compared, whoever comes by which way."""
    size, rank = settled.size, settled.rank
    if size == 1:
        pytest.skip("one rank agrees with itself")
    comm = settled.Dup()
    for _ in range(FIRST + 2):
        comm.Allreduce(np.ones(1), np.empty(1))
    # 2 KiB and more, which every library leaves to shared memory.
    some, more = np.ones(500), np.ones(501)
    different = [
        lambda: comm.Allreduce(some, np.empty(500), op=MPI.MAX if rank else MPI.SUM),
        lambda: comm.Allreduce(MPI.IN_PLACE, more.copy() if rank else some.copy()),
        lambda: comm.Allreduce(
            torch.ones(500, dtype=torch.float64) if rank else some.view("i8"),
            np.empty(500, "d" if rank else "i8"),
        ),
    ]
    for call in different:
        with pytest.raises(dlmpi.MismatchError):
            call()
        got = np.empty(500)
        comm.Allreduce(some, got)
        assert (got == size).all()
    comm.Free()
