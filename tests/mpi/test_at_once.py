"""Non-blocking collectives that MPI carries by its own request: small ones whose turn has come.

Whether a rank takes that way is its own business, so ranks of one call come by different ways:
plain arrays with counts, torch's, Datatypes that only mpi4py can read. Oracle: NumPy on integers.
"""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
import torch
from mpi4py import MPI as STOCK

from dlmpi import MPI

pytestmark = pytest.mark.mpi

#: A communicator's first collectives are compared, and those whose number is a power of two.
FIRST = 64
POISON = -113
#: Elements of a block that is small, and of one that the engine carries.
SIZES = (0, 1, 7, 9001)


def settled(comm):
    dup = comm.Dup()
    for _ in range(FIRST):
        dup.Barrier()
    return dup


@pytest.fixture(scope="module")
def many():
    """A communicator with more collectives behind it than are compared."""
    dup = settled(MPI.COMM_WORLD)
    yield dup
    dup.Free()


def ragged(size, n):
    """Return counts, of which one is 0 where that can be, and places with a gap between them."""
    counts = [n * rank for rank in range(size)] if size > 1 else [n]
    places = [sum(counts[:rank]) + rank for rank in range(size)]
    return counts, places, sum(counts) + size


def form(array, counts, places, way):
    """Give blocks of an array in one of several ways that mean the same."""
    match way % 4:
        case 0:
            return [array, counts, places, MPI.INT64_T]
        case 1:
            return [torch.from_numpy(array), (counts, places)]
        case 2:
            triple = MPI.INT64_T.Create_contiguous(1).Commit()
            kept.append(triple)
            return [array, counts, places, triple]
        case _:
            return [array, (counts, places)]


kept: list[MPI.Datatype] = []


@pytest.fixture(autouse=True)
def _free_types():
    yield
    while kept:
        kept.pop().Free()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("turn", range(4))
def test_each_rank_may_come_by_its_own_way(many, rng, n, turn):
    size, rank = many.size, many.rank
    way, root = rank + turn, int(rng.integers(size))
    counts, places, total = ragged(size, n)
    every = rng.integers(-99, 99, (size, total))  # what each rank has for all
    mine = every[rank].copy()

    def block(row, r):
        return every[row][places[r] : places[r] + counts[r]]

    def want(rows):
        out = np.full(total, POISON)
        for r, row in enumerate(rows):
            out[places[r] : places[r] + counts[r]] = row
        return out

    started, checks = [], []

    def start(request, out, wanted):
        started.append(request)
        checks.append((out, wanted))

    own = mine[places[rank] : places[rank] + counts[rank]].copy()
    gathered = np.full(total, POISON)
    start(
        many.Igatherv(own, form(gathered, counts, places, way) if rank == root else None, root),
        gathered,
        want([block(r, r) for r in range(size)]) if rank == root else gathered.copy(),
    )
    part = np.full(counts[rank], POISON)
    start(
        many.Iscatterv(form(mine, counts, places, way) if rank == root else None, part, root),
        part,
        block(root, rank),
    )
    everywhere = np.full(total, POISON)
    start(
        many.Iallgatherv(own, form(everywhere, counts, places, way)),
        everywhere,
        want([block(r, r) for r in range(size)]),
    )
    # To rank r goes what it has counts for, so all blocks of one receiver are alike.
    sent = [counts[r] for r in range(size)]
    got = [counts[rank]] * size
    at = [r * (counts[rank] + 1) for r in range(size)]
    exchanged = np.full(size * (counts[rank] + 1), POISON)
    wanted = exchanged.copy()
    for r in range(size):
        wanted[at[r] : at[r] + counts[rank]] = block(r, rank)
    start(
        many.Ialltoallv(form(mine, sent, places, way), form(exchanged, got, at, way + 1)),
        exchanged,
        wanted,
    )
    words = [8 * place for place in places], [8 * place for place in at]
    types = [MPI.INT64_T] * size
    exchanged = np.full(size * (counts[rank] + 1), POISON)
    start(
        many.Ialltoallw(
            [torch.from_numpy(mine) if way % 2 else mine, sent, words[0], types],
            [exchanged, (got, words[1]), types],
        ),
        exchanged,
        wanted,
    )
    summed = np.full(counts[rank], POISON)
    packed = np.concatenate([block(rank, r) for r in range(size)])
    start(
        many.Ireduce_scatter(packed if way % 2 else torch.from_numpy(packed), summed, counts),
        summed,
        sum(block(r, rank) for r in range(size)),
    )
    for request in rng.permutation(np.arange(len(started))):
        started[request].Wait()
    for out, wanted in checks:
        assert np.array_equal(out, wanted)


def test_small_ones_are_mpis_own_requests_and_large_ones_the_engines(many):
    """Else nothing here is about this way. Calls whose number is a power of two are compared."""
    size = many.size
    kinds = []
    for n in (3, 9001):
        out = np.empty(n * size)
        requests = [many.Iallgatherv(np.ones(n), [out, [n] * size]) for _ in range(3)]
        kinds.append([type(request).__name__ for request in requests])
        MPI.Request.Waitall(requests)
    if size > 1:
        assert kinds[0].count("Transfer") >= 2
        assert kinds[1] == ["Carried"] * 3


def test_some_of_many_are_compared_and_hold_up_those_behind_them(comm, rng):
    """Calls 113 to 152 under way at once, of which number 128 is compared."""
    size, rank = comm.size, comm.rank
    dup = settled(comm)
    for _ in range(FIRST - 16):
        dup.Barrier()
    counts = [r + 1 for r in range(size)]
    outs, requests = [], []
    for step in range(40):
        out = np.full(sum(counts), POISON)
        mine = np.full(rank + 1, 100 * step + rank)
        requests.append(dup.Iallgatherv(mine, [out, list(counts)]))
        outs.append(out)
    for at in rng.permutation(len(requests)):
        requests[at].Wait()
    for step, out in enumerate(outs):
        assert np.array_equal(out, np.repeat([100 * step + r for r in range(size)], counts))
    dup.Free()


@pytest.mark.parametrize("turn", range(2))
def test_two_communicators_in_rotated_orders(comm, turn):
    size, rank = comm.size, comm.rank
    groups = [settled(comm), settled(comm)]
    counts = [2] * size
    for step in range(8):
        rooms = []
        for at in (0, 1) if (rank + turn + step) % 2 else (1, 0):
            out = np.full(2 * size, POISON)
            mine = np.array([rank, 10 * step + at])
            rooms.append((at, out, groups[at].Iallgatherv(mine, [out, counts])))
        for at, out, request in reversed(rooms):
            request.Wait()
            assert out.tolist() == [x for r in range(size) for x in (r, 10 * step + at)]
    for group in groups:
        group.Free()


def test_counts_and_temporaries_may_go(many):
    """MPI reads counts and elements until the end, whatever becomes of the caller's."""
    size, rank = many.size, many.rank
    outs, requests = [], []
    for step in range(32):
        counts, out = [3] * size, np.full(3 * size, POISON)
        requests.append(many.Iallgatherv(np.full(3, rank + step), [out, counts]))
        counts[:] = [9999] * size
        outs.append(out)
    gc.collect()
    junk = [np.full(3, -7) for _ in range(64)]
    STOCK.Request.Waitall(requests)
    assert len(junk) == 64
    for step, out in enumerate(outs):
        assert np.array_equal(out, np.repeat(np.arange(size) + step, 3))


@pytest.mark.parametrize("forms", ["lists", "arrays", "pair"])
def test_what_an_ialltoallw_was_given_may_go(many, forms):
    """MPI reads its counts, displacements and Datatypes until the end."""
    size, rank = many.size, many.rank
    outs, requests = [], []
    for step in range(24):
        counts, at = [2] * size, [16 * r for r in range(size)]
        types = [MPI.INT64_T] * size
        if forms == "arrays":
            counts, at = np.array(counts, "i"), np.array(at, "i")
        out = np.full(2 * size, POISON)
        sent = np.repeat(np.arange(size), 2) + 100 * rank + step
        if forms == "pair":
            given = [[sent, (counts, at), types], [out, (counts, at), types]]
        else:
            given = [[sent, counts, at, types], [out, counts, at, types]]
        requests.append(many.Ialltoallw(*given))
        counts[:], at[:], types[:] = [9999] * size, [-8] * size, [MPI.BYTE] * size
        outs.append(out)
    del sent, given
    gc.collect()
    junk = [np.full(2 * size, -7) for _ in range(64)]
    STOCK.Request.Waitall(requests)
    assert len(junk) == 64
    for step, out in enumerate(outs):
        assert np.array_equal(out, np.repeat(100 * np.arange(size), 2) + rank + step)


def test_an_ialltoallw_that_leaves_its_arrays_is_refused(many):
    size = many.size
    types = [MPI.INT64_T] * size
    sent, room = np.zeros(size, int), np.full(size, POISON)
    fits = [[1] * size, [8 * r for r in range(size)], types]
    frozen = room.copy()
    frozen.flags.writeable = False
    for wrong in (
        [room, [1] * size, [8 * r + 8 for r in range(size)], types],
        [room, [1] * (size - 1) + [2], fits[1], types],
        [room, [1] * size, [-8] * size, types],
        [room, [2**31 - 1] * size, fits[1], types],
    ):
        with pytest.raises(ValueError, match="recvbuf"):
            many.Ialltoallw([sent, *fits], wrong)
    with pytest.raises(BufferError, match="writable"):
        many.Ialltoallw([sent, *fits], [frozen, *fits])
    assert np.all(room == POISON)
    request = many.Ialltoallw([sent, *fits], [room, *fits])
    request.Wait()
    assert not np.any(room)


@pytest.mark.parametrize("begins", [False, True])
def test_on_one_rank_the_block_lies_at_its_displacement(begins):
    """Open MPI 5.0.11 takes displacements there for numbers of elements."""
    dup = settled(MPI.COMM_SELF)
    for comm in (MPI.COMM_SELF, dup):
        for count in (2, 0):
            sent, room = np.arange(6.0), np.full(6, float(POISON))
            given = [sent, [count], [24], [MPI.DOUBLE]], [room, ([count], [8]), [MPI.DOUBLE]]
            if begins:
                comm.Ialltoallw(*given).Wait()
            else:
                comm.Alltoallw(*given)
            wanted = [POISON, *([3, 4][:count] or [POISON] * 2), *[POISON] * 3]
            assert room.tolist() == wanted
    dup.Free()


def test_a_request_that_is_dropped_leaves_its_memory_held(many):
    size, rank = many.size, many.rank
    outs = [np.full(2 * size, POISON) for _ in range(16)]
    for step, out in enumerate(outs):
        many.Iallgatherv(np.full(2, rank + step), [out, [2] * size])
    gc.collect()
    until = time.monotonic() + 20
    wanted = [np.repeat(np.arange(size) + step, 2) for step in range(16)]
    while time.monotonic() < until:
        many.Barrier()  # lets MPI go on
        done = all(np.array_equal(*pair) for pair in zip(outs, wanted, strict=True))
        if many.allreduce(done, op=MPI.LAND):
            return
    pytest.fail("not there after 20 s")


def test_what_is_refused_is_refused_before_anything_starts(many):
    size = many.size
    room = np.full(2 * size, POISON)
    with pytest.raises(ValueError, match="recvbuf"):
        many.Iallgatherv(np.ones(2, int), [room, [3] * size])
    assert np.all(room == POISON)
    many.Iallgatherv(np.full(2, 5), [room, [2] * size]).Wait()
    assert np.all(room == 5)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_communicator_may_be_freed_while_mpi_carries_them(rng, dropped):
    """The private duplicate they are on goes after the last of them, dropped ones included."""
    dup = settled(MPI.COMM_WORLD)
    size, rank = dup.size, dup.rank
    counts, places, total = ragged(size, 3)
    sent = rng.integers(-1000, 1000, counts[rank])
    out = np.full(total, POISON)
    types = [MPI.INT64_T] * size
    block = np.full(2 * size, rank)
    came = np.full(2 * size, POISON)
    requests = [
        dup.Iallgatherv(sent, [out, (counts, places)]),
        dup.Ialltoallw(
            [block, [2] * size, [16 * r for r in range(size)], types],
            [came, [2] * size, [16 * r for r in range(size)], types],
        ),
        dup.Ibarrier(),
    ]
    expected = MPI.COMM_WORLD.allgather(sent)
    dup.Free()
    if dropped:
        requests.clear()
        gc.collect()
        MPI.COMM_WORLD.Barrier()
        return
    MPI.Request.Waitall(requests)
    for r in range(size):
        assert np.array_equal(out[places[r] : places[r] + counts[r]], expected[r])
    assert came.tolist() == [r for r in range(size) for _ in range(2)]
