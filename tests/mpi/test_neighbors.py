"""Neighbourhood collectives on tensors of any layout. Oracle: who is whose neighbour."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support.boxes import Box
from support.dtypes import TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi


@pytest.fixture
def ring(comm):
    cart = comm.Create_cart([comm.size], [True])
    yield cart
    cart.Free()


def called(topology, name, *arguments):
    """Call the blocking form, or the other one and wait."""
    if name.startswith("I"):
        MPI.Request.Waitall([getattr(topology, name)(*arguments)])
    else:
        getattr(topology, name)(*arguments)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_allgather_on_a_ring(ring, rng, layout, blocking):
    dtype, n = next(d for d in TABLE if d.name == "bfloat16"), 6
    source = LAYOUTS[rng.integers(len(LAYOUTS))]
    boxes = [Box(source.frameworks[-1], dtype, source, n, rng) for _ in range(ring.size)]
    # Elements that share memory hold the last of the bits that they are filled with.
    sent = [box.fill(random_bits(dtype, n, rng)).flat() for box in boxes]
    out = Box(layout.frameworks[-1], dtype, layout, 2 * n, rng)
    name = "Neighbor_allgather" if blocking else "Ineighbor_allgather"
    called(ring, name, boxes[ring.rank].tensor, out.tensor)
    left, right = (ring.rank - 1) % ring.size, (ring.rank + 1) % ring.size
    out.expect(np.concatenate([sent[left], sent[right]]))


@pytest.mark.parametrize("name", ["Neighbor_alltoall", "Ineighbor_alltoall"])
@pytest.mark.parametrize("vector", ["", "v"])
def test_alltoall_on_a_graph(comm, name, vector):
    """Rank r sends 10 r + i to its i-th destination; everybody to everybody, itself included."""
    everyone = list(range(comm.size))
    graph = comm.Create_dist_graph_adjacent(everyone, everyone)
    n = 3
    mine = torch.zeros(comm.size, n, 2)[:, :, 1]
    mine[:] = 10 * comm.rank + torch.arange(comm.size)[:, None]
    out = torch.full((comm.size, n, 2), -1.0)
    arguments = (mine, out[:, :, 0])
    if vector:
        counts = [n] * comm.size
        arguments = ([mine, counts], [out[:, :, 0], counts])
    called(graph, name + vector, *arguments)
    want = [[10 * r + comm.rank] * n for r in everyone]
    assert out[:, :, 0].tolist() == want
    assert (out[:, :, 1] == -1).all()
    graph.Free()


def test_allgatherv_with_gaps(ring):
    mine = torch.full((2,), float(ring.rank), dtype=torch.bfloat16)
    out = torch.full((7,), -1.0, dtype=torch.bfloat16)
    ring.Neighbor_allgatherv(mine, [out, [2, 2], [4, 1]])
    left, right = (ring.rank - 1) % ring.size, (ring.rank + 1) % ring.size
    assert out.tolist() == [-1, right, right, -1, left, left, -1]


@pytest.mark.parametrize("prefix", ["", "I"])
def test_alltoallw(ring, prefix):
    mine, out = torch.arange(4.0) + 10 * ring.rank, torch.full((4,), -1.0)
    types = [MPI.FLOAT] * 2
    message = lambda t: [t, ([1, 1], [4, 8]), types]  # noqa: E731
    name = "Ineighbor_alltoallw" if prefix else "Neighbor_alltoallw"
    called(ring, name, message(mine), message(out))
    assert out[0] == out[3] == -1
    left, right = (ring.rank - 1) % ring.size, (ring.rank + 1) % ring.size
    if ring.size > 2:
        assert out.tolist() == [-1, 10 * left + 2, 10 * right + 1, -1]


def test_persistent(ring):
    mine, out = torch.zeros(2), torch.zeros(4)
    request = ring.Neighbor_allgather_init(mine, out)
    left, right = (ring.rank - 1) % ring.size, (ring.rank + 1) % ring.size
    for round_ in range(2):
        mine[:] = 10 * ring.rank + round_
        request.Start()
        request.Wait()
        assert out.tolist() == [10 * left + round_] * 2 + [10 * right + round_] * 2
    request.Free()


REACHING = {
    "a count": ([9], [0]),
    "a displacement": ([1], [64]),
    "a negative one": ([1], [-8]),
    "a negative count": ([-1], [0]),
}


NEAR = {
    "Alltoallw": "Neighbor_alltoallw",
    "Ialltoallw": "Ineighbor_alltoallw",
    "Alltoallw_init": "Neighbor_alltoallw_init",
}


@pytest.mark.parametrize("what", REACHING)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", NEAR)
def test_what_one_peer_would_reach_outside_is_refused(comm, ring, name, side, what):
    """Bytes, under the Datatype of that peer; before MPI is entered."""
    for make in (np.zeros, lambda n: torch.zeros(n, dtype=torch.float64)):
        for on, peers in ((comm, comm.size), (ring, 2)):
            counts, displs = (
                [one] * (peers - 1) + bad for one, bad in zip((1, 0), REACHING[what], strict=True)
            )
            sides = [[make(8), ([1] * peers, [0] * peers), [MPI.DOUBLE] * peers] for _ in range(2)]
            sides[side][1] = (counts, displs)
            call = getattr(on, name if on is comm else NEAR[name])
            with pytest.raises(ValueError, match=rf"buf: .*rank {peers - 1}"):
                call(*sides)
            sides[side][1:] = [counts, displs, [MPI.DOUBLE] * peers]
            with pytest.raises(ValueError, match=rf"buf: .*rank {peers - 1}"):
                call(*sides)


def test_world_alltoallw(comm):
    """Types per rank on a torch tensor: the transpose of a matrix of ranks."""
    size = comm.size
    mine, out = torch.arange(size) + 10 * comm.rank, torch.full((size,), -1)
    layout = ([1] * size, [8 * r for r in range(size)])
    comm.Alltoallw([mine, layout, [MPI.INT64_T] * size], [out, layout, [MPI.INT64_T] * size])
    assert out.tolist() == [10 * r + comm.rank for r in range(size)]
    out[:] = -1
    comm.Ialltoallw(
        [mine, layout, [MPI.INT64_T] * size], [out, layout, [MPI.INT64_T] * size]
    ).Wait()
    assert out.tolist() == [10 * r + comm.rank for r in range(size)]
