"""Non-blocking collectives that mpi4py describes to MPI take their turn among dlmpi's own.

A derived Datatype or one per peer means memory that only mpi4py can read. Issued on another
communicator than the others, or while the private duplicate is under way, they hang or crash.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from mpi4py import MPI as STOCK

from dlmpi import MPI

pytestmark = pytest.mark.mpi


@pytest.fixture
def fresh(comm):
    """A communicator without a private duplicate."""
    dup = MPI.Comm.Dup(comm)
    yield dup
    dup.Free()


@pytest.fixture
def triple():
    """Three neighbouring ints as one element, free to be freed by the test."""
    return MPI.INT32_T.Create_contiguous(3).Commit()


def test_a_raw_call_meets_plain_ones(fresh, triple):
    """Rank 0 describes its memory, the others give tensors: one broadcast all the same."""
    values = torch.arange(6, dtype=torch.int32).reshape(2, 3) * 7
    if fresh.rank == 0:
        request = fresh.Ibcast([values.numpy(), 2, triple])
        room = values
    else:
        room = torch.full((2, 3), -1, dtype=torch.int32)
        request = fresh.Ibcast(room)
    request.Wait()
    assert torch.equal(room, torch.arange(6, dtype=torch.int32).reshape(2, 3) * 7)
    triple.Free()


def test_each_rank_gives_tensors_in_its_own_turn(fresh, triple):
    for step in range(12):
        mine = np.array([fresh.rank, step, 5], dtype="i4")
        out = np.full((fresh.size, 3), -9, dtype="i4")
        if (fresh.rank + step) % 2:
            request = fresh.Iallgather(mine, out)
        else:
            request = fresh.Iallgather([mine, 1, triple], [out, 1, triple])
        request.Wait()
        assert np.array_equal(out, [[r, step, 5] for r in range(fresh.size)])
    triple.Free()


@pytest.mark.parametrize("first", ["raw", "types", "plain"])
def test_first_calls_on_two_communicators_in_rotated_orders(comm, triple, first):
    groups = [MPI.Comm.Dup(comm), MPI.Comm.Dup(comm)]
    order = groups if comm.rank % 2 else groups[::-1]
    size = comm.size
    rooms = {}
    for group in order:
        mine = np.array([comm.rank, groups.index(group), 1], dtype="i4")
        out = np.full((size, 3), -9, dtype="i4")
        if first == "raw":
            request = group.Iallgather([mine, 1, triple], [out, 1, triple])
        elif first == "plain":
            request = group.Iallgather(mine, out)
        else:
            spread = np.tile(mine, size)
            each = ([1] * size, [12 * r for r in range(size)], [triple] * size)
            request = group.Ialltoallw([spread, *each], [out, *each])
        rooms[group.handle] = (request, out)
    for at, group in enumerate(groups):
        request, out = rooms[group.handle]
        request.Wait()
        assert np.array_equal(out, [[r, at, 1] for r in range(size)])
        group.Free()
    triple.Free()


def test_what_the_caller_frees_and_changes_meanwhile(fresh):
    """A Datatype may be freed, temporaries dropped, lists reused (MPI 4.1 section 5.1.9)."""
    size = fresh.size
    rooms, requests = [], []
    for step in range(8):
        triple = MPI.INT32_T.Create_contiguous(3).Commit()
        out = np.full((size, 3), -1, dtype="i4")
        counts, places, types = [1] * size, [12 * r for r in range(size)], [triple] * size
        mine = np.tile(np.array([fresh.rank, step, 2], dtype="i4"), size)
        requests.append(
            fresh.Ialltoallw([mine, counts, places, types], [out, counts, places, types])
        )
        counts[:] = [99] * size
        places.clear()
        triple.Free()
        del mine
        gc.collect()
        rooms.append(out)
    MPI.Request.Waitall(requests)
    for step, out in enumerate(rooms):
        assert np.array_equal(out, [[r, step, 2] for r in range(size)])


def test_stock_calls_complete_them(fresh, triple):
    size = fresh.size
    got, mine = np.full((size, 3), -1, dtype="i4"), np.full(3, fresh.rank, dtype="i4")
    message = np.full(2, -1.0)
    started = [
        fresh.Irecv(message, (fresh.rank - 1) % size),
        fresh.Iallgather([mine, 1, triple], [got, 1, triple]),
        fresh.Isend(np.full(2, float(fresh.rank)), (fresh.rank + 1) % size),
    ]
    STOCK.Request.Waitall(started)
    assert np.array_equal(got, [[r] * 3 for r in range(size)])
    assert np.all(message == (fresh.rank - 1) % size)
    triple.Free()


def test_tensors_settle(fresh):
    """What is received under a Datatype counts as a write of the framework's."""
    pair = MPI.FLOAT.Create_contiguous(2).Commit()
    room = torch.full((fresh.size, 2), -1.0)
    before = room._version
    request = fresh.Iallgather([torch.full((2,), float(fresh.rank)), 1, pair], [room, 1, pair])
    request.Wait()
    assert torch.equal(room, torch.arange(float(fresh.size)).reshape(-1, 1).expand(-1, 2))
    assert room._version > before
    pair.Free()


def test_neighbors_of_a_topology(comm):
    """The private duplicate has the topology too."""
    ring = comm.Create_cart([comm.size], periods=[True])
    sums = np.zeros(2)
    first = ring.Iallreduce(np.full(2, 1.0), sums)
    got = np.full(2, -1.0)
    second = ring.Ineighbor_allgather(np.array([float(comm.rank)]), got)
    MPI.Request.Waitall([second, first])
    assert np.array_equal(got, [(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size])
    assert np.all(sums == comm.size)
    ring.Free()


def test_what_mpi4py_refuses_is_its_own_exception(fresh, triple):
    """All ranks ask for the same nonsense; the communicator stays usable."""
    out = np.zeros((fresh.size, 3), dtype="i4")
    mine = [np.zeros(3, "i4"), 1, triple]
    with pytest.raises((ValueError, TypeError)):
        fresh.Iallgather(mine, [out, "no count", triple]).Wait()
    total = np.zeros(1)
    fresh.Iallreduce(np.ones(1), total).Wait()
    assert total[0] == fresh.size
    triple.Free()


MAKERS = {
    "Dup": lambda comm: comm.Dup(),
    "Split": lambda comm: comm.Split(0, -comm.rank),
    "Create": lambda comm: comm.Create(comm.Get_group()),
    "Create_cart": lambda comm: comm.Create_cart([comm.size]),
    "Idup": lambda comm: _waited(*comm.Idup()),
    "Win": lambda comm: MPI.Win.Create(np.zeros(1), comm=comm),
    "Allreduce_init": lambda comm: comm.Allreduce_init(np.ones(1), np.zeros(1)),
}


def _waited(comm, request):
    request.Wait()
    return comm


@pytest.mark.parametrize("maker", MAKERS)
def test_something_is_made_while_the_duplicate_is_under_way(comm, maker):
    """On Open MPI the two meet inside these calls."""
    for _ in range(5):
        fresh = MPI.Comm.Dup(comm)
        total = np.zeros(3)
        request = fresh.Iallreduce(np.ones(3), total)
        made = MAKERS[maker](fresh)
        request.Wait()
        assert np.all(total == comm.size)
        made.Free()
        fresh.Free()


def test_a_rank_in_a_blocking_call_carries_the_others_on(comm):
    """Rank 0 enters a call on A while B, which the others wait for first, is under way there."""
    a, b = MPI.Comm.Dup(comm), MPI.Comm.Dup(comm)
    if "Open MPI" in MPI.Get_library_version():
        # It ends duplicates in the order of their parents only: so does stock `Idup`.
        for used in (a, b):
            used.Ibcast(np.ones(1)).Wait()
    big, one, two = np.ones(200_000), np.ones(3), np.ones(3)
    if comm.rank == 0:
        requests = [a.Iallreduce(MPI.IN_PLACE, one), b.Iallreduce(MPI.IN_PLACE, two)]
        a.Allreduce(MPI.IN_PLACE, big)
        MPI.Request.Waitall(requests)
    else:
        b.Iallreduce(MPI.IN_PLACE, two).Wait()
        request = a.Iallreduce(MPI.IN_PLACE, one)
        a.Allreduce(MPI.IN_PLACE, big)
        request.Wait()
    assert np.all(big == comm.size)
    assert np.all(one == comm.size)
    assert np.all(two == comm.size)
    a.Free()
    b.Free()


@pytest.mark.parametrize("form", [tuple, list], ids=["tuple", "list"])
def test_a_call_that_waits_keeps_the_form_of_its_counts(comm, form):
    """Counts with displacements are a tuple there; a new communicator's first call waits."""
    own = comm.Dup()
    size, rank = own.size, own.rank
    pair = MPI.DOUBLE.Create_contiguous(2).Commit()
    sent, got = np.arange(2.0 * size) + 100 * rank, np.full(2 * size, -1.0)
    counts, places = [1] * size, list(range(size))
    message = lambda memory: form([memory, (counts, places), pair])  # noqa: E731
    request = own.Ialltoallv(message(sent), message(got))
    counts[0] = 10**6  # the caller's to change
    request.Wait()
    pair.Free()
    own.Free()
    assert got.tolist() == [100 * peer + 2 * rank + i for peer in range(size) for i in range(2)]
