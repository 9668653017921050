"""A peer that is plain mpi4py: point-to-point in both directions, Probe and Get_count included.
The plain side always uses contiguous NumPy memory of the same element type."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

import dlmpi
from dlmpi import MPI
from support.boxes import Box
from support.dtypes import TABLE, random_bits, same
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise

pytestmark = pytest.mark.mpi(min_size=2)
WORLD = PLAIN.COMM_WORLD

CASES = pairwise(
    {
        "dtype": TABLE,
        "framework": ("numpy", "torch"),
        "layout": LAYOUTS,
        "n": (0, 1, 35, 20_020),
        "mode": ("Send", "Ssend", "Isend", "Sendrecv"),
    },
    valid=lambda row: (
        row["framework"] in row["dtype"].frameworks and row["framework"] in row["layout"].frameworks
    ),
)


def plain(values: np.ndarray, dtype) -> list:
    """The message that a plain peer would write for these stored elements."""
    if dtype.mpi:
        return [values, getattr(PLAIN, dtype.mpi)]
    return [values.view(np.uint8), PLAIN.BYTE]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_we_send(comm, rng, case):
    """Even ranks send tensors; the odd one after each receives as mpi4py does."""
    dtype, n = case["dtype"], case["n"]
    box = Box(case["framework"], dtype, case["layout"], n, rng)
    box.fill(random_bits(dtype, n, rng))
    if comm.rank % 2 == 0 and comm.rank + 1 < comm.size:
        if case["mode"] == "Isend":
            comm.Ssend(box.tensor, comm.rank + 1, 7)
        elif case["mode"] == "Sendrecv":
            comm.Sendrecv(box.tensor, comm.rank + 1, 7, box.tensor, PLAIN.PROC_NULL)
        else:
            getattr(comm, case["mode"])(box.tensor, comm.rank + 1, 7)
        box.expect_untouched()
    elif comm.rank % 2:
        status = PLAIN.Status()
        WORLD.Probe(comm.rank - 1, 7, status)
        assert status.Get_count(PLAIN.BYTE) == n * dtype.itemsize
        if dtype.mpi:
            assert status.Get_count(getattr(PLAIN, dtype.mpi)) == n
        values = np.zeros(n, dtype.store)
        WORLD.Recv(plain(values, dtype), comm.rank - 1, 7, status)
        assert same(dtype, values, box.flat()).all()
        assert status.Get_source() == comm.rank - 1


@pytest.mark.parametrize("case", [c for c in CASES if c["layout"].writable], ids=label)
def test_we_receive(comm, rng, case):
    """Odd ranks send as mpi4py does; the even one before each receives into a tensor, with room to
    spare, after a probe through the drop-in."""
    dtype, n = case["dtype"], case["n"]
    values = random_bits(dtype, n, rng)
    if comm.rank % 2:
        if case["mode"] == "Isend":
            WORLD.Isend(plain(values, dtype), comm.rank - 1, 8).Wait()
        elif case["mode"] == "Sendrecv":
            WORLD.Sendrecv(plain(values, dtype), comm.rank - 1, 8, bytearray(1), PLAIN.PROC_NULL)
        else:
            getattr(WORLD, case["mode"])(plain(values, dtype), comm.rank - 1, 8)
    elif comm.rank + 1 < comm.size:
        status = MPI.Status()
        comm.Probe(MPI.ANY_SOURCE, 8, status)
        assert status.Get_source() == comm.rank + 1
        count = status.Get_count(MPI.BYTE) // dtype.itemsize
        assert count == n
        out = Box(case["framework"], dtype, case["layout"], n + 7, rng)
        comm.Recv(out.tensor, comm.rank + 1, 8, status)
        out.expect(values)
        assert status.Get_count(MPI.BYTE) == n * dtype.itemsize
        if dtype.mpi:
            assert status.Get_count(getattr(MPI, dtype.mpi)) == n


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_requests_and_matched_probes_meet_our_sends(comm, rng, layout):
    """Irecv and Mprobe on the plain side; our blocking sends on the other."""
    dtype = TABLE[3]
    box = Box(layout.frameworks[-1], dtype, layout, 35, rng).fill(random_bits(dtype, 35, rng))
    if comm.rank == 0:
        comm.Send(box.tensor, 1, 1)
        comm.Send(box.tensor, 1, 2)
    elif comm.rank == 1:
        first, second = np.zeros(35, np.int32), np.zeros(35, np.int32)
        request = WORLD.Irecv(first, 0, 1)
        WORLD.Mprobe(0, 2).Recv(second)
        request.Wait()
        assert first.tolist() == second.tolist() == box.flat().tolist()


def test_pickled_objects_still_travel(comm):
    """The lower-case methods are mpi4py's own."""
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    assert comm.sendrecv({"from": comm.rank}, to, source=source) == {"from": source}
    assert comm.allgather(comm.rank) == list(range(comm.size))
    assert comm.allreduce(comm.rank) == sum(range(comm.size))


def test_the_two_modules_see_one_world(comm):
    assert comm == WORLD
    assert comm.rank == WORLD.rank
    assert isinstance(comm, PLAIN.Intracomm)
    assert MPI.SUM == PLAIN.SUM
    assert isinstance(MPI.SUM, PLAIN.Op)
    assert MPI.Status is PLAIN.Status
    if comm.rank == 0:
        comm.Send(np.ones(1), 1)
    elif comm.rank == 1:
        out = np.zeros(1)
        WORLD.Recv(out, 0)
        assert out[0] == 1


def test_collectives_with_plain_peers(comm):
    """Even ranks are dlmpi, odd ranks mpi4py; layouts are dlmpi's own affair."""
    stock = WORLD.Dup()
    rank, size = stock.rank, stock.size
    mine = dlmpi.wrap(stock, collectives="mpi") if rank % 2 == 0 else stock
    order = "F" if rank % 2 == 0 else "C"
    for _ in range(3):
        out = np.empty((2, 3), order=order)
        mine.Allreduce(np.full((2, 3), rank + 1.0, order=order), out)
        assert np.all(out == sum(range(1, size + 1)))
        got = np.empty((size, 4), order=order)
        mine.Allgather(np.arange(4.0) + 10 * rank, got)
        assert np.array_equal(got, np.arange(4.0) + 10 * np.arange(size)[:, None])
        sums = np.empty(3)
        mine.Iallreduce(np.full(3, 1.0), sums).Wait()
        assert np.all(sums == size)
    if rank % 2 == 0 and size > 1:
        half = torch.ones(3, dtype=torch.bfloat16)
        with pytest.raises(ValueError, match="float32"):
            mine.Allreduce(MPI.IN_PLACE, half)
        with pytest.raises(ValueError, match="AVG"):
            mine.Allreduce(np.ones(2), np.ones(2), op=dlmpi.AVG)
    with pytest.raises(ValueError, match="collectives"):
        dlmpi.wrap(stock, collectives="ours")
    stock.Free()
