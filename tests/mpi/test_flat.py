"""Memory stays flat, whatever is called how often: bytes of malloc's heap and blocks of Python's.

Of several rounds the least growth counts: caches fill up, a leak is there in every round.
DLMPI_TEST_LONG=1 makes the rounds ten times as long.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        MPI.COMM_WORLD.size > 3,
        reason="takes minutes where ranks outnumber cores; fewer ranks tell",
    ),
]

LONG = 10 if os.environ.get("DLMPI_TEST_LONG") else 1
#: Open MPI keeps schedules of non-blocking collectives until it has some thousands.
ROUNDS = 16
#: Less than a leak of a smallest block in every second call; and what comes and goes in any round.
BYTES, BLOCKS = 8, 0.25
SOME_BYTES, SOME_BLOCKS = 512, 40
N = 6


FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
    *("uordblks", "fordblks", "keepcost"),
)


class Heap(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS)


@pytest.fixture(scope="module")
def heap():
    """Bytes that malloc has given away, mapped blocks included."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("needs mallinfo2 of glibc 2.33")
    library.mallinfo2.restype = Heap

    def used() -> int:
        said = library.mallinfo2()
        return int(said.uordblks) + int(said.hblkhd)

    return used


def ring(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def messages(comm):
    to, source = ring(comm)
    plain, strided = np.zeros(N), torch.zeros(2 * N, dtype=torch.bfloat16)[::2]

    def turn():
        comm.Sendrecv(plain, to, recvbuf=np.empty(N), source=source)
        requests = [comm.Irecv(torch.empty(N), source, 1), comm.Irecv(strided, source, 2)]
        requests += [comm.Isend(torch.ones(N), to, 1), comm.Issend(strided.clone(), to, 2)]
        MPI.Request.Waitall(requests)
        comm.Isend(np.ones(N), to, 3)  # nobody keeps the request
        comm.Recv(plain, source, 3)

    return turn


def moves(comm):
    one, all_ = np.zeros(N), torch.zeros(N * comm.size, dtype=torch.float64)
    strided = torch.zeros(2 * N * comm.size, dtype=torch.float64)[::2]

    def turn():
        comm.Bcast(strided)
        comm.Allgather(one, all_)
        comm.Alltoall(strided, all_.clone())
        comm.Gatherv(one, [all_, [N] * comm.size])

    return turn


def sums(comm):
    half, out = torch.zeros(N, dtype=torch.bfloat16), torch.zeros(N, dtype=torch.bfloat16)

    def turn():
        comm.Allreduce(half, out)
        comm.Allreduce(MPI.IN_PLACE, np.zeros(N)[::2], op=MPI.MAX)
        comm.Reduce(half, out, op=dlmpi.AVG)
        comm.Scan(half, out)
        dlmpi.allreduce_many([np.zeros(N), torch.zeros(N)], comm=comm)
        dlmpi.allreduce(half, comm=comm)

    return turn


def started(comm):
    half, all_ = torch.zeros(N, dtype=torch.bfloat16), np.zeros(N * comm.size)

    def turn():
        requests = [
            comm.Iallreduce(half.clone(), half),
            comm.Ibcast(all_[::-1]),
            comm.Iallgather(np.ones(N), all_.copy()),
            comm.Ibarrier(),
        ]
        MPI.Request.Waitall(requests)

    return turn


def persistent(comm):
    to, source = ring(comm)
    half = torch.zeros(N, dtype=torch.bfloat16)

    def turn():
        requests = [
            comm.Recv_init(np.zeros(N), source, 4),
            comm.Send_init(torch.zeros(2 * N, dtype=torch.float64)[::2], to, 4),
        ]
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        requests.append(comm.Allreduce_init(half.clone(), half))
        requests[2].Start()
        requests[2].Wait()
        for request in requests:
            request.Free()

    return turn


def objects(comm):
    to, source = ring(comm)
    thing = {"weights": torch.zeros(9, dtype=torch.bfloat16), "more": [1, "two"]}

    def turn():
        comm.sendrecv(thing, to, source=source)
        comm.allgather(thing)
        comm.bcast(thing)
        MPI.Request.waitall([comm.isend(thing, to, 5), comm.irecv(4096, source, 5)])

    return turn


def refused(comm):
    """What one rank is told, and what all are."""
    gone = np.zeros(N)[:0]

    def turn():
        for call in (
            lambda: comm.Send([gone, 3], comm.rank),
            lambda: comm.Recv("text", comm.rank),
            lambda: comm.Allreduce(np.zeros(2), np.zeros(3)),
            lambda: comm.Isend(np.zeros(3), comm.size),
            lambda: comm.Ireduce(np.zeros(3), None, root=-9),
        ):
            with pytest.raises((ValueError, TypeError, MPI.Exception)):
                call()

    return turn


def windows(comm):
    to, _ = ring(comm)
    # The same all the time: UCX remembers each place that it was shown.
    memory = torch.zeros(N, dtype=torch.bfloat16)

    def turn():
        win = MPI.Win.Create(memory, 2, comm=comm)
        win.Fence()
        win.Put(torch.ones(N, dtype=torch.bfloat16), to)
        win.Fence()
        win.Free()

    return turn


def files(comm):
    path = f"{tempfile.mkdtemp()}/file"

    def turn():
        file = MPI.File.Open(MPI.COMM_SELF, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
        file.Write_at(0, torch.ones(N, dtype=torch.bfloat16))
        file.Iread_at(0, np.zeros(1)).Wait()
        file.Close()

    return turn


def communicators(comm):
    half = torch.zeros(N, dtype=torch.bfloat16)

    def turn():
        made = comm.Dup()
        made.Allreduce(half, half.clone())
        made.Iallreduce(half.clone(), half).Wait()
        made.Free()
        made = comm.Split(0, -comm.rank)
        made.Bcast(half[::2])
        made.Free()

    return turn


#: The classes of operations, each with how many turns a round has.
CLASSES = {
    messages: 1000,
    moves: 1000,
    sums: 500,
    started: 1000,
    persistent: 300,
    objects: 100,
    refused: 1000,
    windows: 300,
    files: 200,
    communicators: 100,
}


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
def test_memory_stays_flat(comm, heap, make):
    if make is windows and "Open MPI" in MPI.Get_library_version():
        pytest.skip("Open MPI 5.0.11 itself keeps some of each window: plain mpi4py's grow, too")
    made = comm.Dup()
    turn, turns = make(made), CLASSES[make] * LONG
    for _ in range(turns // 2 + 70):  # past the calls that are compared
        turn()
    least_bytes, least_blocks = float("inf"), float("inf")
    may_bytes, may_blocks = BYTES * turns + SOME_BYTES, BLOCKS * turns + SOME_BLOCKS
    for _ in range(ROUNDS):
        gc.collect()
        made.Barrier()
        bytes_, blocks = heap(), sys.getallocatedblocks()
        for _ in range(turns):
            turn()
        gc.collect()
        made.Barrier()
        least_bytes = min(least_bytes, heap() - bytes_)
        least_blocks = min(least_blocks, sys.getallocatedblocks() - blocks)
        if made.allreduce(least_bytes < may_bytes and least_blocks < may_blocks, MPI.LAND):
            break
    made.Free()
    assert least_blocks < may_blocks
    assert least_bytes < may_bytes
