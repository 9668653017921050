"""IN_PLACE, and None where mpi4py takes it for IN_PLACE, in every collective that has it."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.arithmetic import exact, expected
from support.boxes import Box
from support.dtypes import BY_NAME, random_bits
from support.layouts import WRITABLE
from support.pairs import label, pairwise

pytestmark = pytest.mark.mpi
N = 21
METHODS = {}


def case(method):
    """Puts a test's body into the table."""
    METHODS[method.__name__.capitalize()] = method
    return method


def boxed(rng, layout, dtype, values):
    return Box(layout.frameworks[-1], dtype, layout, len(values), rng).fill(values)


@case
def gather(comm, rng, dtype, layout, in_place):
    rank, size, root = comm.rank, comm.size, comm.size - 1
    whole, held = random_bits(dtype, size * N, rng), random_bits(dtype, size * N, rng)
    own = slice(rank * N, (rank + 1) * N)
    if rank == root:  # only the root's own block is there before
        held[own] = whole[own]
        mine = boxed(rng, layout, dtype, held)
        comm.Gather(in_place, mine.tensor, root=root)
        mine.expect(whole)
    else:
        mine = boxed(rng, layout, dtype, whole[own])
        comm.Gather(mine.tensor, None, root=root)
        mine.expect_untouched()


@case
def scatter(comm, rng, dtype, layout, in_place):
    rank, size, root = comm.rank, comm.size, comm.size - 1
    whole = random_bits(dtype, size * N, rng)
    if rank == root:
        mine = boxed(rng, layout, dtype, whole)
        comm.Scatter(mine.tensor, in_place, root=root)
        mine.expect_untouched()
    else:
        mine = Box("numpy", dtype, layout, N, rng)
        comm.Scatter(None, mine.tensor, root=root)
        mine.expect(whole[rank * N : (rank + 1) * N])


@case
def allgather(comm, rng, dtype, layout, in_place):
    own = slice(comm.rank * N, (comm.rank + 1) * N)
    whole, held = (random_bits(dtype, comm.size * N, rng) for _ in range(2))
    held[own] = whole[own]
    mine = boxed(rng, layout, dtype, held)
    comm.Allgather(in_place, mine.tensor)
    mine.expect(whole)


@case
def alltoall(comm, rng, dtype, layout, in_place):
    sent = [random_bits(dtype, comm.size * N, rng) for _ in range(comm.size)]
    mine = boxed(rng, layout, dtype, sent[comm.rank])
    comm.Alltoall(in_place, mine.tensor)
    own = slice(comm.rank * N, (comm.rank + 1) * N)
    mine.expect(np.concatenate([part[own] for part in sent]))


def reduction(name, over):
    """All that differs between the reductions is whose inputs a rank gets."""

    def body(comm, rng, dtype, layout, in_place):
        sent = [exact(dtype, "SUM", N, rng) for _ in range(comm.size)]
        mine, ranks = boxed(rng, layout, dtype, sent[comm.rank]), over(comm.rank, comm.size)
        if name != "Reduce":
            getattr(comm, name)(in_place, mine.tensor)
        elif ranks:
            comm.Reduce(in_place, mine.tensor, root=0)
        else:
            comm.Reduce(mine.tensor, None, root=0)
        if ranks:
            mine.expect(expected(dtype, "SUM", [sent[r] for r in ranks]))
        else:
            mine.expect_untouched()

    METHODS[name] = body


reduction("Reduce", lambda rank, size: range(0 if rank else size))
reduction("Allreduce", lambda rank, size: range(size))
reduction("Scan", lambda rank, size: range(rank + 1))
reduction("Exscan", lambda rank, size: range(rank))


def reduce_scatter(name, counts, *more):
    """The result is in the first elements; what the others hold afterwards MPI leaves open."""

    def body(comm, rng, dtype, layout, in_place):
        each = counts(comm.size)
        sent = [exact(dtype, "SUM", sum(each), rng) for _ in range(comm.size)]
        mine = boxed(rng, layout, dtype, sent[comm.rank])
        getattr(comm, name)(in_place, mine.tensor, *([each] if more else []))
        start = sum(each[: comm.rank])
        part = slice(start, start + each[comm.rank])
        mine.expect_first(expected(dtype, "SUM", [values[part] for values in sent]))

    METHODS[name] = body


reduce_scatter("Reduce_scatter_block", lambda size: [N] * size)
reduce_scatter("Reduce_scatter", lambda size: [N + r for r in range(size)], "counts")


def vectors(comm, rng, dtype, counts):
    """What every rank holds, where its blocks lie, and the message for a tensor of that."""
    displs = [int(d) + 2 * r for r, d in enumerate(np.cumsum([0, *counts[:-1]]))]
    blocks = [np.arange(d, d + c) for c, d in zip(counts, displs, strict=True)]
    held = [random_bits(dtype, displs[-1] + counts[-1] + 2, rng) for _ in range(comm.size)]
    return held, blocks, lambda tensor: [tensor, (counts, displs)]


@case
def gatherv(comm, rng, dtype, layout, in_place):
    held, blocks, message = vectors(comm, rng, dtype, [3 + 2 * r for r in range(comm.size)])
    if comm.rank == 0:
        mine = boxed(rng, layout, dtype, held[0].copy())
        comm.Gatherv(in_place, message(mine.tensor), root=0)
        for r in range(comm.size):
            held[0][blocks[r]] = held[r][blocks[r]]
        mine.expect(held[0])
    else:
        comm.Gatherv(boxed(rng, layout, dtype, held[comm.rank][blocks[comm.rank]]).tensor, None)


@case
def scatterv(comm, rng, dtype, layout, in_place):
    counts = [3 + 2 * r for r in range(comm.size)]
    held, blocks, message = vectors(comm, rng, dtype, counts)
    if comm.rank == 0:
        mine = boxed(rng, layout, dtype, held[0])
        comm.Scatterv(message(mine.tensor), in_place, root=0)
        mine.expect_untouched()
    else:
        out = Box("numpy", dtype, layout, counts[comm.rank], rng)
        comm.Scatterv(None, out.tensor, root=0)
        out.expect(held[0][blocks[comm.rank]])


@case
def allgatherv(comm, rng, dtype, layout, in_place):
    held, blocks, message = vectors(comm, rng, dtype, [3 + 2 * r for r in range(comm.size)])
    mine = boxed(rng, layout, dtype, held[comm.rank])
    comm.Allgatherv(in_place, message(mine.tensor))
    want = held[comm.rank].copy()
    for r in range(comm.size):
        want[blocks[r]] = held[r][blocks[r]]
    mine.expect(want)


@case
def alltoallv(comm, rng, dtype, layout, in_place):
    """What rank r has for s and what it gets from s are one count, in one place."""
    pair = [[3 + abs(r - s) for s in range(comm.size)] for r in range(comm.size)]
    all_held = [vectors(comm, rng, dtype, pair[r]) for r in range(comm.size)]
    held, blocks, message = all_held[comm.rank]
    mine = boxed(rng, layout, dtype, held[comm.rank])
    comm.Alltoallv(in_place, message(mine.tensor))
    want = held[comm.rank].copy()
    for r in range(comm.size):
        theirs, their_blocks, _ = all_held[r]
        want[blocks[r]] = theirs[r][their_blocks[comm.rank]]
    mine.expect(want)


CASES = pairwise(
    {
        "method": tuple(METHODS),
        "dtype": [BY_NAME[n] for n in ("int32", "float64", "bfloat16", "float16", "complex64")],
        "layout": WRITABLE,
        "in_place": ("IN_PLACE", "None"),
    }
)


@pytest.mark.parametrize("row", CASES, ids=label)
def test_in_place(comm, rng, row):
    in_place = MPI.IN_PLACE if row["in_place"] == "IN_PLACE" else None
    METHODS[row["method"]](comm, rng, row["dtype"], row["layout"], in_place)
