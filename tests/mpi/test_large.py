"""More than 2^31 elements in one call: one message point-to-point, whole collectives. Needs about
10 GB per rank (5 for bfloat16) and minutes, so it runs on request only: DLMPI_TEST_LARGE=1, two
ranks, and a longer time per test: DLMPI_TEST_DEADLINE=300, -o faulthandler_timeout=300."""

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
    """`n` elements of the endless pattern from `start` on."""
    block = (np.arange(PERIOD) % 251).astype(np.uint8)
    return np.resize(np.roll(block, -(start % PERIOD)), n)


def holds(array: np.ndarray, want) -> bool:
    """Whether a flat array is `want(n, start)`, looked at in pieces: copies would not fit."""
    step = 1 << 26
    return all(
        (array[at : at + step] == want(min(step, len(array) - at), at)).all()
        for at in range(0, len(array), step)
    )


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
        assert holds(out[:N], pattern)
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
        view[:] = pattern(view.size).reshape(view.shape)
        comm.Send(view, 1)
    else:
        comm.Recv(view, 0)
        assert not base[:, 0].any()
        assert not base[:, 3].any()
        step = 1 << 25
        for at in range(0, len(view), step):
            part = view[at : at + step]
            assert (part.reshape(-1) == pattern(part.size, 2 * at)).all()


def test_bcast(comm):
    tensor = torch.from_numpy(pattern(N) if comm.rank == 0 else np.zeros(N, np.uint8))
    comm.Bcast(tensor, root=0)
    assert holds(tensor.numpy(), pattern)


def test_allreduce(comm):
    tensor = torch.from_numpy(pattern(N, comm.rank))
    comm.Allreduce(MPI.IN_PLACE, tensor)
    assert holds(tensor.numpy(), lambda n, start: pattern(n, start) + pattern(n, start + 1))


def test_allreduce_of_bfloat16(comm):
    """In place: element i is i mod 251 - 125 on rank 0 and twice that on rank 1."""
    period = (torch.arange(251 << 14) % 251 - 125).to(torch.bfloat16)
    tensor = torch.empty(N, dtype=torch.bfloat16)
    for part in tensor.split(period.numel()):
        part.copy_(period[: part.numel()] * (comm.rank + 1))
    comm.Allreduce(MPI.IN_PLACE, tensor)
    for part in tensor.split(period.numel()):
        assert torch.equal(part, period[: part.numel()] * 3)


def test_blocks_far_away(comm):
    """Displacements beyond 2^31 with small blocks."""
    out = np.zeros(N, np.uint8)
    comm.Allgatherv(pattern(5, comm.rank), [out, ([5, 5], [3, N - 5])])
    assert out[3:8].tolist() == pattern(5, 0).tolist()
    assert out[-5:].tolist() == pattern(5, 1).tolist()
    assert out[8:-5].max() == 0


def test_allgather(comm):
    half = N // 2 + 1
    out = np.zeros(2 * half, np.uint8)
    comm.Allgather(pattern(half, comm.rank), out)
    assert holds(out[:half], pattern)
    assert holds(out[half:], lambda n, start: pattern(n, start + 1))
