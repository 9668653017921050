"""Persistent and partitioned operations on tensors of every layout, another one on each rank.

Oracle: the collective's definition on NumPy arrays; every byte around the elements is watched."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN
from numpy.lib.stride_tricks import as_strided

from dlmpi import MPI
from support.boxes import Box
from support.dtypes import BY_NAME, random_bits
from support.layouts import TABLE, WRITABLE

pytestmark = pytest.mark.mpi
ROUNDS = 2
OPEN_MPI = "Open MPI" in MPI.Get_library_version()
DTYPES = [BY_NAME[name] for name in ("int16", "float64", "bfloat16")]
LAYOUTS = range(0, len(TABLE), 2)  # the other ranks take those between


def box(table, at, n, rng, dtype):
    layout = table[at % len(table)]
    framework = layout.frameworks[at % len(layout.frameworks)]
    # Layouts draw as they like; the ranks' common numbers stay common.
    return Box(framework, dtype, layout, n, np.random.default_rng(int(rng.integers(1 << 30))))


def values(dtype, size, n, rng):
    """What each rank's tensor holds; the same on every rank."""
    return np.stack([random_bits(dtype, n, rng) for _ in range(size)])


def start(request, round_):
    """By dlmpi's `Start` in the even rounds, by its `Startall` in the others."""
    if round_ % 2:
        MPI.Prequest.Startall([request])
    else:
        request.Start()


# name: blocks sent and received, 0 for one per rank; whether there is a root.
MOVES = {
    "Gather": (1, 0, True),
    "Gatherv": (1, 0, True),
    "Scatter": (0, 1, True),
    "Scatterv": (0, 1, True),
    "Allgather": (1, 0, False),
    "Allgatherv": (1, 0, False),
    "Alltoall": (0, 0, False),
    "Alltoallv": (0, 0, False),
}


@pytest.mark.parametrize("at", LAYOUTS)
@pytest.mark.parametrize("name", MOVES)
def test_movements(comm, rng, name, at):
    size, rank, n, root = comm.size, comm.rank, 6, comm.size - 1
    dtype = DTYPES[at % len(DTYPES)]
    takes, gives, rooted = MOVES[name]
    mine = box(TABLE, at + rank, n * (takes or size), rng, dtype)
    out = box(WRITABLE, at + 1 + rank, n * (gives or size), rng, dtype)
    arguments = [mine.tensor, out.tensor] + [root] * rooted
    request = getattr(comm, f"{name}_init")(*arguments)
    for round_ in range(ROUNDS):
        drawn = values(dtype, size, n * (takes or size), rng)
        sent = np.stack(comm.allgather(mine.fill(drawn[rank]).flat()))
        out.fill(values(dtype, size, n * (gives or size), rng)[rank])
        start(request, round_)
        request.Wait()
        blocks = sent.reshape(size, -1, n)
        if name.startswith("Scatter"):
            want = blocks[root, rank]
        else:
            want = sent.reshape(-1) if takes else blocks[:, rank].reshape(-1)
        if name.startswith("Gather") and rank != root:
            out.expect_untouched()
        else:
            out.expect(want)
    request.Free()


@pytest.mark.parametrize("at", LAYOUTS)
def test_broadcast(comm, rng, at):
    size, rank, n = comm.size, comm.rank, 24
    dtype = DTYPES[at % len(DTYPES)]
    for first, count in ((0, n), (5, 13)):
        # The root may send what nobody can write.
        table = TABLE if rank == size - 1 else WRITABLE
        mine = box(table, at + rank, n, rng, dtype)
        spec = mine.tensor if count == n else [mine.tensor, count, first]
        request = comm.Bcast_init(spec, root=size - 1)
        for _ in range(ROUNDS):
            drawn = values(dtype, size, n, rng)
            mine.fill(drawn[rank])
            sent = comm.bcast(mine.flat(), root=size - 1)
            # What is strided has a Datatype of its own, so stock mpi4py starts it, too.
            PLAIN.Prequest.Startall([request])
            PLAIN.Request.Waitall([request])
            if rank == size - 1:
                mine.expect_untouched()
            else:
                mine.expect(sent[first : first + count], first)
        request.Free()


@pytest.mark.parametrize("at", LAYOUTS)
@pytest.mark.parametrize("mode", ["Send_init", "Ssend_init", "Rsend_init"])
def test_messages_with_counts(comm, rng, at, mode):
    """Parts that begin and end in the middle of rows; stock `Startall` and `Waitall` serve them."""
    size, rank, n = comm.size, comm.rank, 24
    to, source = (rank + 1) % size, (rank - 1) % size
    dtype = DTYPES[at % len(DTYPES)]
    mine, out = box(TABLE, at + rank, n, rng, dtype), box(WRITABLE, at + 1 + rank, n, rng, dtype)
    for first, count in ((0, 0), (1, 1), (3, 17), (5, 19), (23, 1), (0, 24)):
        receive = comm.Recv_init([out.tensor, count, n - first - count], source, 1)
        send = getattr(comm, mode)([mine.tensor, count, first], to, 1)
        for _ in range(2):
            drawn = values(dtype, size, n, rng)
            sent = np.stack(comm.allgather(mine.fill(drawn[rank]).flat()))
            out.fill(values(dtype, size, n, rng)[rank])
            PLAIN.Prequest.Startall([receive])
            comm.Barrier()
            PLAIN.Prequest.Startall([send])
            status = PLAIN.Status()
            PLAIN.Request.Waitall([send, receive], [PLAIN.Status(), status])
            assert (status.source, status.Get_count(PLAIN.BYTE)) == (source, count * dtype.itemsize)
            out.expect(sent[source][first : first + count], n - first - count)
        send.Free()
        receive.Free()


@pytest.mark.parametrize("at", LAYOUTS)
def test_vectors_with_gaps_and_in_place(comm, rng, at):
    """Counts that differ, displacements that leave gaps, blocks sent from where they lie."""
    size, rank = comm.size, comm.rank
    dtype = DTYPES[at % len(DTYPES)]
    counts = [1 + 2 * r for r in range(size)]
    displs = [3 * r + r * r for r in range(size)]
    n = displs[-1] + counts[-1] + 2
    n += -n % 4
    out = box(WRITABLE, at + rank, n, rng, dtype)
    mine = box(TABLE, at + 1 + rank, counts[rank], rng, dtype)
    where = np.concatenate([np.arange(d, d + c) for c, d in zip(counts, displs, strict=True)])
    spec = [out.tensor, (counts, displs)]
    for send in (mine.tensor, MPI.IN_PLACE):
        request = comm.Allgatherv_init(send, spec)
        for round_ in range(2):
            drawn = values(dtype, size, n, rng)
            out.fill(drawn[rank])
            mine.fill(drawn[rank, : counts[rank]])
            own = slice(displs[rank], displs[rank] + counts[rank])
            sent = out.flat()[own] if send is MPI.IN_PLACE else mine.flat()
            want = np.concatenate(comm.allgather(sent))
            start(request, round_)
            request.Wait()
            out.expect_where(want, where)
        request.Free()


REDUCTIONS = ("Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block", "Reduce_scatter")


@pytest.mark.parametrize("at", LAYOUTS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(comm, rng, name, at):
    size, rank, n, root = comm.size, comm.rank, 6, comm.size - 1
    dtype = BY_NAME[("int16", "float64", "complex64", "uint8")[at % 4]]
    parts = name.startswith("Reduce_scatter")
    mine = box(TABLE, at + rank, n * (size if parts else 1), rng, dtype)
    out = box(WRITABLE, at + 1 + rank, n, rng, dtype)
    request = getattr(comm, f"{name}_init")(
        mine.tensor, out.tensor, **({"root": root} if name == "Reduce" else {})
    )
    for round_ in range(ROUNDS):
        drawn = rng.integers(0, 5, (size, n * (size if parts else 1)))
        mine.fill(dtype.encode(drawn[rank].astype(float)))
        all_ = np.stack(comm.allgather(dtype.decode(mine.flat())))
        out.fill(dtype.encode(np.full(n, 77.0)))
        start(request, round_)
        request.Wait()
        over = {"Scan": all_[: rank + 1], "Exscan": all_[:rank]}.get(name, all_)
        want = over.sum(0)[n * rank : n * rank + n] if parts else over.sum(0)
        if (name == "Reduce" and rank != root) or (name == "Exscan" and rank == 0):
            out.expect_untouched()
        else:
            out.expect(dtype.encode(want))
    request.Free()


@pytest.mark.parametrize("at", range(0, len(WRITABLE), 2))
def test_the_same_and_overlapping_memory(comm, rng, at):
    """What is sent from memory that is also received into is what was there at the start."""
    size, n = comm.size, 12
    dtype = BY_NAME["int32"]
    mine = box(WRITABLE, at + comm.rank, n, rng, dtype)
    shared = np.zeros(n + 4, np.int32)
    for send, recv in (
        (mine.tensor, mine.tensor),
        (shared[:n], shared[4:]),
        (shared[4:], shared[:n]),
    ):
        for name in ("Allreduce", "Scan"):
            request = getattr(comm, f"{name}_init")(send, recv)
            for _ in range(2):
                drawn = rng.integers(0, 9, (size, n)).astype(np.int32)
                np.asarray(send)[...] = drawn[comm.rank].reshape(send.shape)
                over = drawn if name == "Allreduce" else drawn[: comm.rank + 1]
                request.Start()
                request.Wait()
                assert np.array_equal(np.asarray(recv).reshape(-1), over.sum(0))
            request.Free()
    place = comm.Allreduce_init(MPI.IN_PLACE, mine.tensor)
    mine.fill(np.full(n, 3, np.int32))
    place.Start()
    place.Wait()
    mine.expect(np.full(n, 3 * size, np.int32))
    place.Free()


@pytest.mark.parametrize("at", LAYOUTS)
def test_neighbors(comm, rng, at):
    size, rank, n = comm.size, comm.rank, 8
    to, source = (rank + 1) % size, (rank - 1) % size
    ring = comm.Create_dist_graph_adjacent([source], [to])
    dtype = DTYPES[at % len(DTYPES)]
    mine, out = box(TABLE, at + rank, n, rng, dtype), box(WRITABLE, at + 1 + rank, n, rng, dtype)
    for name in ("allgather", "allgatherv", "alltoall", "alltoallv"):
        request = getattr(ring, f"Neighbor_{name}_init")(mine.tensor, out.tensor)
        for round_ in range(2):
            sent = np.stack(comm.allgather(mine.fill(values(dtype, size, n, rng)[rank]).flat()))
            out.fill(values(dtype, size, n, rng)[rank])
            start(request, round_)
            request.Wait()
            out.expect(sent[source])
        request.Free()
    ring.Free()


@pytest.mark.parametrize("at", LAYOUTS)
def test_partitions(comm, rng, at):
    """Filled and marked out of order after the start, taken home one by one."""
    size, rank, parts, n = comm.size, comm.rank, 4, 6
    to, source = (rank + 1) % size, (rank - 1) % size
    dtype = DTYPES[at % len(DTYPES)]
    layout = TABLE[(at + rank) % len(TABLE)]
    layout = layout if layout.writable else TABLE[1]
    mine = box([layout], 0, parts * n, rng, dtype)
    if OPEN_MPI:
        scattered = np.zeros((n, parts)).T
        for create in (comm.Psend_init, comm.Precv_init):
            with pytest.raises(BufferError, match="Open MPI's partitioned"):
                create(scattered, parts, 0)
        return
    out = box(WRITABLE, at + 1 + rank, parts * n, rng, dtype)
    send = comm.Psend_init(mine.tensor, parts, to, 3)
    receive = comm.Precv_init([out.tensor, n], parts, source, 3)
    for round_ in range(ROUNDS):
        drawn = values(dtype, size, parts * n, rng)
        old = values(dtype, size, parts * n, rng)
        mine.fill(old[rank])
        out.fill(old[rank])
        MPI.Prequest.Startall([send, receive])
        for part in (2, 0):
            before = mine.flat()
            before[n * part : n * part + n] = drawn[rank, n * part : n * part + n]
            mine.fill(before)
            send.Pready(part)
        mine.fill(drawn[rank])
        if round_ % 2:
            send.Pready_list([1, 3])
        else:
            send.Pready_range(1, 1)
            send.Pready_range(3, 3)
        while not receive.Parrived(2):
            pass
        arrived = out.flat()[2 * n : 3 * n]
        assert arrived.tobytes() == drawn[source, 2 * n : 3 * n].tobytes()
        MPI.Request.Waitall([send, receive])
        out.expect(drawn[source])
    send.Free()
    receive.Free()


def test_requests_end_in_every_way(comm):
    """Dropped, freed active or inactive, mixed with foreign ones; memory is held meanwhile."""
    size, rank = comm.size, comm.rank
    out = np.zeros((3, 2 * size), np.int64)[:, ::2]
    mine = np.full((2, 3), rank, np.int64)[0]
    request = comm.Allgather_init(mine, out.T)
    assert request == MPI.REQUEST_NULL
    with pytest.raises(PLAIN.Exception):
        PLAIN.Prequest.Startall([request])
    request.Start()
    with pytest.raises(MPI.Exception):
        request.Start()
    other = comm.Ibarrier()
    PLAIN.Request.Waitall([request, other, comm.Isend(b"", MPI.PROC_NULL)])
    assert out.T.tolist() == [[r] * 3 for r in range(size)]
    out[:] = -1
    request.Start()
    request.Free()
    assert request == MPI.REQUEST_NULL
    with pytest.raises(MPI.Exception):
        request.Start()
    comm.Barrier()
    while (out < 0).any():
        comm.Iprobe()
    temporary = comm.Allgather_init(mine, np.zeros((3, 2 * size), np.int64)[:, ::2].T)
    temporary.Start()
    del temporary
    gc.collect()
    comm.Barrier()


def test_versions_are_bumped(comm):
    out = torch.zeros(4, 2 * comm.size)[:, ::2].t()
    request = comm.Allgather_init(torch.ones(4), out)
    before = out._version
    request.Start()
    PLAIN.Request.Waitall([request])
    assert out._version > before
    assert out.tolist() == [[1.0] * 4] * comm.size
    request.Free()


def test_what_cannot_be_is_refused(comm):
    dense = np.zeros((2 * comm.size, 3), np.float32)
    read_only = np.zeros_like(dense)
    read_only.flags.writeable = False
    # The rows of these are one row, which may be written.
    repeated = as_strided(np.zeros(3, np.float32), dense.shape, (0, 4))
    expanded = torch.zeros(3).expand(dense.shape)
    creates = (
        lambda out: comm.Recv_init(out, 0),
        lambda out: comm.Allgather_init(dense[:2], out),
        lambda out: comm.Allreduce_init(dense, out),
        lambda out: comm.Allreduce_init(MPI.IN_PLACE, out),
        lambda out: comm.Precv_init(out, comm.size, 0),
    )
    for out, why in (
        (repeated, "elements that share memory"),
        (expanded, "elements that share memory"),
        (read_only, "is read-only"),
    ):
        for make in creates:
            with pytest.raises(BufferError, match=why):
                make(out)
    strided = np.zeros((comm.size, 6))[:, ::2]
    for create in (
        lambda: comm.Send_init([strided, 3 * comm.size + 1], 0),
        lambda: comm.Recv_init([strided, 1, 3 * comm.size], 0),
        lambda: comm.Send_init([strided, 1, -1], 0),
        lambda: comm.Allgather_init(np.zeros(3), [strided, 4]),
        lambda: comm.Allgatherv_init(np.zeros(3), [strided, ([3] * comm.size, [4] * comm.size)]),
        lambda: comm.Psend_init([np.zeros(6), 2], 4, 0),
    ):
        with pytest.raises(ValueError, match=r"buf"):
            create()


@pytest.mark.parametrize("at", LAYOUTS)
def test_a_reduction_of_equal_blocks_in_place(comm, rng, at):
    """The tensor holds a block for each rank; the first of them gets the result."""
    size, rank, n = comm.size, comm.rank, 4
    dtype = BY_NAME[("int16", "float64", "complex64", "uint8")[at % 4]]
    place = box(WRITABLE, at + rank, n * size, rng, dtype)
    for spec in (place.tensor, [place.tensor, n]):
        request = comm.Reduce_scatter_block_init(MPI.IN_PLACE, spec)
        for round_ in range(ROUNDS):
            drawn = rng.integers(0, 5, (size, n * size)).astype(float)
            place.fill(dtype.encode(drawn[rank]))
            start(request, round_)
            request.Wait()
            place.expect_first(dtype.encode(drawn.sum(0)[n * rank : n * rank + n]))
        request.Free()


def test_a_count_in_place_is_that_of_each_block(comm):
    short = np.zeros(2 * comm.size - 1, np.int32)
    with pytest.raises(ValueError, match="reach"):
        comm.Reduce_scatter_block_init(MPI.IN_PLACE, [short, 2])


@pytest.mark.parametrize("at", LAYOUTS)
@pytest.mark.parametrize("name", ["Scatterv", "Gatherv"])
def test_no_elements_are_no_message(comm, rng, name, at):
    """A peer without elements, whose tensor is of any layout, neither waits nor sends."""
    size, rank, n = comm.size, comm.rank, 4
    dtype = DTYPES[at % len(DTYPES)]
    for nobody in range(size):
        counts = [0 if r == nobody else n for r in range(size)]
        whole = box(WRITABLE, at + rank, n * size, rng, dtype)
        mine = box(WRITABLE, at + 1 + rank, n, rng, dtype)
        many = [whole.tensor, (counts, [n * r for r in range(size)])] if rank == 0 else None
        one = [mine.tensor, counts[rank]]
        pair = (many, one) if name == "Scatterv" else (one, many)
        request = getattr(comm, f"{name}_init")(*pair)
        for round_ in range(ROUNDS):
            drawn = values(dtype, size, n * size, rng)
            whole.fill(drawn[rank])
            mine.fill(drawn[rank, :n])
            start(request, round_)
            request.Wait()
            if name == "Scatterv":
                want = drawn[0, n * rank : n * rank + counts[rank]]
                mine.expect_where(want, np.arange(counts[rank]))
            elif rank == 0:
                there = [r for r in range(size) if counts[r]]
                want = np.concatenate([drawn[r, :n] for r in there] or [drawn[0, :0]])
                where = [n * r + i for r in there for i in range(n)]
                whole.expect_where(want, np.array(where, int))
        request.Free()
