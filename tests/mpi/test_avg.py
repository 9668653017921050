"""dlmpi.AVG: the mean over the ranks, for floating and complex dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.arithmetic import exact, expected, has_meaning
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import TABLE
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

CASES = pairwise(
    {
        "reduction": [r for r in REDUCTIONS if r.average],
        "dtype": [d for d in TABLE if has_meaning("AVG", d)],
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_as": WRITABLE,
        "n": (0, 1, 35, 10_010),
    },
    valid=lambda row: row["send_in"] in row["send_as"].frameworks,
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_means(comm, rng, case):
    reduction, dtype, n = case["reduction"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    total = reduction.gives(size) * n
    sent, mine = [], None
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], r)
        box = Box(framework, dtype, layout, total, rng).fill(exact(dtype, "SUM", total, rng))
        sent.append(box.flat())
        mine = box if r == rank else mine
    framework = case["receive_as"].frameworks[0]
    framework, layout = spread(dtype, WRITABLE, framework, case["receive_as"], rank)
    out = Box(framework, dtype, layout, n, rng)
    reduction.call(comm, mine.tensor, out.tensor, dlmpi.AVG, root)
    over, part = reduction.over(rank, size, root), reduction.part(rank, n)
    if over:
        out.expect(expected(dtype, "AVG", [values[part] for values in sent]))
    else:
        out.expect_untouched()


def test_the_mean_of_the_largest_is_the_largest(comm):
    """The sum leaves the type's range, the mean does not: it is taken before the rounding."""
    largest = torch.finfo(torch.float16).max
    tensor = torch.full((5,), largest, dtype=torch.float16)
    comm.Allreduce(MPI.IN_PLACE, tensor, op=dlmpi.AVG)
    assert tensor.tolist() == [largest] * 5


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_in_place_gradients(comm, name):
    """The use that it is for: average a gradient where it lies, transposed memory included."""
    gradient = torch.full((3, 4), float(comm.rank), dtype=getattr(torch, name)).t()
    comm.Allreduce(MPI.IN_PLACE, gradient, op=dlmpi.AVG)
    mean = sum(range(comm.size)) / comm.size
    assert np.allclose(gradient.numpy(), mean, rtol=1e-6)
