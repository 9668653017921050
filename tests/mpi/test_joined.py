"""Communicators between processes that met elsewhere (by a socket, by a port, by the groups of a
session), and those of groups: they are ours, and all that a communicator does works on them."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

#: Seconds for what is no call of MPI's.
SOON = 30
SIZES = (5, 60_000)


def strided(value, n=6):
    """What plain communicators refuse."""
    return torch.full((2 * n,), float(value), dtype=torch.bfloat16)[::2]


@contextmanager
def joined(comm, partner):
    """Of a socket."""
    if comm.rank < partner:
        with socket.create_server(("127.0.0.1", 0)) as door:
            door.settimeout(SOON)
            comm.send(door.getsockname(), partner)
            there, _ = door.accept()
    else:
        there = socket.create_connection(comm.recv(source=partner), SOON)
    with there:
        there.setblocking(True)  # which MPI takes for granted
        made = MPI.Comm.Join(there.fileno())
    yield made
    made.Disconnect()


@contextmanager
def met(comm, partner):
    """Of a port."""
    port = MPI.Open_port()
    theirs = comm.sendrecv(port, partner, 0, None, partner, 0)
    low = comm.rank < partner
    made = MPI.COMM_SELF.Accept(port) if low else MPI.COMM_SELF.Connect(theirs)
    MPI.Close_port(port)
    yield made
    made.Disconnect()


@contextmanager
def of_groups(comm, partner):
    """Of two groups of a session."""
    session = begun()
    world = session.Create_group("mpi://WORLD")
    here, there = world.Incl([comm.rank]), world.Incl([partner])
    tag = f"dlmpi.pair.{min(comm.rank, partner)}"
    made = MPI.Intercomm.Create_from_groups(here, 0, there, 0, tag)
    for group in (world, here, there):
        group.Free()
    yield made
    made.Free()
    session.Finalize()


def begun():
    try:
        return MPI.Session.Init()
    except NotImplementedError:
        pytest.skip("this MPI has no sessions")


@pytest.fixture(params=[joined, met, of_groups], ids=lambda make: make.__name__)
def inter(request, comm):
    """Between this rank and its neighbour; the last of an odd number has none."""
    partner = comm.rank ^ 1
    if comm.size < 2:
        pytest.skip("needs two ranks")
    if partner == comm.size:
        yield None
        return
    with request.param(comm, partner) as made:
        assert made.remote_size == 1
        yield made
    assert made == MPI.COMM_NULL


def test_between_two(comm, inter):
    if inter is None:
        return
    assert type(inter) is MPI.Intercomm
    mine, theirs, low = comm.rank, comm.rank ^ 1, comm.rank % 2 == 0
    for n in SIZES:
        out = strided(-1, n)
        if low:
            inter.Send(strided(mine, n), 0, 1)
            inter.Recv(out, 0, 2)
        else:
            inter.Recv(out, 0, 1)
            inter.Send(strided(mine, n), 0, 2)
        assert (out == theirs).all()
        out = strided(-1, n)
        MPI.Request.Waitall([inter.Irecv(out, 0, 3), inter.Isend(strided(mine, n), 0, 3)])
        assert (out == theirs).all()
        out = strided(mine, n)
        inter.Bcast(out, MPI.ROOT if low else 0)
        assert (out == (mine if low else theirs)).all()
        out = strided(-1, n)
        inter.Allgather(strided(mine, n), out)
        assert (out == theirs).all()
        numbers = torch.zeros(2 * n)[::2]
        inter.Allreduce(strided(mine, n).float().repeat_interleave(2)[::2], numbers)
        assert (numbers == theirs).all()
    # More than one call of MPI's, of which the other group would have to know.
    with pytest.raises(ValueError, match=r"."):
        inter.Allreduce(strided(mine), strided(0))


def test_objects_between_two(comm, inter):
    if inter is None:
        return
    mine, theirs, low = comm.rank, comm.rank ^ 1, comm.rank % 2 == 0
    for n in SIZES:
        request = inter.isend({"tensor": strided(mine, n)}, 0, 4)
        assert (inter.recv(source=0, tag=4)["tensor"] == theirs).all()
        request.wait()
        (got,) = inter.allgather({"tensor": strided(mine, n)})
        assert (got["tensor"] == theirs).all()
        got = inter.bcast(strided(mine, n), MPI.ROOT if low else 0)
        assert low or (got == theirs).all()
        got = inter.sendrecv(strided(mine, n), 0, 5, None, 0, 5)
        assert (got == theirs).all()
    assert inter.allreduce(mine) == theirs


def test_made_of_those_between_two(inter):
    if inter is None:
        return
    other = inter.Dup()
    merged = other.Merge()
    other.Free()
    assert type(merged) is MPI.Intracomm
    among(merged)
    merged.Disconnect()
    assert merged == MPI.COMM_NULL


def among(made):
    """What the members of an intracommunicator do; more often than collectives are compared."""
    rank, size = made.rank, made.size
    for turn in range(70):
        tensor, flat = strided(1), torch.full((5,), turn)
        made.Allreduce(MPI.IN_PLACE, tensor)
        made.Allreduce(MPI.IN_PLACE, flat)
        assert (tensor == size).all()
        assert (flat == turn * size).all()
    after, before = (rank + 1) % size, (rank - 1) % size
    for n in SIZES:
        out = strided(-1, n)
        made.Sendrecv(strided(rank, n), after, 1, out, before, 1)
        assert (out == before).all()
        made.Bcast(out, size - 1)
        assert (out == (size - 2) % size).all()
        made.Iallreduce(MPI.IN_PLACE, out).Wait()
        assert (out == ((size - 2) % size) * size).all()
        got = made.allgather({"tensor": strided(rank, n)})
        assert [int(item["tensor"][0]) for item in got] == list(range(size))
        assert (made.bcast(strided(rank, n), 0) == 0).all()
        assert (made.sendrecv(strided(rank, n), after, 2, None, before, 2) == before).all()
    assert made.allreduce(strided(1)).tolist() == [size] * 6


@pytest.mark.parametrize("named", ["mpi://WORLD", "mpi://SELF"])
@pytest.mark.parametrize("end", ["Free", "Disconnect"])
def test_of_a_session(comm, named, end):
    session = begun()
    assert type(session) is MPI.Session
    group = session.Create_group(named)
    made = MPI.Intracomm.Create_from_group(group, f"dlmpi.{named}")
    group.Free()
    assert type(made) is MPI.Intracomm
    assert made.size == (comm.size if named == "mpi://WORLD" else 1)
    among(made)
    part = made.Split(made.rank % 2)
    assert type(part) is MPI.Intracomm
    among(part)
    part.Free()
    getattr(made, end)()
    assert made == MPI.COMM_NULL
    session.Finalize()
    assert comm.allreduce(1) == comm.size


def test_of_sessions_that_come_and_go(comm):
    for turn in range(20):
        session = begun()
        group = session.Create_group("mpi://WORLD")
        made = MPI.Intracomm.Create_from_group(group, "dlmpi.again")
        tensor = strided(turn)
        made.Allreduce(MPI.IN_PLACE, tensor)
        assert (tensor == turn * comm.size).all()
        made.Free()
        group.Free()
        session.Finalize()


def test_of_a_part_of_a_group(comm):
    """By its members alone: other ranks call nothing."""
    world = comm.Get_group()
    half = world.Incl([rank for rank in range(comm.size) if rank % 2 == comm.rank % 2])
    made = comm.Create_group(half, 7)
    assert type(made) is MPI.Intracomm
    among(made)
    made.Disconnect()
    assert made == MPI.COMM_NULL
    if comm.rank == 0:
        first = world.Incl([0])
        made = comm.Create_group(first)
        among(made)
        made.Free()
        first.Free()
    half.Free()
    world.Free()
