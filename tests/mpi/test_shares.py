"""Collectives of objects, whose pickles travel with their length while they are short.

Right values come from generators seeded alike on all ranks, and from plain mpi4py. Where the
pickles are of the program's own making on some ranks alone, the messages are the same.
"""

from __future__ import annotations

import contextlib
import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

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
        assert group.gather(mine[RANK], root) == (mine if root == RANK else None)
        assert group.allgather(mine[RANK]) == mine
        sent = [text(length, SIZE * RANK + rank) for rank in range(SIZE)]
        assert group.alltoall(sent) == [text(length, SIZE * rank + RANK) for rank in range(SIZE)]


def test_every_rank_alone_has_a_long_value(group):
    for long in range(SIZE):
        mine = [text(9000 if rank == long else rank, rank) for rank in range(SIZE)]
        for root in range(SIZE):
            assert group.gather(mine[RANK], root) == (mine if root == RANK else None)
        assert group.allgather(mine[RANK]) == mine
        sent = [mine[long] if rank == RANK == long else RANK for rank in range(SIZE)]
        got = [mine[long] if rank == RANK == long else rank for rank in range(SIZE)]
        assert group.alltoall(sent) == got


def test_tensors_of_some_ranks(group):
    own = torch.arange(RANK, RANK + 40_000) if RANK % 2 else {"rank": np.full(2, RANK)}
    for got in (group.gather(own), group.allgather(own), group.alltoall([own] * SIZE)):
        for rank, one in enumerate(got or []):
            if rank % 2:
                assert torch.equal(one, torch.arange(rank, rank + 40_000))
                one.add_(1)
            else:
                assert one["rank"].tolist() == [rank] * 2
                one["rank"] += 1


def test_large_tensors_reach_all():
    """As one piece of all ranks' common type: libraries choose algorithms by what a rank gives."""
    numbers = torch.arange(20_000_000, dtype=torch.float32)
    got = COMM.bcast([numbers, RANK] if RANK == SIZE - 1 else None, SIZE - 1)
    assert got[1] == SIZE - 1
    assert torch.equal(got[0], numbers)
    got[0][0] = 5
    assert numbers[0] == 0
    for every in range(SIZE):
        own = numbers[: 500_000 * (every == RANK)]
        for rank, one in enumerate(COMM.allgather(own)):
            assert torch.equal(one, numbers[: 500_000 * (rank == every)])


def bracketed(a, b):
    return f"({a}{b})"


#: Operations, each with what a rank gives: what mpi4py makes of it shows the order and brackets.
REDUCED = {
    "order": (bracketed, lambda length: text(length, RANK)),
    "lists": (lambda a, b: [a, b], lambda length: [text(length, RANK)]),
    "sum": (None, lambda length: 0.1 + RANK + length),
    "max": (MPI.MAX, lambda length: text(length, RANK)),
    "arrays": (MPI.SUM, lambda length: torch.full((length + 1,), 0.1 * RANK)),
}


@pytest.mark.parametrize("case", REDUCED)
def test_reductions_as_mpi4py_makes_them(group, case):
    op, make = REDUCED[case]
    for length in (0, 100, 111, 5000, 70_000):
        own, root = make(length), length % SIZE
        for name in ("reduce", "allreduce", "scan", "exscan"):
            given = {"op": op} if op is not None else {}
            given |= {"root": root} if name == "reduce" else {}
            want = getattr(PLAIN.COMM_WORLD, name)(make(length), **given)
            got = getattr(group, name)(own, **given)
            assert type(got) is type(want)
            assert torch.equal(got, want) if case == "arrays" and want is not None else got == want
        same = make(length)
        assert torch.equal(own, same) if case == "arrays" else own == same


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [3, 5000])
def test_an_operation_may_change_what_it_is_given(group, side, length):
    """Which mpi4py's own scans do not bear."""

    def joined(a, b):
        if side == "left":
            a.extend(b)
            return a
        b[:0] = a
        return b

    give = [[text(length, rank), rank] for rank in range(SIZE)]
    flat = [list(chain.from_iterable(give[: rank + 1])) for rank in range(SIZE)]
    own = give[RANK].copy()
    root = SIZE - 1
    assert group.reduce(own, joined, root) == (flat[-1] if root == RANK else None)
    assert group.allreduce(own, joined) == flat[-1]
    assert group.scan(own, joined) == flat[RANK]
    assert group.exscan(own, joined) == (flat[RANK - 1] if RANK else None)
    assert own == give[RANK]


def test_pairs_with_places(group):
    values = [(float(rank % 2), rank) for rank in range(SIZE)]
    assert group.allreduce(values[RANK], MPI.MAXLOC) == (1.0 if SIZE > 1 else 0.0, int(SIZE > 1))
    assert group.reduce(values[RANK], MPI.MINLOC, SIZE - 1) == (
        (0.0, 0) if RANK == SIZE - 1 else None
    )


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
    for every in (group.gather(sent), group.allgather(sent), group.alltoall(many)):
        assert all(one == sent and type(one) is type(sent) for one in every or [])
        assert all(one is not sent and one is not many[RANK] for one in every or [])


def noting():
    """A pickle of one's own, and what passes through it."""
    passed = []

    def dumps(obj, protocol=None):
        passed.append(obj)
        return pickle.dumps(obj, protocol)

    def loads(data):
        passed.append("loaded")
        return pickle.loads(data)

    return passed, dumps, loads


@pytest.mark.parametrize("length", [5, 5000])
def test_some_ranks_have_a_pickle_of_their_own(group, length):
    """It is theirs alone: what they give and what they get passes through it."""
    passed, dumps, loads = noting()
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


@pytest.mark.parametrize("length", [5, 5000])
def test_all_collectives_pass_through_a_pickle_of_ones_own(group, length):
    """Also what needs no copy, and what this rank sends to itself."""
    passed, dumps, loads = noting()
    own = RANK == SIZE - 1
    mine = [text(length, rank) for rank in range(SIZE)]
    if own:
        MPI.pickle.__init__(dumps, loads)
    try:
        assert group.gather(mine[RANK], SIZE - 1) == (mine if own else None)
        assert group.allgather(mine[RANK]) == mine
        assert group.alltoall(mine) == [mine[RANK]] * SIZE
    finally:
        MPI.pickle.__init__()
    assert passed.count("loaded") == (3 * SIZE if own else 0)
    if own:
        MPI.pickle.__init__(dumps, loads)
    try:
        assert group.allreduce([RANK]) == list(range(SIZE))
        assert group.reduce("a", root=SIZE - 1) == ("a" * SIZE if own else None)
        assert group.scan("a") == "a" * (RANK + 1)
        assert group.exscan("a") == ("a" * RANK or None)
    finally:
        MPI.pickle.__init__()


def test_a_protocol_of_old(group):
    MPI.pickle.PROTOCOL = 2 if RANK == 0 else None
    try:
        for length in (4, 4000):
            assert group.bcast([text(length, 7)] if RANK == 0 else None) == [text(length, 7)]
            assert group.allgather([text(length, 7)]) == [[text(length, 7)]] * SIZE
            assert group.allreduce([text(length, 7)]) == [text(length, 7)] * SIZE
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
        for name in ("gather", "allgather", "allreduce", "reduce", "scan", "exscan"):
            with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
                getattr(comm, name)(lambda: None)
            with pytest.raises(TypeError):
                getattr(comm, name)()
            with pytest.raises(TypeError):
                getattr(comm, name)(1, nobody=3)
        with pytest.raises(ValueError, match="1"):
            comm.alltoall([1, 2])
        assert comm.bcast(obj=[3], root=0) == [3]
        assert comm.scatter(sendobj=[4], root=0) == 4
    alone.Free()


def test_refused_on_all_ranks_alike(group):
    with pytest.raises(TypeError):
        group.bcast(1, root="nobody")
    for name in ("bcast", "scatter", "gather", "reduce"):
        for root in (SIZE + 3, -7):
            with pytest.raises(MPI.Exception):
                getattr(group, name)(None, root=root)
    assert group.allgather(RANK) == list(range(SIZE))


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


def test_exchanges_of_every_length():
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    status = MPI.Status()
    for length in LENGTHS:
        for comm in (COMM, PLAIN.COMM_WORLD if RANK % 2 else COMM):
            got = comm.sendrecv(text(length, RANK), to, 4, source=source, recvtag=4, status=status)
            assert got == text(length, source)
            assert (status.source, status.tag) == (source, 4)
            assert status.Get_count(MPI.BYTE) == len(pickle.dumps(got, 5))
        got = COMM.sendrecv({"array": np.full(length, RANK)}, to, recvbuf=None, source=source)
        assert np.array_equal(got["array"], np.full(length, source))
    # To or from nobody, from anybody, and without a pickle.
    assert COMM.sendrecv(RANK, MPI.PROC_NULL, 0, None, MPI.PROC_NULL) is None
    COMM.Barrier()
    assert COMM.sendrecv(RANK, to) == source
    COMM.Barrier()
    requests = [COMM.Isend(bytearray(), to, 6), COMM.irecv(None, source, 7)]
    assert COMM.sendrecv(RANK, to, 7, None, source, 6) is None
    assert MPI.Request.waitall(requests)[1] == source
    assert COMM.sendrecv(sendobj=[RANK], dest=RANK, sendtag=9, source=RANK) == [RANK]
    for wrong in ({"dest": SIZE + 3}, {"dest": RANK, "sendtag": -5}, {"dest": RANK, "source": -77}):
        with pytest.raises(MPI.Exception):
            COMM.sendrecv(5, **wrong)
    assert COMM.recv(source=RANK) == 5  # the last was sent


def unreadable(here):
    raise ValueError(f"not to be read by {here}")


class Unreadable:
    """An object whose pickle cannot be read."""

    def __reduce__(self):
        return unreadable, ("anybody",)


@pytest.mark.parametrize("long", [5000, 3_000_000])
def test_who_gathers_what_it_cannot_read_holds_up_nobody(group, long):
    """The root alone fails, after it has received what others wait to get rid of."""
    for root in range(SIZE):
        bad = (root + 1) % SIZE
        mine = Unreadable() if bad == RANK else [text(long, RANK)]
        if root == RANK:
            with pytest.raises(ValueError, match="anybody"):
                group.gather(mine, root)
        else:
            assert group.gather(mine, root) is None
        assert group.allgather(RANK) == list(range(SIZE))


@pytest.mark.parametrize("length", [4, 4000])
def test_a_protocol_of_old_on_the_way(length):
    """Whoever receives may be an older Python."""
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    room = np.zeros(3 * length + 100, np.uint8)
    MPI.pickle.PROTOCOL = 2
    try:
        asked, other = COMM.Irecv(room, source, 8), COMM.isend(RANK, to, 9)
        assert COMM.sendrecv(text(length, RANK), to, 8, None, source, 9) == source
        status = MPI.Status()
        asked.Wait(status)
        other.wait()
    finally:
        MPI.pickle.PROTOCOL = None
    sent = room[: status.Get_count(MPI.BYTE)].tobytes()
    assert sent == pickle.dumps(text(length, source), 2)


def test_none_is_no_operation_and_no_tag(group):
    if SIZE == 2:  # so that nobody waits for the one that combines
        with pytest.raises(TypeError) if RANK else contextlib.nullcontext():
            group.scan([RANK], op=None)
    with pytest.raises(TypeError):
        COMM.sendrecv(1, RANK, None, None, RANK, 0)
    with pytest.raises(TypeError):
        COMM.sendrecv(1, None)


def test_a_pickle_of_ones_own_makes_bytes(group):
    MPI.pickle.__init__(lambda obj, protocol=None: bytearray(pickle.dumps(obj)), pickle.loads)
    try:
        for call in (group.allgather, group.gather, lambda obj: group.alltoall([obj] * SIZE)):
            with pytest.raises(TypeError, match="bytes"):
                call([RANK])
    finally:
        MPI.pickle.__init__()
    assert group.allgather(RANK) == list(range(SIZE))
