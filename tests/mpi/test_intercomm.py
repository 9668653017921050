"""Intercommunicators: exactly one MPI call each, with MPI's own rules for roots and groups; what
would need more than that is refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support.arithmetic import exact, expected
from support.boxes import Box
from support.dtypes import BY_NAME, random_bits
from support.layouts import WRITABLE

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.parametrize("layout", WRITABLE, ids=str),
]


@pytest.fixture
def inter(comm):
    """The lower half of the world against the upper half."""
    low = comm.rank < comm.size // 2
    half = comm.Split(int(low), comm.rank)
    made = half.Create_intercomm(0, comm, comm.size // 2 if low else 0, 5)
    yield made
    made.Free()
    half.Free()


def others(comm):
    """World ranks of the remote group, in its order."""
    half = comm.size // 2
    return range(half, comm.size) if comm.rank < half else range(half)


def summands(dtype, n, rng):
    return exact(dtype, "SUM", n, rng)


def boxes(rng, layout, name, n, *, p, values=random_bits):
    dtype = BY_NAME[name]
    framework = layout.frameworks[-1]
    return [Box(framework, dtype, layout, n, rng).fill(values(dtype, n, rng)) for _ in range(p)]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64"])
def test_gathers_and_exchanges(comm, inter, rng, layout, name):
    there = others(comm)
    n, dtype = 6, BY_NAME[name]
    sent = boxes(rng, layout, name, n * comm.size, p=comm.size)
    mine = sent[comm.rank]
    out = Box(layout.frameworks[0], dtype, layout, n * len(there), rng)
    inter.Allgather([mine.tensor, n], out.tensor)
    out.expect(np.concatenate([sent[r].flat()[:n] for r in there]))
    out = Box(layout.frameworks[0], dtype, layout, n * len(there), rng)
    inter.Alltoall([mine.tensor, n], out.tensor)
    i = inter.rank
    out.expect(np.concatenate([sent[r].flat()[i * n : (i + 1) * n] for r in there]))
    counts = [r + 1 for r in range(inter.remote_size)]
    out = Box(layout.frameworks[0], dtype, layout, sum(counts), rng)
    inter.Allgatherv([mine.tensor, inter.rank + 1], [out.tensor, counts])
    out.expect(np.concatenate([sent[r].flat()[: j + 1] for j, r in enumerate(there)]))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64"])
def test_rooted(comm, inter, rng, layout, name):
    """The root is in the lower half; its fellows say PROC_NULL."""
    lower = comm.rank in range(comm.size // 2)
    n, dtype = 6, BY_NAME[name]
    root = 0 if not lower else MPI.ROOT if inter.rank == 0 else MPI.PROC_NULL
    whole = boxes(rng, layout, name, n * comm.size, p=1)[0]
    upper = comm.size - comm.size // 2
    out = Box(layout.frameworks[0], dtype, layout, n, rng)
    if lower:
        inter.Bcast([whole.tensor, n], root=root)
        inter.Scatter([whole.tensor, n], None, root=root)
        whole.expect_untouched()
        gathered = Box(layout.frameworks[0], dtype, layout, n * upper, rng)
        inter.Gather(None, gathered.tensor if root == MPI.ROOT else None, root=root)
        if root == MPI.ROOT:
            gathered.expect(whole.flat()[: n * upper])
    else:
        inter.Bcast(out.tensor, root=root)
        out.expect(whole.flat()[:n])
        inter.Scatter(None, out.tensor, root=root)
        part = whole.flat()[inter.rank * n : (inter.rank + 1) * n]
        out.expect(part)
        inter.Gather(out.tensor, None, root=root)


@pytest.mark.parametrize("name", ["float32", "int64", "complex64"])
def test_reductions_are_over_the_other_group(comm, inter, rng, layout, name):
    there = others(comm)
    n, dtype = 7, BY_NAME[name]
    sent = boxes(rng, layout, name, n, p=comm.size, values=summands)
    out = Box(layout.frameworks[0], dtype, layout, n, rng)
    inter.Allreduce(sent[comm.rank].tensor, out.tensor)
    want = expected(dtype, "SUM", [sent[r].flat() for r in there])
    out.expect(want)
    lower = comm.rank in range(comm.size // 2)
    root = 0 if not lower else MPI.ROOT if inter.rank == 0 else MPI.PROC_NULL
    out = Box(layout.frameworks[0], dtype, layout, n, rng)
    if lower:
        inter.Reduce(None, out.tensor, root=root)
        if root == MPI.ROOT:
            out.expect(want)
    else:
        inter.Reduce(sent[comm.rank].tensor, None, root=root)


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_point_to_point_is_between_the_groups(comm, inter, rng, layout, name):
    sent = boxes(rng, layout, name, 9, p=comm.size)
    there = others(comm)
    if inter.rank >= inter.remote_size:
        return
    out, status = Box(layout.frameworks[0], BY_NAME[name], layout, 12, rng), MPI.Status()
    partner = inter.rank
    inter.Sendrecv(sent[comm.rank].tensor, partner, 2, out.tensor, partner, 2, status)
    out.expect(sent[there[partner]].flat())
    assert status.Get_source() == partner


def test_more_than_one_call_is_refused(comm, inter, layout):
    """A right sum of bfloat16 would need several steps that the other group knows nothing of."""
    if layout.name == "compact":
        tensor = torch.ones(4, dtype=torch.bfloat16)
    else:
        tensor = torch.ones(8, dtype=torch.bfloat16)[::2]
    for call in (inter.Allreduce, inter.Reduce_scatter_block):
        with pytest.raises(ValueError, match=r"."):
            call(tensor, tensor.clone())


def test_merged_is_ours(comm, inter, layout):
    merged = inter.Merge()
    tensor = torch.ones((4, 3), dtype=torch.bfloat16).t()
    merged.Allreduce(MPI.IN_PLACE, tensor)
    assert (tensor == comm.size).all()
    merged.Free()
