"""Tensors that cannot be moved: a Python exception on the calling rank before MPI is entered, and
the communicator goes on working. Bad calls are made by all ranks, or by one in point-to-point."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support.agreement import still_works

pytestmark = pytest.mark.mpi
need_two = pytest.mark.mpi(min_size=2)


def frozen():
    array = np.zeros(8)
    array.flags.writeable = False
    return array


def repeated():
    return np.lib.stride_tricks.as_strided(np.zeros(1), (8,), (0,))


def overlapping():
    return np.lib.stride_tricks.as_strided(np.zeros(16), (4, 4), (16, 8))


# (name, what cannot be received into, its exception)
UNRECEIVABLE = {
    "read-only numpy": (frozen, BufferError),
    "bytes": (lambda: bytes(64), BufferError),
    "broadcast numpy": (
        repeated,
        BufferError,
    ),
    "expanded torch": (lambda: torch.zeros(1, dtype=torch.float64).expand(8), BufferError),
    "overlapping numpy": (overlapping, BufferError),
    "overlapping torch": (lambda: torch.zeros(16).double().as_strided((4, 4), (2, 1)), BufferError),
    "conjugate": (lambda: torch.zeros(8, dtype=torch.complex64).conj(), BufferError),
    "negative": (lambda: torch._neg_view(torch.zeros(8).double()), BufferError),
}
# What can neither be sent nor received.
UNMOVABLE = {
    "None": (lambda: None, TypeError),
    "number": (lambda: 3.5, TypeError),
    "string": (lambda: "text", TypeError),
    "dict": (lambda: {"a": 1}, TypeError),
    "object": (object, TypeError),
    "list of numbers": (lambda: [1.0, 2.0, 3.0], TypeError),
    "empty list": (list, ValueError),
    "five items": (lambda: [np.zeros(4), 1, 0, MPI.DOUBLE, 1], ValueError),
    "class": (lambda: np.ndarray, TypeError),
    "big-endian": (lambda: np.zeros(8, ">f8"), BufferError),
    "array of objects": (lambda: np.array([None] * 8), BufferError),
    "meta": (lambda: torch.zeros(8, device="meta"), BufferError),
    "sparse": (lambda: torch.eye(4).to_sparse(), BufferError),
    "count beyond the end": (lambda: [np.zeros(8), 9], ValueError),
    "count of a strided tensor": (lambda: [torch.zeros(16)[::2], 9], ValueError),
    "count and displacement": (lambda: [np.zeros(8), (5, 4)], ValueError),
    "displacement beyond the end": (lambda: [np.zeros(8), (0, 9)], ValueError),
    "negative count": (lambda: [np.zeros(8), -1], ValueError),
    "negative displacement": (lambda: [np.zeros(8), (1, -1)], ValueError),
    "huge count": (lambda: [np.zeros(8), 2**62], ValueError),
    "huge displacement": (lambda: [np.zeros(8), (1, 2**62)], ValueError),
    "count that is no integer": (lambda: [np.zeros(8), 1.5], TypeError),
    "count beyond 64 bits": (lambda: [np.zeros(8), 2**80], (ValueError, OverflowError)),
    "nothing but a type": (lambda: [MPI.DOUBLE], ValueError),
}


@pytest.mark.parametrize("what", UNMOVABLE)
def test_cannot_be_sent(comm, what):
    make, error = UNMOVABLE[what]
    for method in (comm.Send, comm.Ssend, comm.Bsend, comm.Rsend):
        with pytest.raises(error):
            method(make(), comm.rank)
    with pytest.raises(error):
        comm.Bcast(make(), root=comm.rank)
    with pytest.raises(error):
        comm.Sendrecv(make(), comm.rank, recvbuf=np.zeros(8), source=comm.rank)
    if what != "None":  # there it means IN_PLACE
        with pytest.raises(error):
            comm.Allreduce(make(), np.zeros(8))
        with pytest.raises(error):
            comm.Allgather(make(), np.zeros(8 * comm.size))
    still_works(comm)


@pytest.mark.parametrize("what", UNMOVABLE | UNRECEIVABLE)
def test_cannot_be_received_into(comm, what):
    make, error = (UNMOVABLE | UNRECEIVABLE)[what]
    with pytest.raises(error):
        comm.Recv(make(), comm.rank)
    with pytest.raises(error):
        comm.Sendrecv(np.zeros(8), comm.rank, recvbuf=make(), source=comm.rank)
    with pytest.raises(error):
        comm.Allreduce(np.zeros(8), make())
    with pytest.raises(error):
        comm.Allreduce(MPI.IN_PLACE, make())
    with pytest.raises(error):
        comm.Alltoall(np.zeros(8 * comm.size), make())
    still_works(comm)


@need_two
@pytest.mark.parametrize("what", UNMOVABLE)
def test_one_rank_may_err_and_send_again(comm, what):
    """Nothing has left the rank that made the mistake."""
    make, error = UNMOVABLE[what]
    if comm.rank == 0:
        with pytest.raises(error):
            comm.Send(make(), 1)
        comm.Send(np.arange(4.0), 1)
    elif comm.rank == 1:
        out = torch.zeros(4, dtype=torch.float64)
        with pytest.raises(error):
            comm.Recv(make(), 0)
        comm.Recv(out, 0)
        assert out.tolist() == [0, 1, 2, 3]


def test_an_error_leaves_no_error_behind(comm):
    """The exception's cause is the first one, and the next call starts clean."""

    class Broken:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_kwargs):
            raise RuntimeError("the array is gone")

    with pytest.raises((BufferError, RuntimeError)) as raised:
        comm.Allreduce(Broken(), np.zeros(3))
    texts = []
    error = raised.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert any("the array is gone" in text for text in texts)
    still_works(comm)
