"""The collectives with a count for each rank: random counts with zeros among them, gaps between
blocks, blocks out of order, every form of the message. Oracle: NumPy slices."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.arithmetic import exact, expected
from support.boxes import Box
from support.dtypes import BY_NAME, TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

FORMS = ("counts_displs", "four", "with_type", "arrays", "counts")
CASES = pairwise(
    {
        "method": ("Gatherv", "Scatterv", "Allgatherv", "Alltoallv"),
        "dtype": TABLE,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
        "form": FORMS,
        "largest": (0, 1, 9, 3_000),
        "comm": ("comm", "later"),
    },
    valid=lambda row: (
        all(
            row[f"{side}_in"] in row["dtype"].frameworks
            and row[f"{side}_in"] in row[f"{side}_as"].frameworks
            for side in ("send", "receive")
        )
        and (row["dtype"].mpi is not None or row["form"] not in ("four", "with_type"))
    ),
)


def message(form, tensor, counts, displs, dtype):
    datatype = getattr(MPI, dtype.mpi) if dtype.mpi else None
    return {
        "counts_displs": lambda: [tensor, (counts, displs)],
        "four": lambda: [tensor, counts, displs, datatype],
        "with_type": lambda: (tensor, (tuple(counts), tuple(displs)), datatype),
        "arrays": lambda: [tensor, (np.array(counts, np.int32), np.array(displs, np.int64))],
        "counts": lambda: [tensor, counts],
    }[form]()


def spaced(rng, counts, form):
    """Displacements: out of order and with gaps, unless the form has none; and the room needed."""
    order, at, displs = rng.permutation(len(counts)), 0, [0] * len(counts)
    if form == "counts":
        return [int(d) for d in np.cumsum([0, *counts[:-1]])], sum(counts)
    for r in order:
        at += int(rng.integers(0, 4))
        displs[r] = at
        at += counts[r]
    return displs, at + int(rng.integers(0, 4))


def numbers(counts, displs):
    return [np.arange(d, d + c) for c, d in zip(counts, displs, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_blocks(request, rng, case):
    """counts[s][r] elements go from s to r; each side lays its blocks out as it likes."""
    comm = request.getfixturevalue(case["comm"])
    method, dtype, form = case["method"], case["dtype"], case["form"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    counts = rng.integers(0, case["largest"] + 1, (size, size))
    if method == "Gatherv":
        counts[:, [r for r in range(size) if r != root]] = 0
    elif method == "Scatterv":
        counts[[r for r in range(size) if r != root], :] = 0
    elif method == "Allgatherv":
        counts[:] = counts[:, :1]
    one_block_sent = method in ("Gatherv", "Allgatherv")
    sent, mine, mine_spec = {}, None, None
    for s in range(size):
        row = [int(c) for c in counts[s]]
        if one_block_sent:
            total = row[root] if method == "Gatherv" else row[0]
            places = [np.arange(total)] * size
        else:
            displs, total = spaced(rng, row, form)
            places = numbers(row, displs)
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], s)
        box = Box(framework, dtype, layout, total, rng).fill(random_bits(dtype, total, rng))
        for r in range(size):
            sent[s, r] = box.flat()[places[r]] if counts[s, r] else box.flat()[:0]
        if s == rank:
            mine = box
            mine_spec = (
                box.tensor if one_block_sent else message(form, box.tensor, row, displs, dtype)
            )
    column = [int(c) for c in counts[:, rank]]
    if method == "Scatterv":
        displs, room = [0] * size, column[root]
    else:
        displs, room = spaced(rng, column, form)
    framework, layout = spread(dtype, WRITABLE, case["receive_in"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, room, rng)
    out_spec = (
        out.tensor if method == "Scatterv" else message(form, out.tensor, column, displs, dtype)
    )

    if method == "Gatherv":
        comm.Gatherv(mine_spec, out_spec if rank == root else None, root=root)
    elif method == "Scatterv":
        comm.Scatterv(mine_spec if rank == root else None, out_spec, root=root)
    else:
        getattr(comm, method)(mine_spec, out_spec)

    mine.expect_untouched()
    if method == "Gatherv" and rank != root:
        out.expect_untouched()
        return
    sources = [root] if method == "Scatterv" else list(range(size))
    places = numbers(column, displs)
    out.expect_where(
        np.concatenate([sent[s, rank] for s in sources]),
        np.concatenate([places[s] for s in sources]),
    )


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_counts_left_out_share_evenly(comm, rng, name, layout):
    """Without counts a buffer is divided as mpi4py divides it: the first ranks get one more."""
    dtype, size, total = BY_NAME[name], comm.size, 4 * comm.size + comm.size // 2
    counts = [total // size + (total % size > r) for r in range(size)]
    whole = random_bits(dtype, total, rng)
    start = sum(counts[: comm.rank])
    mine = Box("numpy", dtype, layout, counts[comm.rank], rng)
    source = Box(layout.frameworks[-1], dtype, layout, total, rng).fill(whole)
    comm.Scatterv(source.tensor if comm.rank == 0 else None, mine.tensor)
    mine.expect(whole[start : start + counts[comm.rank]])
    out = Box(layout.frameworks[-1], dtype, layout, total, rng)
    comm.Allgatherv(mine.tensor, out.tensor)
    out.expect(whole)


def test_one_number_for_all_counts_and_displacements(comm):
    size = comm.size
    out = np.full((4 * size,), -1.0)
    comm.Allgatherv(np.full(3, float(comm.rank)), [out, 3, 4, MPI.DOUBLE])
    assert out.reshape(size, 4)[:, :3].tolist() == [[r] * 3 for r in range(size)]
    assert (out.reshape(size, 4)[:, 3] == -1).all()


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int64", "complex128"])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_reduce_scatter_with_counts(comm, rng, name, layout):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    counts = [int(c) for c in rng.integers(0, 40, size)]
    sent = [exact(dtype, "SUM", sum(counts), rng) for _ in range(size)]
    framework = layout.frameworks[-1]
    mine = Box(framework, dtype, layout, sum(counts), rng).fill(sent[rank])
    start = sum(counts[:rank])
    part = slice(start, start + counts[rank])
    for given in (counts, None):  # None: each rank's own count, from its receive buffer
        out = Box("numpy", dtype, layout, counts[rank], rng)
        comm.Reduce_scatter(mine.tensor, out.tensor, given)
        out.expect(expected(dtype, "SUM", [values[part] for values in sent]))
