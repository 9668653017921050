"""The methods in which mpi4py itself lets go of its buffers and counts too early: everything given
to them is a temporary, and its memory is used for something else at once. Oracle: closed forms."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

MAKERS = {
    "numpy": lambda values: np.array(values, dtype=np.float64),
    "torch": lambda values: torch.tensor(values, dtype=torch.float64),
    "strided": lambda values: np.repeat(np.array(values, dtype=np.float64), 2)[::2],
}


def sums(comm, values):
    """What each rank's `values` add up to, if rank r has `values + r`."""
    return values * comm.size + comm.size * (comm.size - 1) / 2


#: How many elements a method sends and receives, and what, for n elements of each rank.
METHODS = {
    "Allgatherv": lambda comm, all_, n: (
        n,
        n * comm.size,
        np.concatenate([all_[:n] + r for r in range(comm.size)]),
    ),
    "Reduce": lambda comm, all_, n: (n, n, sums(comm, all_[:n])),
    "Allreduce": lambda comm, all_, n: (n, n, sums(comm, all_[:n])),
    "Reduce_scatter_block": lambda comm, all_, n: (
        n * comm.size,
        n,
        sums(comm, all_)[n * comm.rank :][:n],
    ),
    "Reduce_scatter": lambda comm, all_, n: (
        n * comm.size,
        n,
        sums(comm, all_)[n * comm.rank :][:n],
    ),
    "Scan": lambda comm, all_, n: (
        n,
        n,
        all_[:n] * (comm.rank + 1) + comm.rank * (comm.rank + 1) / 2,
    ),
    "Exscan": lambda comm, all_, n: (n, n, all_[:n] * comm.rank + comm.rank * (comm.rank - 1) / 2),
}
PERSISTENT = ("Allgatherv", "Reduce", "Allreduce", "Reduce_scatter_block", "Reduce_scatter")


def occupy(values):
    """Memory of the same sizes, so that what was freed is written."""
    return [np.full(len(values), -9.0) for _ in range(4)] + [[-9] * 8 for _ in range(50)]


def with_temporaries(comm, method, call, sent, out):
    """Make the call with counts and, where `sent` makes one, a tensor that nobody else holds."""
    size = comm.size
    if method == "Allgatherv":
        n = out.size // size
        return call(sent(), [out, (np.array([n] * size), np.arange(size) * n)])
    if method == "Reduce_scatter":
        return call(sent(), out, np.array([out.size] * size))
    return call(sent(), out)


@pytest.mark.parametrize(
    ("make", "n"), [("numpy", 100), ("numpy", 30_000), ("torch", 30_000), ("strided", 100)]
)
@pytest.mark.parametrize("method", METHODS)
def test_immediate(comm, rng, method, make, n):
    pending = []
    for _ in range(3):
        all_ = rng.integers(0, 100, n * comm.size).astype(float)  # the same on every rank
        gives, gets, want = METHODS[method](comm, all_, n)
        out = np.full(gets, -1.0)
        start = getattr(comm, f"I{method.lower()}")
        request = with_temporaries(
            comm, method, start, lambda given=all_[:gives]: MAKERS[make](given + comm.rank), out
        )
        pending.append((request, out, want, occupy(all_[:gives])))
    gc.collect(1)
    MPI.Request.Waitall([request for request, *_ in pending])
    for _, out, want, _ in pending:
        if not (method == "Reduce" and comm.rank) and not (method == "Exscan" and comm.rank == 0):
            assert out.tolist() == want.tolist()


@pytest.mark.parametrize(("make", "n"), [("numpy", 30_000), ("torch", 100)])
@pytest.mark.parametrize("method", PERSISTENT)
def test_persistent(comm, rng, method, make, n):
    all_ = rng.integers(0, 100, n * comm.size).astype(float)
    gives, gets, want = METHODS[method](comm, all_, n)
    out = np.full(gets, -1.0)
    create = getattr(comm, f"{method}_init")
    request = with_temporaries(
        comm, method, create, lambda: MAKERS[make](all_[:gives] + comm.rank), out
    )
    held = occupy(all_[:gives])
    gc.collect(1)
    for _ in range(2):
        out[:] = -1
        request.Start()
        request.Wait()
        if method != "Reduce" or comm.rank == 0:
            assert out.tolist() == want.tolist()
    request.Free()
    del held


def test_held_where_memory_ends_while_a_receive_begins():
    """No object for the request may be had when MPI has begun: it goes on to use the array."""
    memory = pytest.importorskip("_testcapi")
    comm = MPI.COMM_SELF.Dup()
    first = comm.Irecv(np.empty(1000), 0, 0)  # which makes what is made once
    comm.Send(np.zeros(1000), 0, 0)
    first.Wait()
    arrays, failed = [], 0
    for start in range(4):
        array = np.full(1000, 5.0)
        before = sys.getrefcount(array)
        request = None
        memory.set_nomemory(start, start + 1)
        try:
            request = comm.Irecv(array, 0, start)
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
        held = sys.getrefcount(array) > before
        sent = comm.Isend(np.full(1000, 9.0), 0, start)
        if comm.Iprobe(0, start):  # nothing had begun
            comm.Recv(np.empty(1000), 0, start)
        else:
            assert held
        sent.Wait()
        if request is not None:
            request.Wait()
        arrays.append((array, before))
    assert failed
    del request
    for tag in range(20):  # what was given up is looked at when others begin
        last = comm.Irecv(bytearray(8), 0, tag)
        comm.Send(bytes(8), 0, tag)
        last.Wait()
    while arrays:
        array, before = arrays.pop()
        assert sys.getrefcount(array) <= before
        assert (array == 9).all() or (array == 5).all()
    comm.Free()
