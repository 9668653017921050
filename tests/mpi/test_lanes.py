"""The short way of plain arrays: values, refusals and numbers are those of the way of any tensor.

Ranks of one call come by different ways (a plain array, a message form, torch's). Oracle: NumPy on
what all ranks gave, in integers.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.fixtures import FIRST

pytestmark = pytest.mark.mpi

TYPES = {"i4": MPI.INT, "i8": MPI.LONG, "f4": MPI.FLOAT, "f8": MPI.DOUBLE, "F": MPI.C_FLOAT_COMPLEX}
POISON = 113


def forms(array, code, way):
    """Give the array's elements in one of several ways that mean the same."""
    match way % 5:
        case 0:
            return array
        case 1:
            return [array, TYPES[code]]
        case 2:
            return (array, array.size, TYPES[code])
        case 3:
            return torch.from_numpy(array)
        case _:
            return array.reshape(1, -1)


def numbers(rng, count, code):
    return rng.integers(-9, 9, count).astype(code)


def empty(count, code):
    return np.full(count, POISON).astype(code)


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("n", [0, 1, 7, 3000])
def test_each_rank_may_come_by_its_own_way(later, rng, code, n):
    size, rank = later.size, later.rank
    root = int(rng.integers(size))
    given = [numbers(rng, n * size, code) for _ in range(size)]
    mine, one = given[rank], given[rank][:n].copy()
    way = rank + int(rng.integers(5))

    def sent(array):
        return forms(array, code, way)

    def counted(array, blocks):
        """An explicit count is of one block."""
        return (array, array.size // blocks, TYPES[code]) if way % 2 else forms(array, code, 3)

    ones = np.array([row[:n] for row in given])
    got = one.copy() if rank == root else empty(n, code)
    later.Bcast(sent(got), root)
    assert np.array_equal(got, ones[root])
    got = empty(n * size, code)
    later.Allgather(sent(one), counted(got, size))
    assert np.array_equal(got, ones.ravel())
    got = empty(n * size, code)
    later.Gather(sent(one), counted(got, size) if rank == root else None, root)
    assert np.array_equal(got, ones.ravel() if rank == root else empty(n * size, code))
    got = empty(n, code)
    later.Scatter(counted(mine, size) if rank == root else None, sent(got), root=root)
    assert np.array_equal(got, given[root][n * rank : n * (rank + 1)])
    got = empty(n * size, code)
    later.Alltoall(mine, got)
    blocks = [row[n * rank : n * (rank + 1)] for row in given]
    assert np.array_equal(got, np.concatenate(blocks))

    total = ones.sum(0)
    got = empty(n, code)
    later.Allreduce(sent(one), sent(got))
    assert np.array_equal(got, total)
    got = one.copy()
    later.Allreduce(MPI.IN_PLACE, got, op=MPI.SUM)
    assert np.array_equal(got, total)
    got = empty(n, code)
    later.Reduce(sent(one), got, op=MPI.SUM, root=root)
    assert np.array_equal(got, total if rank == root else empty(n, code))
    got = empty(n, code)
    later.Reduce_scatter_block(mine, sent(got))
    assert np.array_equal(got, np.array(given).sum(0)[n * rank : n * (rank + 1)])
    got = empty(n, code)
    later.Scan(sent(one), got)
    assert np.array_equal(got, ones[: rank + 1].sum(0))
    got = empty(n, code)
    later.Exscan(one, sent(got))
    assert np.array_equal(got, ones[:rank].sum(0) if rank else empty(n, code))
    if code != "F":
        got = empty(n, code)
        later.Allreduce(one, got, MPI.MAX)
        assert np.array_equal(got, ones.max(0))


@pytest.mark.parametrize("code", TYPES)
def test_messages(later, rng, code):
    size, rank = later.size, later.rank
    given = [numbers(rng, 50, code) for _ in range(size)]
    to, source = (rank + 1) % size, (rank - 1) % size
    for way in range(5):
        got, status = empty(60, code), MPI.Status()
        later.Sendrecv(
            forms(given[rank], code, way), to, 3, forms(got, code, way + rank), source, 3, status
        )
        assert np.array_equal(got[:50], given[source])
        assert np.array_equal(got[50:], empty(10, code))
        assert (status.source, status.tag, status.Get_count(TYPES[code])) == (source, 3, 50)
        got = empty(50, code)
        request = later.Isend([given[rank], 20, TYPES[code]], to, tag=4)
        later.Recv([got, 30, TYPES[code]], source=source, tag=4, status=status)
        request.Wait()
        assert np.array_equal(got[:20], given[source][:20])
        assert np.array_equal(got[20:], empty(30, code))


def test_what_the_short_way_leaves_to_the_other_is_refused_or_done_there(later, rng):
    """A refusal in a call that is not compared is this rank's alone: all ranks make the same."""
    size, rank = later.size, later.rank
    a, b = rng.standard_normal(4), np.empty(4)
    fixed = np.empty(4)
    fixed.setflags(write=False)
    wrong = [
        (ValueError, lambda: later.Allgather(a, np.empty(4 * size + 1))),
        (ValueError, lambda: later.Allreduce(a, np.empty(3))),
        (ValueError, lambda: later.Allreduce(a, np.empty(4, "f4"))),
        (ValueError, lambda: later.Allreduce([a, MPI.FLOAT], b)),
        (ValueError, lambda: later.Allreduce([a, 5, MPI.DOUBLE], [b, 5, MPI.DOUBLE])),
        (ValueError, lambda: later.Bcast([a, -1, MPI.DOUBLE], 0)),
        (BufferError, lambda: later.Allreduce(a, fixed)),
        (BufferError, lambda: later.Sendrecv(a, rank, 0, fixed, rank)),
        (ValueError, lambda: later.Send([a, 5, MPI.DOUBLE], rank)),
        (TypeError, lambda: later.Allreduce(a, b, op="SUM")),
        (TypeError, lambda: later.Bcast(a, "0")),
        (TypeError, lambda: later.Bcast(a, 0, 0)),
        (TypeError, lambda: later.Bcast(a, rute=0)),
        (TypeError, lambda: later.Bcast(a, 0, root=0)),
        (MPI.Exception, lambda: later.Bcast(a, size)),
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
        later.Barrier()
    # One memory on both sides is IN_PLACE; what overlaps otherwise is copied first.
    same = np.full(5, rank + 1.0)
    later.Allreduce(same, same)
    assert (same == sum(range(1, size + 1))).all()
    shifted = np.arange(6.0) + rank
    before = shifted.copy()
    later.Allreduce(shifted[:5], shifted[1:])
    assert np.array_equal(shifted[1:], size * before[:5] - size * rank + sum(range(size)))


def test_calls_are_numbered_whoever_takes_which_way(rng):
    """A comparison that is due after later short calls finds who disagrees; then all goes on."""
    comm = MPI.COMM_WORLD.Dup()
    if comm.size == 1:
        pytest.skip("one rank agrees with itself")
    a, b = rng.standard_normal(3), np.empty(3)
    for number in range(1, 2 * FIRST):
        if number % 3:
            comm.Allreduce(a, b)
        else:
            comm.Bcast(a[::-1] if comm.rank % 2 else a, 0)
    with pytest.raises(dlmpi.MismatchError):  # call 128
        comm.Bcast(a, 0) if comm.rank else comm.Allreduce(a, b)
    ones = np.ones(3)
    comm.Allreduce(ones, b)
    assert (b == comm.size).all()
    comm.Free()
