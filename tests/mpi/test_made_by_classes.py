"""Communicators that programs get from the classes of `dlmpi.MPI`, and by ports: they are ours."""

from __future__ import annotations

import pickle

import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI

pytestmark = pytest.mark.mpi


def check(made, size):
    """A strided tensor of 16 bits, which plain communicators refuse."""
    tensor = torch.full((4, 6), 0.5, dtype=torch.bfloat16).t()[::2]
    made.Allreduce(MPI.IN_PLACE, tensor)
    assert (tensor == size / 2).all()


@pytest.fixture
def halves(comm):
    """The lower half of the world or the upper one, and whether it is the lower."""
    if comm.size < 2:
        pytest.skip("needs two ranks")
    low = comm.rank < comm.size // 2
    half = comm.Split(int(low), comm.rank)
    yield half, low
    half.Free()


def exchanged(comm, inter, low):
    """What each half gathers from the other."""
    mine = torch.full((6,), comm.rank, dtype=torch.bfloat16)[::2]
    out = torch.full((3 * inter.remote_size,), -1, dtype=torch.bfloat16)
    inter.Allgather(mine, out)
    half = comm.size // 2
    there = range(half, comm.size) if low else range(half)
    assert out.tolist() == [rank for rank in there for _ in range(3)]


def test_from_a_group(comm):
    group = comm.Get_group()
    try:
        made = MPI.Intracomm.Create_from_group(group, "dlmpi.test")
    except NotImplementedError:
        pytest.skip("this MPI makes no communicators of groups")
    finally:
        group.Free()
    check(made, comm.size)
    made.Free()


def test_from_groups(comm, halves):
    half, low = halves
    groups = [half.Get_group()]
    everybody = comm.Get_group()
    first = range(comm.size // 2)
    groups.append(everybody.Excl(first) if low else everybody.Incl(first))
    try:
        made = MPI.Intercomm.Create_from_groups(groups[0], 0, groups[1], 0, "dlmpi.test")
    except NotImplementedError:
        pytest.skip("this MPI makes no communicators of groups")
    exchanged(comm, made, low)
    merged = made.Merge(not low)
    check(merged, comm.size)
    merged.Free()
    made.Free()


def test_by_ports(comm, halves):
    half, low = halves
    root = comm.size // 2
    try:
        port = MPI.Open_port() if comm.rank == 0 else ""
    except MPI.Exception as error:
        port = error
    port = comm.bcast(port)
    if isinstance(port, Exception):
        pytest.skip(f"this MPI opens no port: {port}")
    made = half.Accept(port) if low else half.Connect(port)
    if comm.rank == 0:
        MPI.Close_port(port)
    assert made.remote_size == (comm.size - root if low else root)
    exchanged(comm, made, low)
    made.Disconnect()


def test_handles_and_parents(comm):
    made = comm.Dup()
    for again in (MPI.Comm.f2py(made.py2f()), MPI.Comm.fromhandle(made.handle)):
        assert again == made
        assert type(again) is MPI.Intracomm
        check(again, comm.size)
    made.Free()
    assert MPI.Comm.Get_parent() == MPI.COMM_NULL


def test_classes_stand_for_mpi4pys(comm):
    assert type(comm) is MPI.Intracomm
    assert isinstance(comm, PLAIN.Intracomm)
    assert issubclass(MPI.Cartcomm, MPI.Intracomm)
    assert issubclass(PLAIN.Cartcomm, MPI.Comm)
    theirs = PLAIN.COMM_WORLD.Dup()
    assert isinstance(theirs, MPI.Intracomm)
    assert not isinstance(theirs, MPI.Intercomm)
    assert pickle.loads(pickle.dumps(PLAIN.COMM_SELF)) == MPI.COMM_SELF
    check(MPI.Intracomm(theirs), comm.size)
    theirs.Free()


def test_subclasses_of_programs(comm):
    class Mine(MPI.Intracomm):
        def twice(self):
            return 2 * self.size

    made = Mine(comm.Dup())
    again = made.Dup()
    assert type(again) is Mine
    assert again.twice() == 2 * comm.size
    assert not isinstance(comm, Mine)
    check(again, comm.size)
    again.Free()
    made.free()
