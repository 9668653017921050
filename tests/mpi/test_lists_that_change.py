"""Another thread changes a list while a call of MPI's works on what was in it: all of it is held.

mpi4py holds the buffers of a message and its requests likewise.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(
        MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="two threads of a rank call MPI"
    ),
]

N = 1000


@contextmanager
def meanwhile(work):
    """Do this in another thread when this one is in MPI: it keeps the interpreter until then."""
    failed, ready = [], threading.Event()

    def run():
        ready.wait()
        try:
            work()
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(20)
    thread = threading.Thread(target=run)
    try:
        thread.start()
        ready.set()
        yield
    finally:
        sys.setswitchinterval(before)
        thread.join(30)
    assert not failed, failed


@pytest.fixture
def tell(comm):
    """A communicator for the other thread."""
    dup = comm.Dup()
    yield dup
    dup.Free()


#: A call of rank 0 with a message, and what rank 1 does then.
FORMS = {
    "Recv": (lambda c, msg: c.Recv(msg, 1, 5), lambda c, a: c.Send(a, 0, 5)),
    "Sendrecv_replace": (
        lambda c, msg: c.Sendrecv_replace(msg, 1, 5, 1, 5),
        lambda c, a: c.Sendrecv_replace(a, 0, 5, 0, 5),
    ),
    "Bcast": (lambda c, msg: c.Bcast(msg, 1), lambda c, a: c.Bcast(a, 1)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("short", [False, True])
def test_an_array_is_held_that_leaves_its_message(comm, tell, name, short):
    call, answer = FORMS[name]
    pair = comm.Split(0 if comm.rank < 2 else MPI.UNDEFINED)
    if pair == MPI.COMM_NULL:
        return
    for _ in range(70 if short else 0):
        pair.Barrier()
    sent = np.arange(N, dtype=np.float64)
    if pair.rank == 1:
        tell.Recv(np.zeros(1), 0)
        answer(pair, sent)
    else:
        msg = [np.full(N, -1.0), MPI.DOUBLE]
        array = weakref.ref(msg[0])
        alive = []

        def change():
            msg[0] = None
            alive.append(array() is not None)
            tell.Send(np.zeros(1), 1)

        with meanwhile(change):
            call(pair, msg)
        assert alive == [True]
    pair.Free()


def test_requests_are_held_that_leave_their_list(comm, tell):
    if comm.rank == 1:
        tell.Recv(np.zeros(1), 0)
        comm.Send(np.arange(N, dtype=np.float64), 0, 6)
    elif comm.rank == 0:
        room = np.full(N, -1.0)
        requests = [comm.Irecv(room, 1, 6)]
        track = requests[0]._track
        counts = []

        def change():
            counts.append(sys.getrefcount(track))
            requests.clear()
            counts.append(sys.getrefcount(track))
            tell.Send(np.zeros(1), 1)

        with meanwhile(change):
            MPI.Request.Waitall(requests)
        assert counts[0] == counts[1], "the request went, and its handle with it"
        assert np.array_equal(room, np.arange(N))


@pytest.mark.parametrize("listed", [True, False], ids=["allreduce_many", "Allreduce"])
def test_tensors_are_given_other_memory(comm, tell, listed):
    """What a tensor had when the call began is held, or it would be written when it is gone."""
    torch = pytest.importorskip("torch")
    # Each is a mapping of its own until the C library has seen some freed; written when it is
    # gone, it ends the process.
    tensors = [torch.full((100_000,), float(comm.rank)) for _ in range(20 if listed else 1)]

    # What is found out about torch once lets other threads run before the call begins.
    dlmpi.allreduce_many([torch.ones(9) for _ in range(3)], comm=comm)
    comm.Allreduce(MPI.IN_PLACE, torch.ones(9))

    def give_others():
        for tensor in tensors:
            tensor.data = torch.full((100_000,), -1.0)
        tell.Barrier()

    def reduce():
        if listed:
            dlmpi.allreduce_many(tensors, comm=comm)
        else:
            comm.Allreduce(MPI.IN_PLACE, tensors[0])

    if comm.rank > 0:
        tell.Barrier()
        reduce()
        assert all(bool((tensor == sum(range(comm.size))).all()) for tensor in tensors)
        return
    with meanwhile(give_others):
        reduce()
    assert all(bool((tensor == -1).all()) for tensor in tensors)


class Noticed(np.ndarray):
    """Can be watched going."""


def test_an_operation_of_the_program_gives_other_memory(comm):
    """Its function is Python that runs while the call waits."""
    torch = pytest.importorskip("torch")
    gone, seen = [], []

    def made():
        memory = np.ones(4096, np.float32).view(Noticed)
        weakref.finalize(memory, gone.append, 1)
        return torch.from_numpy(memory)

    def add(low, high, _):
        out = np.frombuffer(high, np.float32)
        out += np.frombuffer(low, np.float32)
        tensors[0].data = torch.zeros(4096)
        seen.append(list(gone))

    tensors = [made(), made()]
    dlmpi.allreduce_many(tensors, comm=comm)
    op = MPI.Op.Create(add, commute=True)
    dlmpi.allreduce_many(tensors, op, comm)
    op.Free()
    # Not every rank adds.
    assert all(not before for before in seen)
    assert any(comm.allgather(bool(seen)))
