"""Every class of operation on a real GPU, and what only hardware can show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.gpu.conftest import library

import dlmpi
from support import gpu_rehearsal
from support.gpu_operations import OPERATIONS, reduced

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, comm: Any, lab: Any) -> None:
    OPERATIONS[name](comm, lab)


def test_large_reductions(comm: Any, lab: Any) -> None:
    """Of several chunks, which are copied while others travel."""
    reduced(comm, lab, 4_700_003, np.float32)


def test_memory_used_again_keeps_nothing(comm: Any, rng: Any) -> None:
    """Checksums over allocations that come and go, as caches of addresses get them wrong."""
    torch = library("torch")
    for number in range(40):
        values = rng.integers(-1000, 1000, (comm.size, 1 + 9973 * (number % 7))).astype(np.float32)
        tensor = torch.from_numpy(values[comm.rank].copy()).cuda()
        comm.Allreduce(dlmpi.MPI.IN_PLACE, tensor)
        assert tensor.double().sum().item() == values.astype(np.float64).sum()
        del tensor
        if number % 5 == 4:
            torch.cuda.empty_cache()


@pytest.mark.skipif(gpu_rehearsal.REHEARSING, reason="nothing is captured in a rehearsal")
def test_a_graph_is_not_spoiled(comm: Any) -> None:
    torch = library("torch")
    tensor, graph = torch.ones(100, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor += 1
        with pytest.raises(BufferError, match="captured"):
            dlmpi.MPI.COMM_SELF.Allreduce(tensor, torch.empty(100))
    graph.replay()
    assert tensor.sum().item() == 200


def test_pinned_memory(comm: Any) -> None:
    torch = library("torch")
    other = 1 - comm.rank
    source = torch.full((100_001,), float(comm.rank), device="cuda")
    torch.cuda.synchronize()
    pinned, room = torch.empty(100_001, pin_memory=True), torch.empty(100_001, pin_memory=True)
    torch.cuda._sleep(20_000_000)
    pinned.copy_(source, non_blocking=True)
    comm.Sendrecv(pinned, other, 0, room, other, 0)
    assert bool((room == other).all())


def test_managed_memory(comm: Any) -> None:
    cupy = library("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        managed = cupy.full(1001, comm.rank, np.float64)
        comm.Allreduce(dlmpi.MPI.IN_PLACE, managed)
        assert bool((managed == sum(range(comm.size))).all())
