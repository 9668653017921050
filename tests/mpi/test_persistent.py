"""Persistent and partitioned operations on tensors, started again with new values. Oracle: closed
forms of rank and round."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

import dlmpi
from dlmpi import MPI
from support.boxes import Box
from support.dtypes import TABLE, random_bits
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi

MAKERS = {
    "numpy float64": np.zeros,
    "torch float32": torch.zeros,
    "torch bfloat16": lambda n: torch.zeros(n, dtype=torch.bfloat16),
    "torch int16": lambda n: torch.zeros(n, dtype=torch.int16),
}
WAYS = {
    "Start": lambda requests: [request.Start() for request in requests],
    "Startall": MPI.Prequest.Startall,
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def listed(tensor):
    return tensor.tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["Send_init", "Ssend_init", "Bsend_init", "Rsend_init"])
def test_messages(comm, make, way, mode):
    size, rank = comm.size, comm.rank
    to, source = (rank + 1) % size, (rank - 1) % size
    out, mine = make(4), make(4)
    if mode == "Bsend_init":
        MPI.Attach_buffer(bytearray(1000 + 10 * MPI.BSEND_OVERHEAD))
    receive = comm.Recv_init(out, source, 1)
    send = getattr(comm, mode)(mine, to, 1)
    for round_ in range(3):
        mine[:] = 10 * rank + round_
        before = getattr(out, "_version", -1)
        WAYS[way]([receive])
        comm.Barrier()
        WAYS[way]([send])
        send.Wait()
        receive.Wait()
        assert listed(out) == [10 * source + round_] * 4
        assert getattr(out, "_version", 0) > before
    send.Free()
    receive.Free()
    assert send == receive == MPI.REQUEST_NULL
    if mode == "Bsend_init":
        MPI.Detach_buffer()


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "complex128"])
def test_messages_of_any_layout(comm, rng, layout, dtype):
    dtype, n = next(d for d in TABLE if d.name == dtype), 35
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    framework = layout.frameworks[-1]
    mine, out = (Box(framework, dtype, layout, n, rng) for _ in range(2))
    requests = [comm.Recv_init(out.tensor, source, 1), comm.Send_init(mine.tensor, to, 1)]
    for _ in range(2):
        sent = [random_bits(dtype, n, rng) for _ in range(comm.size)]
        mine.fill(sent[comm.rank])
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        out.expect(sent[source])
    for request in requests:
        request.Free()


def test_tensors_are_held_until_the_request_is_freed(comm):
    class Watched(np.ndarray):
        pass

    array = np.zeros(5).view(Watched)
    alive = weakref.ref(array)
    total = np.zeros(5)
    request = comm.Allreduce_init(array, total)
    del array
    gc.collect()
    assert alive() is not None
    for round_ in range(3):
        alive()[:] = round_
        request.Start()
        request.Wait()
        assert total.tolist() == [comm.size * round_] * 5
    request.Free()
    del request
    gc.collect()
    assert alive() is None


MOVES = ("Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv")
MOVES += ("Alltoall", "Alltoallv")


@pytest.mark.parametrize("name", MOVES)
def test_movements(comm, make, name):
    """As the blocking form, three times, with new values each time."""
    size, n = comm.size, 2
    whole, part = make(n * size), make(n)
    send, recv = {
        "Bcast": (None, whole),
        "Gather": (part, whole),
        "Gatherv": (part, whole),
        "Scatter": (whole, part),
        "Scatterv": (whole, part),
        "Allgather": (part, whole),
        "Allgatherv": (part, whole),
        "Alltoall": (whole, make(n * size)),
        "Alltoallv": (whole, make(n * size)),
    }[name]
    arguments = [recv] if name == "Bcast" else [send, recv]
    request = getattr(comm, f"{name}_init")(*arguments)
    expected = make(len(recv))
    for round_ in range(3):
        for tensor in arguments:
            tensor[:] = 8 * comm.rank + round_
        expected[:] = recv
        getattr(comm, name)(*([expected] if name == "Bcast" else [send, expected]))
        request.Start()
        request.Wait()
        assert listed(recv) == listed(expected)
    request.Free()


@pytest.mark.parametrize("name", ["Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block"])
def test_reductions(comm, name):
    size, rank = comm.size, comm.rank
    mine, out = torch.zeros(3 * size), torch.full((3 * size,), -1.0)
    out = out[:3] if name == "Reduce_scatter_block" else out
    request = getattr(comm, f"{name}_init")(mine, out)
    sums = {
        "Scan": rank * (rank + 1) // 2,
        "Exscan": rank * (rank - 1) // 2,
    }
    for round_ in range(1, 3):
        mine[:] = rank * round_
        request.Start()
        request.Wait()
        want = sums.get(name, size * (size - 1) // 2) * round_
        if (name == "Reduce" and rank) or (name == "Exscan" and rank == 0):
            continue
        assert out.tolist() == [want] * len(out)
    request.Free()


REDUCTIONS = ("Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block", "Reduce_scatter")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("case", ["bfloat16", "float8_e5m2", "AVG", "strided"])
def test_reductions_of_dlmpis_own(comm, rng, name, case):
    """What MPI has no arithmetic for; small integers, so that every sum is exact."""
    size, rank, n = comm.size, comm.rank, 3
    if case == "AVG" and name in ("Scan", "Exscan"):
        pytest.skip("a mean of a part of the ranks has no meaning")
    dtype = getattr(torch, {"AVG": "float64", "strided": "bfloat16"}.get(case, case))
    step = 2 if case == "strided" else 1
    mine = torch.zeros(n * size * step, dtype=dtype)[::step]
    whole = not name.startswith("Reduce_scatter")
    out = torch.zeros((n * size if whole else n) * step, dtype=dtype)[::step]
    extra = {"op": dlmpi.AVG} if case == "AVG" else {}
    root = {"root": size - 1} if name == "Reduce" else {}
    request = getattr(comm, f"{name}_init")(mine, out, **extra, **root)
    for _ in range(3):
        drawn = rng.integers(0, 3, (size, n * size)).astype(float)  # the same on every rank
        mine[:] = torch.from_numpy(drawn[rank]).to(dtype)
        out[:] = 64
        request.Start()
        assert request != MPI.REQUEST_NULL
        request.Wait()
        assert request == MPI.REQUEST_NULL
        want = {"Scan": drawn[: rank + 1], "Exscan": drawn[:rank]}.get(name, drawn).sum(0)
        want = want / size if case == "AVG" else want
        want = want if whole else want[n * rank : n * rank + n]
        if (name == "Reduce" and rank != size - 1) or (name == "Exscan" and rank == 0):
            want = np.full(len(out), 64.0)
        got = out.to(torch.float64)
        assert np.allclose(got.numpy(), want, rtol=1e-12)
    request.Free()
    with pytest.raises(MPI.Exception):
        request.Start()


def test_own_reductions_start_in_any_order_and_by_startall(comm):
    """Each has a context of its own; stock `Startall` raises, as nothing would be sent."""
    pairs = [[torch.zeros(4, dtype=torch.bfloat16) for _ in range(2)] for _ in range(3)]
    requests = [comm.Allreduce_init(*pair) for pair in pairs]
    plain_out = torch.zeros(4)
    requests.append(comm.Allreduce_init(torch.ones(4), plain_out))
    assert all(isinstance(request, MPI.Prequest) for request in requests)
    turned = requests[comm.rank % 4 :] + requests[: comm.rank % 4]
    for round_ in range(1, 3):
        for i, (mine, _) in enumerate(pairs):
            mine[:] = (i + 1) * round_
        version = plain_out._version
        MPI.Prequest.Startall(turned)
        with pytest.raises(MPI.Exception):
            requests[0].Start()
        MPI.Request.Waitall(requests)
        for i, (_, out) in enumerate(pairs):
            assert out.tolist() == [comm.size * (i + 1) * round_] * 4
        assert plain_out.tolist() == [comm.size] * 4
        assert plain_out._version > version
    with pytest.raises(PLAIN.Exception):
        PLAIN.Prequest.Startall(requests[:1])
    for request in requests:
        request.Free()


@pytest.mark.parametrize("kind", [list, np.array])
def test_counts_are_those_of_the_creation(comm, kind):
    counts = kind([2] * comm.size)
    mine, out = (torch.ones(2 * n, dtype=torch.bfloat16) for n in (comm.size, 1))
    request = comm.Reduce_scatter_init(mine, out, counts)
    counts[0] = 1
    request.Start()
    request.Wait()
    assert out.tolist() == [comm.size] * 2
    request.Free()


def test_partitioned(comm, make):
    size, rank = comm.size, comm.rank
    to, source = (rank + 1) % size, (rank - 1) % size
    out, mine = make(12), make(12)
    send = comm.Psend_init(mine, 4, to, 3)
    receive = comm.Precv_init([out, 3], 4, source, 3)
    for round_ in range(2):
        MPI.Prequest.Startall([send, receive])
        for partition in range(4):
            mine[3 * partition : 3 * partition + 3] = 10 * rank + partition + round_
            send.Pready(partition)
        while not receive.Parrived(3):
            pass
        MPI.Request.Waitall([send, receive])
        assert listed(out) == [10 * source + i // 3 + round_ for i in range(12)]
    send.Free()
    receive.Free()


def test_what_cannot_be_is_refused(comm):
    half = torch.zeros(4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no arithmetic for bfloat16"):
        dlmpi.wrap(comm.Dup(), collectives="mpi").Allreduce_init(half, half.clone())
    with pytest.raises(ValueError, match=r"dlmpi\.AVG"):
        dlmpi.wrap(comm.Dup(), collectives="mpi").Allreduce_init(half, half.clone(), dlmpi.AVG)
    for create in (comm.Send_init, comm.Recv_init):
        with pytest.raises(ValueError, match="buf"):
            create([torch.zeros(3, 4).t(), 13], comm.rank)
        with pytest.raises(ValueError, match="buf"):
            create([np.zeros(8)[::2], 2, 3], comm.rank)
        with pytest.raises(ValueError, match="buf"):
            create([np.zeros(3), 4], comm.rank)
        create("not looked at", MPI.PROC_NULL).Free()
    with pytest.raises(ValueError, match="buf"):
        comm.Psend_init([half, 2], 3, comm.rank)
    with pytest.raises(ValueError, match="recvbuf"):
        comm.Allgather_init(np.zeros(2), [np.zeros(2 * comm.size), 3])


@pytest.mark.parametrize("spread", [True, False])
def test_elements_that_travel_as_bytes_have_counts_of_their_own(comm, rng, spread):
    """Records of 16 bytes: counts and displacements are records, whatever carries them."""
    record = np.dtype([("number", "i8"), ("value", "f8")])
    size, rank = comm.size, comm.rank
    counts = [1] * size if spread else [1 + r % 3 for r in range(size)]
    displs = [0, *np.cumsum(counts)[:-1].tolist()] if spread else [2 + 4 * r for r in range(size)]
    mine, out = np.zeros(counts[rank], record), np.zeros(size if spread else 6 * size, record)
    request = comm.Allgatherv_init(mine, out if spread else [out, (counts, displs)])
    for _ in range(2):
        drawn = rng.integers(1, 1000, (size, 3))  # the same on every rank
        mine["number"], mine["value"] = (drawn[rank, : len(mine)], 0.5)
        out["number"] = -1
        request.Start()
        request.Wait()
        want = np.full(len(out), -1)
        for r in range(size):
            want[displs[r] : displs[r] + counts[r]] = drawn[r, : counts[r]]
        assert out["number"].tolist() == want.tolist()
        assert np.all(out["value"][want > 0] == 0.5)
    request.Free()


def test_records_beyond_the_tensor_are_refused(comm):
    out = np.zeros(comm.size, "i8,f8")
    with pytest.raises(ValueError, match="recvbuf"):
        comm.Allgatherv_init(out[:1], [out, ([2] * comm.size, None)])
