"""Thousands of requests of every kind, completed in every way, from several threads. Oracle: what
was sent; and that nothing keeps a tensor when all is over.

DLMPI_TEST_LONG=1 has ten times as many requests under way.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI

pytestmark = pytest.mark.mpi

LONG = 10 if os.environ.get("DLMPI_TEST_LONG") else 1
ROUNDS, MESSAGES, EVERY = 3, 150 * LONG, 25


class Watched(np.ndarray):
    """An array whose end can be seen."""


def some(requests):
    while MPI.Request.Waitsome(requests) is not None:
        pass


def any_(requests):
    while MPI.Request.Waitany(requests) != MPI.UNDEFINED:
        pass


def until_all(requests):
    while not MPI.Request.Testall(requests):
        pass


WAYS = (MPI.Request.Waitall, some, any_, until_all, lambda requests: [r.Wait() for r in requests])


class Exchange:
    """One thread's part: messages to the next rank and collectives, on its own communicator."""

    def __init__(self, comm, seed):
        self.comm, self.rng = comm, np.random.default_rng([seed, comm.rank])
        self.to, self.source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        self.seen: list[weakref.ref[Watched]] = []
        self.checks = []

    def array(self, n, fill):
        array = np.full(n, fill).view(Watched)
        self.seen.append(weakref.ref(array))
        return array

    def message(self, i, value):
        """Receive and send one message, by ours and by mpi4py's own methods in turn."""
        n, theirs = 3 + i % 40, value + self.source - self.comm.rank
        base = self.array(2 * n, -1.0)
        out = base[::2] if i % 3 == 0 else base[:n]
        plain = PLAIN.Intracomm(self.comm)
        if i % 5 == 1:
            yield plain.Irecv([base[:n], PLAIN.DOUBLE], self.source, i)
            out = base[:n]
        elif i % 5 == 2:
            tensor = torch.full((n,), -1.0, dtype=torch.float64)
            yield self.comm.Irecv(tensor, self.source, i)
            out = tensor
        else:
            yield self.comm.Irecv(out, self.source, i)
        if i % 4 == 1:
            yield plain.Isend([self.array(n, value), PLAIN.DOUBLE], self.to, i)
        else:
            yield self.comm.Isend(self.array(2 * n, value)[:: 2 if i % 2 else 1][:n], self.to, i)
        self.checks.append((out, theirs))

    def collective(self, i, value):
        total, size = self.array(5, -1.0), self.comm.size
        if i % 2:
            mine = torch.full((5,), float(i % 3), dtype=torch.bfloat16)
            out = torch.zeros_like(mine)
            yield self.comm.Iallreduce(mine, out)
            self.checks.append((out, float(i % 3) * size))
        yield self.comm.Iallreduce(self.array(5, value - self.comm.rank), total)
        self.checks.append((total, (value - self.comm.rank) * size))

    def run(self):
        for round_ in range(ROUNDS):
            requests = []
            for i in range(MESSAGES):
                value = float(1000 * round_ + i + self.comm.rank)
                requests += self.message(i, value)
                if i % EVERY == 0:
                    requests += self.collective(i, value)
            order = self.rng.permutation(len(requests))
            parts = np.array_split(order, len(WAYS))
            for way, part in zip(WAYS, parts, strict=True):
                way([requests[at] for at in part])
            assert all(request == MPI.REQUEST_NULL for request in requests)
            for out, value in self.checks:
                assert (out == value).all()
            self.checks.clear()


def test_mixed_requests_in_threads(comm):
    """Each of three threads has some 300 requests under way at once, for a few rounds."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("needs MPI_THREAD_MULTIPLE")
    parts = [Exchange(comm.Dup(), seed) for seed in range(3)]
    failures = []

    def work(part):
        try:
            part.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    gc.collect()
    for part in parts:
        assert sum(seen() is not None for seen in part.seen) == 0
        part.comm.Free()
