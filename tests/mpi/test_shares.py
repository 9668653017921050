"""`bcast` and `scatter` of objects, whose pickles travel with their length while they are short.

Right values come from generators seeded alike on all ranks. Where the pickles are of the program's
own making on some ranks alone, the messages are the same.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
SIZE, RANK = COMM.size, COMM.rank

#: Lengths of text whose pickles end at, or on either side of, what one message takes.
LENGTHS = (0, 1, 100, *range(108, 113), 500, 5000, 1 << 16, 200_000)


@pytest.fixture(params=[False, True], ids=["compared", "later"])
def group(request):
    """A communicator at its first collectives, and after those that are all compared."""
    dup = COMM.Dup()
    for _ in range(64 if request.param else 0):
        dup.Barrier()
    yield dup
    dup.Free()


def text(length, seed):
    return "".join(map(chr, np.random.default_rng(seed).integers(33, 126, length)))


def test_every_length(group):
    for length in LENGTHS:
        root = length % SIZE
        assert group.bcast(text(length, 1) if root == RANK else "poison", root) == text(length, 1)
        mine = [text(length, rank) for rank in range(SIZE)]
        assert group.scatter(mine if root == RANK else None, root) == mine[RANK]


def test_one_long_value_makes_all_follow(group):
    lengths = [3 if rank % 2 else 9000 for rank in range(SIZE)]
    mine = [text(length, rank) for rank, length in enumerate(lengths)]
    assert group.scatter(mine if RANK == 0 else None) == mine[RANK]
    # What is no list, and a list of what holds tensors.
    assert group.scatter(iter(mine) if RANK == 0 else None) == mine[RANK]
    tensors = [torch.arange(rank, rank + 40_000) for rank in range(SIZE)]
    got = group.scatter(tensors if RANK == 0 else None)
    assert torch.equal(got, torch.arange(RANK, RANK + 40_000))
    got.add_(1)
    small = group.scatter([np.full(2, rank) for rank in range(SIZE)] if RANK == 0 else None)
    assert small.tolist() == [RANK, RANK]
    small += 1


@pytest.mark.parametrize("value", [None, True, -5, 1 << 200, 2.5, 1j, "text", b"bytes", ()])
def test_what_cannot_change(group, value):
    got = group.bcast(value if RANK == 0 else "poison")
    assert got == value
    assert type(got) is type(value)


class Counted(int):
    """No builtin, though it is an integer."""


@pytest.mark.parametrize(
    "make",
    [lambda: [1, [2]], lambda: {"a": [1]}, lambda: {1, 2}, lambda: Counted(3), lambda: ([],)],
)
def test_what_the_root_gets_is_a_copy(group, make):
    sent = make()
    got = group.bcast(sent if RANK == 0 else None)
    assert got == sent
    assert type(got) is type(sent)
    assert got is not sent
    many = [make() for _ in range(SIZE)]
    got = group.scatter(many if RANK == 0 else None)
    assert got == many[RANK]
    assert got is not many[RANK]


@pytest.mark.parametrize("length", [5, 5000])
def test_some_ranks_have_a_pickle_of_their_own(group, length):
    """It is theirs alone: what they give and what they get passes through it."""
    passed = []

    def dumps(obj, protocol=None):
        passed.append(obj)
        return pickle.dumps(obj, protocol)

    def loads(data):
        passed.append("loaded")
        return pickle.loads(data)

    own = RANK % 2 == 1
    if own:
        MPI.pickle.__init__(dumps, loads)
    try:
        for root in range(SIZE):
            sent = [text(length, root), np.arange(3)]
            got = group.bcast(sent if root == RANK else None, root)
            assert got[0] == text(length, root)
            assert got[1].tolist() == [0, 1, 2]
            assert group.scatter(list(range(SIZE)), root) == RANK
    finally:
        MPI.pickle.__init__()
    assert passed.count("loaded") == (2 * SIZE if own else 0)
    assert len(passed) == (2 * SIZE + 1 + SIZE if own else 0)


def test_a_protocol_of_old(group):
    MPI.pickle.PROTOCOL = 2 if RANK == 0 else None
    try:
        for length in (4, 4000):
            assert group.bcast([text(length, 7)] if RANK == 0 else None) == [text(length, 7)]
    finally:
        MPI.pickle.PROTOCOL = None


def test_what_cannot_be_sent_is_refused_before_anything_is():
    """On one rank, which waits for nobody then."""
    alone = MPI.COMM_SELF.Dup()
    for comm in (alone, MPI.COMM_SELF):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            comm.bcast(lambda: None)
        with pytest.raises(ValueError, match="1"):
            comm.scatter([1, 2])
        with pytest.raises(TypeError):
            comm.bcast(1, root="nobody")
        with pytest.raises(TypeError):
            comm.bcast()
        assert comm.bcast(obj=[3], root=0) == [3]
        assert comm.scatter(sendobj=[4], root=0) == 4
    alone.Free()


def test_refused_on_all_ranks_alike(group):
    with pytest.raises(TypeError):
        group.bcast(1, root="nobody")
    with pytest.raises(MPI.Exception):
        group.bcast(1, root=SIZE + 3)


def test_messages_of_every_length():
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    status = MPI.Status()
    for length in LENGTHS:
        request = COMM.isend(text(length, RANK), to, 4)
        got = COMM.recv(source=source, tag=4, status=status)
        request.wait()
        assert got == text(length, source)
        assert (status.source, status.tag) == (source, 4)
        assert status.Get_count(MPI.BYTE) == len(pickle.dumps(got, 5))
        request = COMM.isend({"array": np.full(length, RANK)}, to, 5)
        got = COMM.recv(None, MPI.ANY_SOURCE, 5)["array"]
        request.wait()
        assert np.array_equal(got, np.full(length, source))
        got += 1  # it may be written
    assert COMM.recv(source=MPI.PROC_NULL) is None
    request = COMM.Isend(bytearray(), to, 6)
    assert COMM.recv(source=source, tag=6) is None  # a message without a pickle
    request.Wait()
