"""More than 2^31 elements in one call: one message point-to-point, whole collectives. Needs about
10 GB per rank, so it runs on request only: DLMPI_TEST_LARGE=1, two ranks."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.large,
    pytest.mark.skipif(
        os.environ.get("DLMPI_TEST_LARGE") != "1", reason="memory: needs DLMPI_TEST_LARGE=1"
    ),
]
N = 2**31 + 13
# A long prime period: a shift by any power of two shows.
PERIOD = 8191


@pytest.fixture(autouse=True)
def two_ranks(comm):
    if comm.size != 2:
        pytest.skip("memory: two ranks only")


def pattern(n: int, start: int = 0) -> np.ndarray:
    block = (np.arange(PERIOD) % 251).astype(np.uint8)
    return np.resize(np.roll(block, -start), n)


def test_one_message(comm):
    if comm.rank == 0:
        comm.Send(pattern(N), 1, 3)
    else:
        status = MPI.Status()
        comm.Probe(0, 3, status)
        assert status.Get_elements(MPI.BYTE) == N
        out = np.zeros(N + 5, np.uint8)
        comm.Recv(out, 0, 3, status)
        assert status.Get_elements(MPI.BYTE) == N
        assert (out[:N] == pattern(N)).all()
        assert not out[N:].any()


def test_a_short_message_into_a_large_room(comm):
    if comm.rank == 0:
        comm.Send(pattern(10), 1)
    else:
        out, status = torch.zeros(N, dtype=torch.uint8), MPI.Status()
        comm.Recv(out, 0, 0, status)
        assert status.Get_elements(MPI.BYTE) == 10
        assert out[:10].tolist() == pattern(10).tolist()
        assert not out[10:].any()


def test_strided(comm):
    base = np.zeros((N // 2 + 1, 4), np.uint8)
    view = base[:, 1:3]
    if comm.rank == 0:
        view.reshape(-1)[:] = 0
        view[:] = pattern(view.size).reshape(view.shape)
        comm.Send(view, 1)
    else:
        comm.Recv(view, 0)
        assert (view == pattern(view.size).reshape(view.shape)).all()
        assert not base[:, 0].any()
        assert not base[:, 3].any()


def test_bcast(comm):
    tensor = torch.from_numpy(pattern(N) if comm.rank == 0 else np.zeros(N, np.uint8))
    comm.Bcast(tensor, root=0)
    assert (tensor.numpy() == pattern(N)).all()


def test_allreduce(comm):
    tensor = torch.from_numpy(pattern(N, comm.rank))
    comm.Allreduce(MPI.IN_PLACE, tensor)
    want = pattern(N)
    want += pattern(N, 1)
    assert (tensor.numpy() == want).all()


def test_allreduce_of_bfloat16(comm):
    tensor = torch.full((N,), float(comm.rank + 1), dtype=torch.bfloat16)
    comm.Allreduce(MPI.IN_PLACE, tensor)
    assert tensor[-1].item() == 3
    assert bool((tensor == 3).all())


def test_blocks_far_away(comm):
    """Displacements beyond 2^31 with small blocks."""
    out = np.zeros(N, np.uint8)
    comm.Allgatherv(pattern(5, comm.rank), [out, ([5, 5], [3, N - 5])])
    assert out[3:8].tolist() == pattern(5, 0).tolist()
    assert out[-5:].tolist() == pattern(5, 1).tolist()
    assert out[8:-5].max() == 0


def test_allgather(comm):
    out = np.zeros(2 * N, np.uint8)
    comm.Allgather(pattern(N, comm.rank), out)
    assert (out[:N] == pattern(N, 0)).all()
    assert (out[N:] == pattern(N, 1)).all()
