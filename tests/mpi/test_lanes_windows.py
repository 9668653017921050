"""The short way of one-sided operations, and of what ends them: values, refusals and what is held
are those of the way of any tensor. Oracle: the window's memory, in integers."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

TYPES = {"f8": MPI.DOUBLE, "F": MPI.C_FLOAT_COMPLEX}
POISON = 113
FLUSHES = {
    "Flush": lambda win, rank: win.Flush(rank),
    "Flush_local": lambda win, rank: (win.Flush_local(rank=rank), win.Flush(rank)),
    "Flush_all": lambda win, rank: win.Flush_all(),
    "Flush_local_all": lambda win, rank: (win.Flush_local_all(), win.Flush_all()),
    "of a NumPy integer": lambda win, rank: win.Flush(np.int64(rank)),
}
#: The elements `first` to `last` of an array.
FORMS = [
    lambda array, first, last, kind: array[first:last],
    lambda array, first, last, kind: [array[first:last], kind],
    lambda array, first, last, kind: (array, (last - first, first), kind),
    lambda array, first, last, kind: [array, last - first, first, kind],
    lambda array, first, last, kind: torch.from_numpy(array[first:last]),
]


@pytest.fixture
def windows(comm):
    """Make windows of each rank's memory, with all of them locked."""
    made = []

    def make(memory):
        win = MPI.Win.Create(memory, memory.itemsize, comm=comm)
        win.Lock_all()
        made.append(win)
        return win

    yield make
    for win in made:
        win.Unlock_all()
        win.Free()


@pytest.mark.parametrize("case", [*product(TYPES, FLUSHES, [0, 1, 70])], ids=str)
def test_to_the_next_and_back(comm, rng, windows, case):
    code, flush, n = case
    size, rank, kind = comm.size, comm.rank, TYPES[code]
    to, source = (rank + 1) % size, (rank - 1) % size
    memory = np.full(n + 4, POISON).astype(code)
    win = windows(memory)
    for way in range(2 * len(FORMS)):
        form = FORMS[(way + rank) % len(FORMS)]
        given = [rng.integers(-9, 9, n).astype(code) for _ in range(size)]
        arena = np.full(n + 6, POISON).astype(code)
        arena[3 : 3 + n] = given[rank]
        win.Put(form(arena, 3, 3 + n, kind), to, 2)
        FLUSHES[flush](win, to)
        comm.Barrier()
        win.Sync()
        assert np.array_equal(memory[2:-2], given[source])
        assert (np.delete(memory, slice(2, n + 2)) == POISON).all()
        arena[:] = POISON
        win.Get(form(arena, 3, 3 + n, kind), to, 2)
        FLUSHES[flush](win, to)
        assert np.array_equal(arena[3 : 3 + n], given[rank])
        assert (np.delete(arena, slice(3, 3 + n)) == POISON).all()
        comm.Barrier()
        arena[3 : 3 + n] = given[rank]
        win.Accumulate(form(arena, 3, 3 + n, kind), to, 2, *[MPI.SUM] * (way % 2))
        FLUSHES[flush](win, to)
        comm.Barrier()
        win.Sync()
        assert np.array_equal(memory[2:-2], 2 * given[source])
        comm.Barrier()


def test_maximum_and_default_displacement(comm, windows):
    memory = np.zeros(3)
    win, to = windows(memory), (comm.rank + 1) % comm.size
    for target in (None, 0, (0, 3, MPI.DOUBLE)):
        win.Accumulate(np.array([1.0, -1, 5]), to, target, op=MPI.MAX)
        win.Flush(to)
    comm.Barrier()
    assert memory.tolist() == [1, 0, 5]
    comm.Barrier()


def test_temporaries_are_held_until_their_rank_is_flushed(comm, windows):
    class Mine(np.ndarray):
        """Arrays cannot be referred to weakly, instances of this can; the memory is its base's."""

    win = windows(np.zeros(4))
    me, other = comm.rank, (comm.rank + 1) % comm.size

    def put(to):
        owner = Mine(4)
        owner[:] = 7
        win.Put(owner.view(np.ndarray), to)
        return weakref.ref(owner)

    put(me)  # the first one goes the way of any tensor
    win.Flush(me)
    first, second = put(me), put(other)
    gc.collect()
    assert first() is not None
    assert second() is not None
    win.Flush(me)
    assert first() is None
    assert (second() is None) == (me == other)
    win.Flush_all()
    assert second() is None


def test_what_is_refused_is_refused_in_the_same_words(comm, windows):
    win, me = windows(np.zeros(4)), comm.rank
    plain, fixed = np.zeros(4), np.zeros(4)
    fixed.setflags(write=False)
    win.Put(plain, me)  # from now on arrays take the short way

    def refused(call):
        with pytest.raises((ValueError, TypeError, BufferError, MPI.Exception)) as found:
            call()
        return type(found.value), str(found.value)

    tensor = torch.zeros(4, dtype=torch.float64)
    for said in ([5], [(2, 3)], [-1], [1, -1, MPI.DOUBLE], [(2, 3), MPI.DOUBLE]):
        for call in (win.Put, win.Get, win.Accumulate):
            forms = [[x, *said] for x in (plain, tensor)]
            words = [refused(partial(call, form, me)) for form in forms]
            assert words[0] == words[1], said
    for displ, count in ((1, 4), (4, 1), (1 << 40, 1), (-1, 1)):  # beyond the target's window
        for call in (win.Put, win.Get, win.Accumulate):
            forms = [[x, count] for x in (plain, tensor)]
            words = [refused(partial(call, form, me, displ)) for form in forms]
            assert words[0] == words[1], displ
    for op in (MPI.BAND, MPI.MAXLOC):
        words = [refused(partial(win.Accumulate, x, me, op=op)) for x in (plain, tensor)]
        assert words[0] == words[1], op
    assert refused(lambda: win.Get(fixed, me))[0] is BufferError
    assert refused(lambda: win.Accumulate(plain, me, op="SUM"))[0] is TypeError
    assert refused(lambda: win.Put(plain))[0] is TypeError
    assert refused(win.Flush)[0] is TypeError
    assert refused(lambda: win.Flush("0"))[0] is TypeError
    assert refused(lambda: win.Put(plain, comm.size))[0] is MPI.Exception
    assert refused(lambda: MPI.WIN_NULL.Flush(0))[0] is MPI.Exception
    win.Flush(me)
