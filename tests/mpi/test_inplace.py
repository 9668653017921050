"""IN_PLACE, and None where mpi4py takes it for IN_PLACE, in every collective that has it."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.arithmetic import exact, expected
from support.boxes import Box
from support.dtypes import BY_NAME, random_bits
from support.layouts import WRITABLE

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.parametrize("name", ["int32", "float64", "bfloat16", "float16", "complex64"]),
    pytest.mark.parametrize("layout", WRITABLE, ids=str),
    pytest.mark.parametrize("in_place", [MPI.IN_PLACE, None], ids=["IN_PLACE", "None"]),
]
N = 21


def boxed(rng, layout, dtype, values, rank):
    """A box with rank's values; the stream of random numbers goes on equally on all ranks."""
    boxes = [Box(layout.frameworks[-1], dtype, layout, len(v), rng).fill(v) for v in values]
    return boxes[rank]


def test_gather(comm, rng, name, layout, in_place):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    root = int(rng.integers(size))
    whole = random_bits(dtype, size * N, rng)
    if rank == root:
        # Only the root's own block is there before; the others are to come.
        mine = boxed(rng, layout, dtype, [random_bits(dtype, size * N, rng)], 0)
        before = mine.flat()
        before[rank * N : (rank + 1) * N] = whole[rank * N : (rank + 1) * N]
        mine.fill(before)
        comm.Gather(in_place, mine.tensor, root=root)
        mine.expect(whole)
    else:
        mine = Box("numpy", dtype, layout, N, rng).fill(whole[rank * N : (rank + 1) * N])
        comm.Gather(mine.tensor, None, root=root)
        mine.expect_untouched()


def test_scatter(comm, rng, name, layout, in_place):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    root = int(rng.integers(size))
    whole = random_bits(dtype, size * N, rng)
    if rank == root:
        mine = Box(layout.frameworks[-1], dtype, layout, size * N, rng).fill(whole)
        comm.Scatter(mine.tensor, in_place, root=root)
        mine.expect_untouched()
    else:
        mine = Box("numpy", dtype, layout, N, rng)
        comm.Scatter(None, mine.tensor, root=root)
        mine.expect(whole[rank * N : (rank + 1) * N])


def test_allgather(comm, rng, name, layout, in_place):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    whole = random_bits(dtype, size * N, rng)
    before = random_bits(dtype, size * N, rng)
    before[rank * N : (rank + 1) * N] = whole[rank * N : (rank + 1) * N]
    mine = Box(layout.frameworks[-1], dtype, layout, size * N, rng).fill(before)
    comm.Allgather(in_place, mine.tensor)
    mine.expect(whole)


def test_alltoall(comm, rng, name, layout, in_place):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    sent = [random_bits(dtype, size * N, rng) for _ in range(size)]
    mine = boxed(rng, layout, dtype, sent, rank)
    comm.Alltoall(in_place, mine.tensor)
    mine.expect(np.concatenate([part[rank * N : (rank + 1) * N] for part in sent]))


@pytest.mark.parametrize("method", ["Allreduce", "Scan", "Exscan", "Reduce"])
def test_reductions(comm, rng, *, name, layout, in_place, method):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    root = int(rng.integers(size))
    sent = [exact(dtype, "SUM", N, rng) for _ in range(size)]
    mine = boxed(rng, layout, dtype, sent, rank)
    over = {"Scan": range(rank + 1), "Exscan": range(rank)}.get(method, range(size))
    if method == "Reduce":
        if rank != root:
            comm.Reduce(mine.tensor, None, root=root)
            mine.expect_untouched()
            return
        comm.Reduce(in_place, mine.tensor, root=root)
    else:
        getattr(comm, method)(in_place, mine.tensor)
    if over:
        mine.expect(expected(dtype, "SUM", [sent[r] for r in over]))
    else:
        mine.expect_untouched()


@pytest.mark.parametrize("method", ["Reduce_scatter_block", "Reduce_scatter"])
def test_reduce_scatters(comm, rng, *, name, layout, in_place, method):
    """The result is in the first elements; what the others hold afterwards MPI leaves open."""
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    counts = [N] * size if method.endswith("block") else [N + r for r in range(size)]
    start = sum(counts[:rank])
    sent = [exact(dtype, "SUM", sum(counts), rng) for _ in range(size)]
    mine = boxed(rng, layout, dtype, sent, rank)
    more = () if method.endswith("block") else (counts,)
    getattr(comm, method)(in_place, mine.tensor, *more)
    part = slice(start, start + counts[rank])
    mine.expect_first(expected(dtype, "SUM", [values[part] for values in sent]))


@pytest.mark.parametrize("method", ["Gatherv", "Scatterv", "Allgatherv", "Alltoallv"])
def test_vectors(comm, rng, *, name, layout, in_place, method):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    counts = [3 + 2 * r for r in range(size)]
    displs = [int(d) + 2 * r for r, d in enumerate(np.cumsum([0, *counts[:-1]]))]
    total = displs[-1] + counts[-1] + 2
    blocks = [np.arange(d, d + c) for c, d in zip(counts, displs, strict=True)]
    held = [random_bits(dtype, total, rng) for _ in range(size)]
    mine = boxed(rng, layout, dtype, held, rank)
    message = [mine.tensor, (counts, displs)]
    if method == "Allgatherv":
        comm.Allgatherv(in_place, message)
        for r in range(size):
            held[rank][blocks[r]] = held[r][blocks[r]]
        mine.expect(held[rank])
    elif method == "Alltoallv":
        # IN_PLACE: what rank r has for s and what it gets from s have one count, so all are equal.
        same = [mine.tensor, ([4] * size, [5 * r for r in range(size)])]
        comm.Alltoallv(in_place, same)
        want = held[rank].copy()
        for r in range(size):
            want[5 * r : 5 * r + 4] = held[r][5 * rank : 5 * rank + 4]
        mine.expect(want)
    elif method == "Gatherv":
        if rank == 0:
            comm.Gatherv(in_place, message, root=0)
            for r in range(size):
                held[0][blocks[r]] = held[r][blocks[r]]
            mine.expect(held[0])
        else:
            own = np.ascontiguousarray(held[rank][blocks[rank]])
            comm.Gatherv(Box("numpy", dtype, layout, len(own), rng).fill(own).tensor, None)
    elif rank == 0:
        comm.Scatterv(message, in_place, root=0)
        mine.expect_untouched()
    else:
        out = Box("numpy", dtype, layout, counts[rank], rng)
        comm.Scatterv(None, out.tensor, root=0)
        out.expect(held[0][blocks[rank]])
