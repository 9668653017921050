"""float16, bfloat16 and float8 reduce with float32 accumulation and one rounding at the end, on
every MPI. Inputs have exact float32 sums that need more bits than the type has, so that order
doesn't matter and a second rounding shows. Oracle: the formats' own definition (support.floats)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import BY_NAME
from support.floats import SMALL
from support.layouts import WRITABLE
from support.ranks import spread

pytestmark = pytest.mark.mpi
HALVES = ["float16", "bfloat16"]
EIGHTS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def wide_sums(name, n, rng):
    """Full mantissas at spread exponents: sums need several bits more than the type keeps."""
    bits = SMALL[name].mbits + 1
    whole = rng.integers(1 << (bits - 1), 1 << bits, n) * rng.choice([-1, 1], n)
    return BY_NAME[name].encode(
        np.ldexp(whole.astype(np.float64), rng.integers(-bits - 2, 2 - bits, n))
    )


def wide_products(name, n, rng):
    """Four-bit odd factors near one: the product of four needs 16 bits."""
    bits = min(SMALL[name].mbits + 1, 4)
    whole = (2 * rng.integers(0, 1 << (bits - 1), n) + 1) * rng.choice([-1, 1], n)
    return BY_NAME[name].encode(whole / float(1 << (bits - 1)))


@pytest.mark.parametrize("op", ["SUM", "PROD"])
@pytest.mark.parametrize("name", HALVES + EIGHTS)
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
@pytest.mark.parametrize("n", [1, 257, 4099])
def test_one_rounding(comm, rng, *, reduction, name, op, n):
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    root, total = int(rng.integers(size)), reduction.gives(size) * n
    draw = wide_sums if op == "SUM" else wide_products
    sent = [draw(name, total, rng) for _ in range(size)]
    layout = WRITABLE[int(rng.integers(len(WRITABLE)))]
    framework, layout = spread(dtype, WRITABLE, layout.frameworks[0], layout, rank)
    source = Box(framework, dtype, layout, total, rng).fill(sent[rank])
    out = Box(framework, dtype, layout, n, rng)
    reduction.call(comm, source.tensor, out.tensor, getattr(MPI, op), root)
    over, part = reduction.over(rank, size, root), reduction.part(rank, n)
    if not over:
        out.expect_untouched()
        return
    combine = np.sum if op == "SUM" else np.prod
    exact = combine([dtype.decode(sent[r][part]) for r in over], axis=0)
    assert (exact.astype(np.float32) == exact).all(), "the test's own inputs must be exact"
    out.expect(dtype.encode(exact))


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("n", [1, 1000, 200_003])
def test_random_sums_are_close_and_equal(comm, rng, name, n):
    """In any order of float32 additions the result lies between these two roundings."""
    dtype = BY_NAME[name]
    sent = [dtype.encode(rng.normal(size=n)) for _ in range(comm.size)]
    wide = np.array([dtype.decode(s) for s in sent])
    exact, bound = wide.sum(axis=0), comm.size * 2.0**-24 * np.abs(wide).sum(axis=0)
    out = Box("torch", dtype, WRITABLE[0], n, rng)
    source = Box("numpy", dtype, WRITABLE[0], n, rng).fill(sent[comm.rank])
    comm.Allreduce(source.tensor, out.tensor)
    got = dtype.decode(out.flat())
    assert (got >= dtype.decode(dtype.encode(exact - bound))).all()
    assert (got <= dtype.decode(dtype.encode(exact + bound))).all()
    assert (
        len(set(comm.allgather(hash(out.flat().tobytes())))) == 1
        or len(set(comm.allgather(out.flat().tobytes()))) == 1
    )


@pytest.mark.parametrize("name", HALVES)
def test_partial_sums_may_leave_the_range(comm, name):
    """60000 + 60000 - 60000 is 60000: the sum on the way there is kept in float32."""
    dtype = BY_NAME[name]
    largest = SMALL[name].magnitudes[-1]
    value = 0.9 * largest if name == "float16" else 2.0**126
    sign = [1, 1, -1, -1][comm.rank]
    source = Box("torch", dtype, WRITABLE[0], 9, np.random.default_rng(0))
    source.fill(dtype.encode(np.full(9, sign * value)))
    value = dtype.decode(dtype.encode(np.array([value])))[0]
    total = value * sum([1, 1, -1, -1][: comm.size])
    comm.Allreduce(MPI.IN_PLACE, source.tensor)
    source.expect(dtype.encode(np.full(9, total)))


@pytest.mark.parametrize("name", HALVES)
def test_overflow_and_infinities(comm, rng, name):
    """Too large is infinity, opposite infinities are NaN, and a NaN stays one."""
    dtype = BY_NAME[name]
    largest = SMALL[name].magnitudes[-1]
    mine = [largest, -np.inf, 1.0, 1.0, 1.0, 0.0]
    if comm.rank == 0:
        mine = [largest, np.inf, np.nan, np.inf, -np.inf, largest]
    source = Box("numpy", dtype, WRITABLE[0], 6, rng).fill(dtype.encode(np.array(mine)))
    out = Box("torch", dtype, WRITABLE[0], 6, rng)
    comm.Allreduce(source.tensor, out.tensor)
    got = dtype.decode(out.flat())
    alone = comm.size == 1
    assert got[0] == (largest if alone else np.inf)
    assert got[1] == np.inf if alone else np.isnan(got[1])
    assert np.isnan(got[2])
    assert got[3:].tolist() == [np.inf, -np.inf, largest]


def test_the_textbook_case(comm):
    """2048 + 1 + 1 + 1 in float16 is 2052 rounded once, and 2048 if it is rounded on the way."""
    mine = np.array([2048 if comm.rank == 0 else 1], np.float16)
    out = np.zeros(1, np.float16)
    comm.Allreduce(mine, out)
    assert out[0] == {1: 2048, 2: 2048, 3: 2050, 4: 2052}[comm.size]


def peak():
    """The most bytes this process has had since a reset; None where Linux does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) << 10


def reset_peak():
    """From now on, where Linux lets us; the most bytes until now."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return None
    return peak()


def sum_many(ours, call, n):
    """Add up n 16-bit floats by the library and judge it; the bytes there were before, and most."""
    pattern = np.arange(n, dtype=np.uint8) % 7

    def sent(rank):
        return torch.from_numpy(pattern).to(torch.bfloat16) * (rank + 1)

    mine, out = sent(ours.rank), torch.full((n,), -1, dtype=torch.bfloat16)
    if call == "in place":
        out.copy_(mine)
    before = reset_peak()
    factor = ours.size * (ours.size + 1) // 2
    if call == "Exscan":
        ours.Exscan(mine, out)
        factor = ours.rank * (ours.rank + 1) // 2 if ours.rank else None
    elif call == "in place":
        ours.Allreduce(MPI.IN_PLACE, out)
    elif call == "Iallreduce":
        ours.Iallreduce(mine, out).Wait()
    else:
        ours.Allreduce(mine, out)
    after = peak()
    want = torch.full_like(out, -1) if factor is None else sent(0) * factor
    assert torch.equal(out, want)
    return (0, 0) if before is None or after is None else (before, after)


@pytest.mark.parametrize("call", ["Allreduce", "Exscan", "in place"])
def test_what_is_widened_is_not_there_all_at_once(comm, call):
    """Blocking ones, of more elements than are widened at a time (8 Mi)."""
    ours = dlmpi.wrap(comm.Dup(), allreduce="mpi")
    # What is kept from call to call is there after this one.
    sum_many(ours, call, (8 << 20) + 5)
    # One side widened as a whole is 160 MiB, each time; the libraries take slices of 32 MiB
    # themselves besides ours, Intel MPI sometimes one more: the least of some calls is judged.
    start, least = None, math.inf
    for _ in range(10):
        before, most = sum_many(ours, call, (40 << 20) + 5)
        start = before if start is None else start  # what one call keeps counts in the next
        least = min(least, most - start)
        if comm.allreduce(least < 128 << 20, MPI.LAND):
            break
    assert least < 128 << 20
    ours.Free()


def test_a_large_nonblocking_sum(comm):
    """It is widened as a whole."""
    ours = dlmpi.wrap(comm.Dup(), allreduce="mpi")
    sum_many(ours, "Iallreduce", (8 << 20) + 5)
    ours.Free()
