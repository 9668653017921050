"""The state of communicators: nothing leaks, nothing old is seen, whoever made and frees them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from mpi4py import MPI as STOCK

import dlmpi
from dlmpi import MPI

pytestmark = pytest.mark.mpi


def works(comm):
    out = np.empty(2)
    comm.Allreduce(np.full(2, comm.rank + 1.0), out)
    assert np.all(out == sum(range(1, comm.size + 1)))
    request = comm.Iallreduce(np.full(2, comm.rank + 1.0), out)
    request.Wait()
    assert np.all(out == sum(range(1, comm.size + 1)))


def resident():
    """Bytes of this process's memory."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_thousands_made_and_freed_in_turn(comm):
    """MPICH has about two thousand contexts: a private duplicate that stayed would run out."""
    # More ranks than cores take a hundred times longer for it.
    turns, warm = 10_000 if comm.size <= 2 else 2_500, 0
    for turn in range(turns):
        if turn == turns // 2:
            warm = resident()
        dup = comm.Dup()
        out = np.empty(1)
        dup.Allreduce(np.ones(1), out)
        assert out[0] == comm.size
        dup.Free()
    # 200 bytes a communicator would show.
    assert resident() - warm < 200 * (turns // 2)


def test_a_reused_handle_sees_no_old_state(comm):
    seen = set()
    for turn in range(40):
        # Alternately all ranks and halves, so that an old state has another size.
        made = comm.Split(comm.rank % 2 if turn % 2 else 0, comm.rank)
        seen.add(made.handle)
        works(made)
        made.Free()
    assert len(seen) < 40, "no handle was reused, so nothing was tested"


def test_stock_free_frees_our_state(comm):
    for _ in range(300):
        stock = STOCK.COMM_WORLD.Dup()
        works(dlmpi.wrap(stock))
        stock.Free()


def test_a_group_of_some_ranks(comm):
    ranks = list(range(0, comm.size, 2))
    group = comm.Get_group().Incl(ranks)
    if comm.rank in ranks:
        made = comm.Create_group(group, tag=7)
        works(made)
        made.Free()
    group.Free()
    works(comm)


def test_an_intercommunicator(comm):
    if comm.size < 2:
        pytest.skip("an intercommunicator needs two groups")
    half = comm.Split(comm.rank % 2, comm.rank)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2, 3)
    out = np.empty(2)
    inter.Allreduce(np.full(2, comm.rank + 1.0), out)
    assert out[0] == sum(r + 1 for r in range(comm.size) if r % 2 != comm.rank % 2)
    request = inter.Iallreduce(np.full(2, 1.0), out)
    request.Wait()
    assert out[0] == inter.remote_size
    inter.Free()
    half.Free()


def test_threads_on_different_communicators(comm):
    """Four threads, each with its own communicator and its own programme."""
    import threading

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("needs MPI_THREAD_MULTIPLE")
    made = [comm.Dup() for _ in range(4)]
    failures = []

    def programme(mine, seed):
        try:
            rng = np.random.default_rng(seed)
            for _ in range(40):
                n = int(rng.integers(1, 200))
                out = np.empty(n)
                if rng.integers(2):
                    mine.Allreduce(np.full(n, float(seed)), out)
                else:
                    mine.Iallreduce(np.full(n, float(seed)), out).Wait()
                assert np.all(out == seed * comm.size)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=programme, args=(m, i)) for i, m in enumerate(made)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for one in made:
        one.Free()
