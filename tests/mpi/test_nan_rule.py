"""MAX and MIN of floats: a NaN on any rank wins, and -0 is less than +0; on every MPI, in every
collective. Every combination of special values over the ranks is tried."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dlmpi import MPI
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import BY_NAME
from support.layouts import WRITABLE
from support.ranks import spread

pytestmark = pytest.mark.mpi
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5]
TINY = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}


def key(value: float) -> tuple[float, bool]:
    """Orders -0 before +0."""
    return value, not np.signbit(value)


def want(op: str, column) -> float:
    if any(np.isnan(v) for v in column):
        return np.nan
    return (max if op == "MAX" else min)(column, key=key)


@pytest.mark.parametrize("op", ["MAX", "MIN"])
@pytest.mark.parametrize("name", [*TINY, "longdouble"])
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_every_combination(comm, rng, *, reduction, name, op):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    special = [*SPECIAL, TINY.get(name, 2.0**-1074), -TINY.get(name, 2.0**-1074)]
    columns = np.array(list(product(special[: 10 if size < 4 else 6], repeat=size)))
    columns = rng.permutation(columns)
    n, root = len(columns), int(rng.integers(size))
    blocks = reduction.gives(size)
    layout = WRITABLE[int(rng.integers(3))]
    framework, layout = spread(dtype, WRITABLE, dtype.frameworks[-1], layout, rank)
    source = Box(framework, dtype, layout, n * blocks, rng)
    source.fill(dtype.encode(np.tile(columns[:, rank], blocks)))
    out = Box(framework, dtype, layout, n, rng)
    reduction.call(comm, source.tensor, out.tensor, getattr(MPI, op), root)
    over = reduction.over(rank, size, root)
    if not over:
        out.expect_untouched()
        return
    wanted = np.array([want(op, column[list(over)]) for column in columns])
    got = dtype.decode(out.flat())
    bad = ~(
        (np.isnan(got) & np.isnan(wanted))
        | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))
    )
    assert not bad.any(), [
        (columns[i][list(over)].tolist(), got[i], wanted[i]) for i in np.flatnonzero(bad)[:5]
    ]


@pytest.mark.parametrize("op", ["MAX", "MIN"])
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 3, 17, 1023, 100_003])
def test_one_nan_among_many(comm, rng, *, op, name, n):
    """One NaN, at a random place and rank, must be the only one, in vector tails too."""
    dtype = BY_NAME[name]
    data = dtype.encode(rng.normal(size=comm.size * n)).reshape(comm.size, n)
    place, owner = int(rng.integers(n)), int(rng.integers(comm.size))
    data[owner, place] = dtype.encode(np.array([np.nan]))[0]
    out = Box("torch", dtype, WRITABLE[0], n, rng)
    source = Box("numpy", dtype, WRITABLE[0], n, rng).fill(data[comm.rank])
    comm.Allreduce(source.tensor, out.tensor, op=getattr(MPI, op))
    got = dtype.decode(out.flat())
    assert np.flatnonzero(np.isnan(got)).tolist() == [place]
    extreme = np.max if op == "MAX" else np.min
    others = np.arange(n) != place
    wide = dtype.decode(data.reshape(-1)).reshape(comm.size, n)
    assert (got[others] == extreme(wide, axis=0)[others]).all()


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_persistent_reductions_follow_it(comm, rng, *, reduction):
    """They, too, and no small sum saturates; dense with a Datatype, and strided."""
    rank, size, n = comm.rank, comm.size, 37
    blocks, root = reduction.gives(size), size - 1
    over = list(reduction.over(rank, size, root))
    cases = [(name, op) for name in ("float32", "float64", "longdouble") for op in ("MAX", "MIN")]
    cases += [(name, "SUM") for name in ("int8", "uint8", "int16", "uint16", "float16")]
    for step, (name, op) in product((1, 2), cases):
        dtype = BY_NAME[name]
        summed = op == "SUM"
        if name == "float16":
            drawn = rng.integers(-9, 9, (size, n))
        elif summed:
            # Two of a column already leave the type's range, on either side of it.
            info = np.iinfo(dtype.numpy)
            side = rng.choice([-1, 1], n) if info.min else 1
            drawn = rng.integers(info.max * 3 // 4, info.max, (size, n), endpoint=True) * side
        else:
            drawn = rng.choice(SPECIAL, (size, n))
        source = np.zeros(n * blocks * step, dtype.numpy)[::step]
        source[:] = np.tile(drawn[rank], blocks).astype(dtype.numpy)
        out = np.full(n * step, 5, dtype.numpy)[::step]
        extra = {"root": root} if reduction.name == "Reduce" else {}
        spec = [source, dtype.mpi and getattr(MPI, dtype.mpi)] if step == 1 else source
        make = getattr(comm, f"{reduction.name}_init")
        request = make(spec, out, op=getattr(MPI, op), **extra)
        for _ in range(2):
            request.Start()
            request.Wait()
        request.Free()
        if not over:
            assert (out == 5).all()
            continue
        if summed:
            # 64 bits hold these sums; what does not fit into the type wraps.
            wanted = drawn[over].sum(0).astype(dtype.numpy)
        else:
            wanted = np.array([want(op, column[over]) for column in drawn.T])
        good = (out == wanted) & (np.signbit(out) == np.signbit(wanted))
        assert (good | (np.isnan(out) & np.isnan(wanted))).all(), (name, op, step)
