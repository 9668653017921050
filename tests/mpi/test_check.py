"""The check: ranks that disagree all raise, name what each one called, and go on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI

pytestmark = pytest.mark.mpi


@pytest.fixture
def fresh(comm):
    """A communicator whose first 64 calls are compared, whatever DLMPI_CHECK says."""
    if comm.size == 1:
        pytest.skip("one rank cannot disagree")
    dup = comm.Dup()
    yield dup
    dup.Free()


def odd(comm):
    """The rank that does otherwise."""
    return comm.rank == comm.size - 1


F4 = np.float32

#: What most ranks call and what the last rank calls, by the field in which they differ.
DISAGREE = {
    "operation": (
        lambda c: c.Allreduce(np.ones(4), np.ones(4)),
        lambda c: c.Bcast(np.ones(4)),
    ),
    "dtype": (
        lambda c: c.Allreduce(np.ones(4), np.ones(4)),
        lambda c: c.Allreduce(np.ones(4, F4), np.ones(4, F4)),
    ),
    "elements": (
        lambda c: c.Allreduce(MPI.IN_PLACE, np.ones(4)),
        lambda c: c.Allreduce(MPI.IN_PLACE, np.ones(5)),
    ),
    "op": (
        lambda c: c.Allreduce(np.ones(4), np.ones(4), op=MPI.SUM),
        lambda c: c.Allreduce(np.ones(4), np.ones(4), op=MPI.MAX),
    ),
    "mean": (
        lambda c: c.Allreduce(np.ones(4), np.ones(4), op=MPI.SUM),
        lambda c: c.Allreduce(np.ones(4), np.ones(4), op=dlmpi.AVG),
    ),
    "root": (
        lambda c: c.Bcast(np.ones(4), root=0),
        lambda c: c.Bcast(np.ones(4), root=1),
    ),
    "bytes of a Bcast": (
        lambda c: c.Bcast(np.ones(4)),
        lambda c: c.Bcast(np.ones(4, F4)),
    ),
    "block of a Gather": (
        lambda c: c.Gather(np.ones(4), np.ones(4 * c.size) if c.rank == 0 else None),
        lambda c: c.Gather(np.ones(3), None),
    ),
    "counts of an Allgatherv": (
        lambda c: c.Allgatherv(np.ones(1), [np.ones(9), [1] * c.size, range(c.size)]),
        lambda c: c.Allgatherv(np.ones(2), [np.ones(9), [1] * (c.size - 1) + [2], None]),
    ),
    "recvcounts": (
        lambda c: c.Reduce_scatter(np.ones(2 * c.size), np.ones(2), [2] * c.size),
        lambda c: c.Reduce_scatter(np.ones(c.size), np.ones(1), [1] * c.size),
    ),
    "barrier": (lambda c: c.Barrier(), lambda c: c.Allgather(np.ones(1), np.ones(c.size))),
    "block of an Alltoall": (
        lambda c: c.Alltoall(np.ones(c.size), np.ones(c.size)),
        lambda c: c.Alltoall(np.ones(2 * c.size), np.ones(2 * c.size)),
    ),
}


def still_usable(comm):
    out = np.empty(3)
    comm.Allreduce(np.full(3, comm.rank + 1.0), out)
    assert np.all(out == sum(range(1, comm.size + 1)))


@pytest.mark.parametrize("field", DISAGREE)
def test_every_rank_raises_and_goes_on(fresh, field):
    most, last = DISAGREE[field]
    with pytest.raises(dlmpi.MismatchError) as caught:
        (last if odd(fresh) else most)(fresh)
    text = str(caught.value)
    assert "disagree" in text
    assert f"rank {fresh.size - 1}" in text
    still_usable(fresh)


def line_of(function):
    return f"{__file__[-40:]}:{function.__code__.co_firstlineno}"


@pytest.mark.parametrize("field", DISAGREE)
def test_the_lines_of_all_ranks_are_named(fresh, field):
    most, last = DISAGREE[field]
    with pytest.raises(dlmpi.MismatchError) as caught:
        (last if odd(fresh) else most)(fresh)
    rows = str(caught.value).splitlines()
    (ours,) = [row for row in rows if row.startswith(f"  rank {fresh.size - 1}: ")]
    assert ours.endswith(line_of(last)), rows
    (others,) = [row for row in rows if row.startswith("  rank") and row != ours]
    assert others.endswith(line_of(most)), rows


def test_a_non_blocking_call_is_named_by_the_line_that_started_it(fresh):
    start = lambda: fresh.Iallreduce(MPI.IN_PLACE, np.ones(4 + odd(fresh)))  # noqa: E731
    request = start()
    with pytest.raises(dlmpi.MismatchError) as caught:
        request.Wait()
    assert str(caught.value).count(line_of(start)) == 2


def test_functions_are_named_by_the_users_line(fresh):
    call = lambda: dlmpi.allreduce(np.ones(4 + odd(fresh)), comm=fresh)  # noqa: E731
    with pytest.raises(dlmpi.MismatchError) as caught:
        call()
    assert str(caught.value).count(line_of(call)) == 2


def test_all_ranks_see_the_same_words(fresh):
    with pytest.raises(dlmpi.MismatchError) as caught:
        fresh.Allreduce(MPI.IN_PLACE, np.ones(4 + odd(fresh)))
    assert len(set(fresh.allgather(str(caught.value)))) == 1
    assert "5 float64" in str(caught.value)


def test_non_blocking_raises_at_wait(fresh):
    request = fresh.Iallreduce(MPI.IN_PLACE, np.ones(4 + odd(fresh)))
    with pytest.raises(dlmpi.MismatchError):
        request.Wait()
    requests = [fresh.Iallreduce(MPI.IN_PLACE, np.ones(4 + odd(fresh)))]
    with pytest.raises(MPI.Exception):
        MPI.Request.Waitall(requests)
    still_usable(fresh)


REFUSED = {
    "read-only": lambda: np.frombuffer(b"12345678" * 4),
    "not a tensor": object,
    "overlapping": lambda: torch.zeros(1).expand(4),
    "count": lambda: [np.zeros(4), 5],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_on_one_rank_raises_on_all(fresh, reason):
    if odd(fresh):
        with pytest.raises((BufferError, TypeError, ValueError)):
            fresh.Allreduce(np.zeros(4), REFUSED[reason]())
    else:
        with pytest.raises(dlmpi.MismatchError, match=f"rank {fresh.size - 1}: Allreduce refused"):
            fresh.Allreduce(np.zeros(4), np.zeros(4))
    still_usable(fresh)


def test_a_refused_non_blocking_call_raises_on_all(fresh):
    if odd(fresh):
        with pytest.raises(TypeError):
            fresh.Iallreduce(np.zeros(4), object())
    else:
        with pytest.raises(dlmpi.MismatchError, match="refused"):
            fresh.Iallreduce(np.zeros(4), np.zeros(4)).Wait()
    still_usable(fresh)


def test_lawful_differences_are_no_disagreement(fresh):
    """Layout, framework, IN_PLACE, counts of v-forms, and a derived Datatype on one rank."""
    size, rank = fresh.size, fresh.rank
    out = torch.full((2, 3), float(rank)).t() if odd(fresh) else np.full((3, 2), rank, F4)
    fresh.Allreduce(MPI.IN_PLACE, out)
    assert np.all(np.asarray(out) == sum(range(size)))

    pair = MPI.DOUBLE.Create_contiguous(2).Commit()
    spec = [np.full(4, 7.0), 2, pair] if odd(fresh) else [np.full(4, 7.0), 4, MPI.DOUBLE]
    fresh.Bcast(spec, root=0)
    pair.Free()

    got = np.zeros(4 * size) if rank == 0 else None
    counts = [r + 1 for r in range(size)]
    fresh.Gatherv(np.full(rank + 1, float(rank)), [got, counts] if rank == 0 else None)
    if rank == 0:
        assert np.array_equal(got[: sum(counts)], np.repeat(np.arange(size), counts))
    still_usable(fresh)


def test_many_calls_stay_in_step(fresh):
    """Past the first 64 only powers of two are compared, by number alone."""
    out = np.empty(2)
    for i in range(300):
        fresh.Allreduce(np.full(2, float(i)), out)
        assert out[0] == i * fresh.size
    still_usable(fresh)
