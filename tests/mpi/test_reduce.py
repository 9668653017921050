"""The collectives that reduce: every operation in every dtype that gives it a meaning, in every
framework and layout. Inputs are such that every order gives the same exact result; NumPy is the
oracle."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.arithmetic import UFUNCS, exact, expected, has_meaning
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import BY_NAME, TABLE
from support.layouts import BY_NAME as LAYOUT
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

CASES = pairwise(
    {
        "reduction": REDUCTIONS,
        "op": tuple(UFUNCS),
        "dtype": TABLE,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
        "n": (0, 1, 35, 105, 10_010),
    },
    valid=lambda row: (
        has_meaning(row["op"], row["dtype"])
        and all(
            row[f"{side}_in"] in row["dtype"].frameworks
            and row[f"{side}_in"] in row[f"{side}_as"].frameworks
            for side in ("send", "receive")
        )
    ),
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_reduces(comm, rng, case):
    reduction, op, dtype, n = case["reduction"], case["op"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    total = reduction.gives(size) * n
    sent, mine = [], None
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], r)
        box = Box(framework, dtype, layout, total, rng)
        box.fill(exact(dtype, op, total, rng))
        sent.append(box.flat())
        if r == rank:
            mine = box
    framework, layout = spread(dtype, WRITABLE, case["receive_in"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, n, rng)

    reduction.call(comm, mine.tensor, out.tensor, getattr(MPI, op), root)

    mine.expect_untouched()
    over, part = reduction.over(rank, size, root), reduction.part(rank, n)
    if over:
        out.expect(expected(dtype, op, [sent[r][part] for r in over]))
    else:
        out.expect_untouched()


@pytest.mark.parametrize("dtype", [BY_NAME["float32"], BY_NAME["float64"]], ids=str)
@pytest.mark.parametrize("n", [1, 1000, 300_001])
def test_random_sums_are_close_and_equal(comm, rng, dtype, n):
    """Any order of additions stays within the error bound of a sum, and all ranks agree."""
    data = rng.normal(size=(comm.size, n)).astype(dtype.store)
    out = Box("torch", dtype, LAYOUT["stepped"], n, rng)
    comm.Allreduce(data[comm.rank], out.tensor)
    wide = data.astype(np.longdouble)
    bound = comm.size * np.finfo(dtype.store).eps * np.abs(wide).sum(axis=0)
    assert (np.abs(out.flat() - wide.sum(axis=0)) <= bound).all()
    assert len(set(comm.allgather(out.flat().tobytes()))) == 1


def test_user_operations_reach_mpi(comm):
    """An operation made by the user is applied as MPI applies it."""

    def absolute_largest(a, b, _datatype):
        x, y = np.frombuffer(a, np.int64), np.frombuffer(b, np.int64)
        y[:] = np.maximum(abs(x), abs(y))

    op = MPI.Op.Create(absolute_largest, commute=True)
    try:
        values = np.arange(6, dtype=np.int64) - 3 * (comm.rank + 1)
        out = np.zeros(6, np.int64)
        comm.Allreduce(values, out, op=op)
        every = np.abs(np.arange(6) - 3 * (np.arange(comm.size)[:, None] + 1))
        want = every.max(axis=0) if comm.size > 1 else values
        assert out.tolist() == want.tolist()
    finally:
        op.Free()


def test_non_commutative_operations_keep_rank_order(comm):
    """MPI promises rank order to an operation that doesn't commute: here 2x2 matrix products."""

    def product(a, b, _datatype):
        x = np.frombuffer(a, np.int64).reshape(-1, 2, 2)
        y = np.frombuffer(b, np.int64).reshape(-1, 2, 2)
        y[:] = x @ y

    matrix = MPI.INT64_T.Create_contiguous(4).Commit()
    op = MPI.Op.Create(product, commute=False)
    try:
        values = np.array([[1, comm.rank + 1], [comm.rank, 1]], np.int64)
        out = np.zeros((2, 2), np.int64)
        comm.Allreduce([values, 1, matrix], [out, 1, matrix], op=op)
        want = np.eye(2, dtype=np.int64)
        for r in range(comm.size):
            want = want @ np.array([[1, r + 1], [r, 1]])
        assert out.tolist() == want.tolist()
    finally:
        op.Free()
        matrix.Free()
