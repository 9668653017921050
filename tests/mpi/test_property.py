"""Every way of reducing against float64 or exact integers: operation, dtype, form, size and layout
are drawn anew in each run (a failure prints DLMPI_TEST_SEED), with NaN, infinities, denormals and
both zeros. What ways of our own give is the same on all ranks and when the call is repeated."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI
from support.arithmetic import UFUNCS, expected, has_meaning
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import TABLE
from support.extremes import compare, draw
from support.immediate import Immediate
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi

WAYS = ("auto", "mpi", "own", "ring", "halving", "two-level")
TRIALS = 20
DTYPES = [d for d in TABLE if d.kind not in ("longdouble", "longcomplex")]
OPS = (*UFUNCS, "AVG")


def choose(rng, rows):
    """One of them."""
    return rows[int(rng.integers(len(rows)))]


def length(rng, most):
    """Often small, seldom large, and hardly ever divisible by anything."""
    return int(
        choose(rng, (0, 1, int(rng.integers(2, 200)), int(10 ** rng.uniform(0, np.log10(most)))))
    )


def inputs(dtype, op, n, rng):
    """Stored elements. Sums of these 8-bit floats are exact in float32."""
    if dtype.kind == "float8":
        return dtype.encode(rng.integers(-4, 5, n) / 2.0)
    return draw(dtype, op, n, rng)


def is_right(dtype, op, parts, got):
    """Assert it."""
    if dtype.kind == "float8":
        np.testing.assert_array_equal(dtype.decode(got), dtype.decode(expected(dtype, op, parts)))
    else:
        compare(dtype, op, parts, got)


def one(comm, rng, way):
    """Draw a reduction, make it twice, and judge it on all ranks alike."""
    size, rank = comm.size, comm.rank
    while True:
        reduction, op, dtype = choose(rng, REDUCTIONS), choose(rng, OPS), choose(rng, DTYPES)
        means = has_meaning(op, dtype) or (
            dtype.kind == "float8" and op == "SUM" and "e8m0" not in dtype.name
        )
        if means and (reduction.average or op != "AVG"):
            break
    n = length(rng, 1_000_000 // reduction.gives(size))
    framework, waits, root = (
        choose(rng, dtype.frameworks),
        bool(rng.integers(2)),
        int(rng.integers(size)),
    )
    layout = choose(rng, [row for row in WRITABLE if framework in row.frameworks])
    trial = f"{way}: {reduction} {op} {dtype} n={n} {framework} {layout} {waits=} {root=}"
    total = reduction.gives(size) * n
    sent = [inputs(dtype, op, total, rng) for _ in range(size)]
    mine = Box(framework, dtype, layout, total, rng).fill(sent[rank])
    over, part = reduction.over(rank, size, root), reduction.part(rank, n)
    given = MPI.SUM if op == "SUM" else dlmpi.AVG if op == "AVG" else getattr(MPI, op)
    outs = []
    for _ in range(2):
        out = Box(framework, dtype, layout, n, rng)
        form = comm if waits else Immediate(comm)
        reduction.call(form, mine.tensor, out.tensor, given, root)
        if not waits:
            MPI.Request.Waitall(form.requests)
        outs.append(out)
    wrong, ours = None, way not in ("auto", "mpi") and reduction.average
    results = [out.flat() for out in outs]
    try:
        mine.expect_untouched()
        for out, result in zip(outs, results, strict=True):
            if over:
                out.expect(result)  # nothing around it was written
            else:
                out.expect_untouched()
        if over:
            is_right(dtype, op, [sent[r][part] for r in over], results[0])
            assert not ours or results[0].tobytes() == results[1].tobytes(), "other bits again"
    except AssertionError as error:
        wrong = f"rank {rank}: {error}"
    # All ranks hear of it, so that none waits for one that has left.
    found = comm.allgather((wrong, zlib.crc32(results[0].tobytes()) if over else 0))
    assert not any(words for words, _ in found), f"{trial}: {[words for words, _ in found]}"
    if ours and str(reduction) == "Allreduce":
        assert len({bits for _, bits in found}) == 1, f"{trial}: other bits on other ranks"


@pytest.mark.parametrize("way", WAYS)
def test_any_reduction_is_right(comm, rng, way):
    ours = dlmpi.wrap(comm.Dup(), allreduce=way)
    for _ in range(TRIALS):
        one(ours, rng, way)
    ours.Free()
