"""Point-to-point between tensors: every mode, dtype and layout, short and empty messages, statuses.
Oracle: the bytes that the sender put in, in C order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI
from support.boxes import Box
from support.dtypes import BY_NAME, TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi
need_two = pytest.mark.mpi(min_size=2)

CASES = pairwise(
    {
        "mode": ("Sendrecv", "Send", "Ssend", "Bsend"),
        "dtype": TABLE,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
        "n": (0, 1, 35, 105, 10_010),
        "room": ("exact", "spare"),
    },
    valid=lambda row: all(
        row[f"{side}_in"] in row["dtype"].frameworks
        and row[f"{side}_in"] in row[f"{side}_as"].frameworks
        for side in ("send", "receive")
    ),
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_ring(comm, rng, case):
    """Each rank sends to the next; a receive with room to spare touches only what has come."""
    dtype, n, mode = case["dtype"], case["n"], case["mode"]
    rank, size = comm.rank, comm.size
    to, source = (rank + 1) % size, (rank - 1) % size
    boxes = []
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], r)
        box = Box(framework, dtype, layout, n, rng)
        boxes.append(box.fill(random_bits(dtype, n, rng)))
    framework, layout = spread(dtype, WRITABLE, case["receive_in"], case["receive_as"], rank)
    spare = 13 if case["room"] == "spare" else 0
    out = Box(framework, dtype, layout, n + spare, rng)
    mine, status = boxes[rank], MPI.Status()

    if mode == "Sendrecv" or size == 1:
        comm.Sendrecv(mine.tensor, to, 5, out.tensor, source, 5, status)
    elif mode == "Bsend":
        MPI.Attach_buffer(bytearray(mine.dtype.itemsize * n + MPI.BSEND_OVERHEAD))
        try:
            comm.Bsend(mine.tensor, to, 5)
            comm.Recv(out.tensor, source, 5, status)
        finally:
            MPI.Detach_buffer()
    else:
        send = getattr(comm, mode)
        if rank % 2:
            comm.Recv(out.tensor, source, 5, status)
            send(mine.tensor, dest=to, tag=5)
        else:
            send(mine.tensor, dest=to, tag=5)
            comm.Recv(out.tensor, source=source, tag=5, status=status)

    mine.expect_untouched()
    out.expect(boxes[source].flat())
    assert (status.Get_source(), status.Get_tag()) == (source, 5)
    assert status.Get_count(MPI.BYTE) == n * dtype.itemsize


@need_two
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_any_source_and_any_tag(comm, rng, layout):
    """The status names the sender, whatever is done to the data afterwards."""
    dtype = BY_NAME["float32"]
    parts = [random_bits(dtype, 3 * r + 1, rng) for r in range(comm.size)]
    if comm.rank:
        comm.Send(parts[comm.rank], dest=0, tag=comm.rank)
        return
    seen = set()
    for _ in range(comm.size - 1):
        out, status = Box("numpy", dtype, layout, 40, rng), MPI.Status()
        comm.Recv(out.tensor, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        source = status.Get_source()
        out.expect(parts[source])
        assert status.Get_tag() == source
        assert status.Get_count(MPI.FLOAT) == status.Get_elements(MPI.FLOAT) == 3 * source + 1
        seen.add(source)
    assert seen == set(range(1, comm.size))


def test_defaults_are_any_source_and_any_tag(comm):
    out = torch.zeros(3)
    request = comm.Isend(np.ones(3, np.float32), dest=comm.rank, tag=9)
    comm.Recv(out)
    request.Wait()
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("tensor", [np.zeros(4), torch.zeros(4), None, "no tensor"], ids=repr)
def test_proc_null_does_not_look_at_the_buffer(comm, tensor):
    status = MPI.Status()
    for send in (comm.Send, comm.Ssend, comm.Bsend, comm.Rsend):
        send(tensor, dest=MPI.PROC_NULL)
    comm.Recv(tensor, source=MPI.PROC_NULL, status=status)
    assert status.Get_source() == MPI.PROC_NULL
    assert status.Get_count(MPI.BYTE) == 0
    comm.Sendrecv(tensor, MPI.PROC_NULL, recvbuf=tensor, source=MPI.PROC_NULL)


@need_two
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ready_send(comm, rng, layout):
    """A ready send needs a receive that is already there, so the peer is mpi4py's Irecv."""
    dtype, n = BY_NAME["int16"], 35
    framework = layout.frameworks[-1]
    boxes = [Box(framework, dtype, layout, n, rng) for _ in range(comm.size)]
    for box in boxes:
        box.fill(random_bits(dtype, n, rng))
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = np.zeros(n, np.int16)
    request = PLAIN.COMM_WORLD.Irecv(out, source, 3)
    PLAIN.COMM_WORLD.Barrier()
    comm.Rsend(boxes[comm.rank].tensor, to, 3)
    request.Wait()
    assert out.tolist() == boxes[source].flat().tolist()


@need_two
def test_many_small_messages_stay_in_order(comm):
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for i in range(500):
        mine, out = torch.tensor([i, comm.rank]), np.zeros((2, 2), np.int64)[:, 0]
        comm.Sendrecv(mine, to, 1, out, source, 1)
        assert out.tolist() == [i, source]
