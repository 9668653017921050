"""Arrays of any dtype opposite an argument that a Datatype describes.

mpi4py looks for a Datatype of such an array by its format and raises a bare `KeyError` where it
knows none; here it moves as what it is, or is refused by the name of its argument.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

ODD = ["S4", "V4", "U1", "M8[s]", "m8[D]", [("a", "i4"), ("b", "f4")], "e", "F"]
CALLS = ["Allgather", "Iallgather", "Alltoall", "Ialltoall", "Allgatherv", "Bcast", "Ibcast"]


@pytest.fixture
def octet():
    """Eight bytes as one element."""
    made = MPI.BYTE.Create_contiguous(8).Commit()
    yield made
    made.Free()


def finish(request):
    if request is not None:
        request.Wait()


@pytest.mark.parametrize("dtype", ODD, ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_it_moves_as_what_it_is(comm, rng, octet, *, call, dtype):
    size, rank = comm.size, comm.rank
    sent = np.stack([np.frombuffer(rng.bytes(8), "u1") for _ in range(size)])
    sent[:, 0] = rank
    dtype = np.dtype(dtype)
    room = np.full((size, 8), 0x55, "u1").view(dtype)
    rows = np.array(comm.allgather(sent))
    if "bcast" in call.lower():
        right = rows[0]
        described = rank == 0
        message = [sent.copy(), size, octet] if described else room
        finish(getattr(comm, call)(message, 0))
        got = message[0] if described else room
    elif "alltoall" in call.lower():
        right = rows[:, rank]
        finish(getattr(comm, call)([sent, 1, octet], room))
        got = room
    else:
        right = rows[:, 0]
        finish(getattr(comm, call)([sent[0].copy(), 1, octet], room))
        got = room
    assert np.array_equal(got.view("u1").reshape(size, 8), right)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda size: np.zeros((size, 2), ">i4"), "foreign byte order"),
        (lambda size: np.array([None] * size), "Python objects"),
    ],
    ids=["foreign", "objects"],
)
def test_what_has_no_meaning_is_refused_by_name(comm, octet, make, words):
    room = make(comm.size)
    mine = [np.zeros(8, "u1"), 1, octet]
    with pytest.raises(BufferError, match=f"recvbuf: .*{words}"):
        comm.Allgather(mine, room)
    with pytest.raises(BufferError, match=f"recvbuf: .*{words}"):
        comm.Iallgather(mine, room).Wait()
    comm.Barrier()


@pytest.mark.parametrize("call", ["Allgather", "Iallgather", "Allgatherv", "Alltoall", "Ialltoall"])
def test_blocks_of_any_layout(comm, rng, octet, call):
    """Each block is its elements in C order, wherever they lie."""
    size, rank = comm.size, comm.rank
    sent = rng.integers(-1000, 1000, (size, 4)).astype("i2")
    base = np.full((4, 2 * size), -7777, "i2")
    room = base.T[::2]
    alltoall = "alltoall" in call.lower()
    rows = np.array(comm.allgather(sent))
    finish(getattr(comm, call)([sent if alltoall else sent[0].copy(), 1, octet], room))
    assert np.array_equal(room, rows[:, rank] if alltoall else rows[:, 0])
    assert (base.T[1::2] == -7777).all()


OBJECTS = {
    "Bcast": lambda comm, room, each: comm.Bcast([room, MPI.BYTE]),
    "Ibcast": lambda comm, room, each: finish(comm.Ibcast([room, MPI.BYTE])),
    "Send_init": lambda comm, room, each: comm.Send_init([room, MPI.BYTE], comm.rank),
    "Alltoallw": lambda comm, room, each: comm.Alltoallw([room, *each], [room.copy(), *each]),
}


@pytest.mark.parametrize("call", OBJECTS)
def test_no_datatype_makes_data_of_objects(comm, call):
    """Their addresses would be followed in another process."""
    room = np.array([object()] * comm.size)
    each = [[8] * comm.size, [8 * r for r in range(comm.size)], [MPI.BYTE] * comm.size]
    with pytest.raises(BufferError, match="holds Python objects"):
        OBJECTS[call](comm, room, each)
    comm.Barrier()


def test_one_rank_that_refuses_is_no_hang(comm, octet):
    """Under the check of a communicator's first calls the others learn of it."""
    fresh = MPI.Comm.Dup(comm)
    room = torch.zeros((fresh.size, 8), dtype=torch.uint8)
    bad = np.array([None] * fresh.size)
    mine = [np.full(8, fresh.rank, "u1"), 1, octet]
    with pytest.raises((BufferError, RuntimeError)):
        fresh.Allgather(mine, bad if fresh.rank == 0 else room)
    fresh.Allgather(mine, room)
    expected = torch.arange(fresh.size, dtype=torch.uint8).reshape(-1, 1).expand(-1, 8)
    assert torch.equal(room, expected)
    fresh.Free()
