"""The lower-case methods that are mpi4py's own, on objects that hold tensors: reductions,
neighbours, what `mprobe` and `irecv` receive. Pickled by our rules, in mpi4py's messages: plain
peers take part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI, _pickle, _pickle_reduce

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
SIZE, RANK = COMM.size, COMM.rank
LARGE = 40_001  # elements: a part by itself


def made(rank):
    """Integers, so that sums are exact in any order."""
    numbers = np.random.default_rng(rank).integers(-100, 100, LARGE)
    return {
        "torch": torch.from_numpy(numbers.copy()),
        "strided": torch.from_numpy(numbers.copy())[::3],
        "bfloat16": torch.full((LARGE,), float(rank + 1), dtype=torch.bfloat16),
        "numpy": numbers[::-1],
    }


def added(a, b):
    return {name: a[name] + b[name] for name in a}


def total(ranks):
    found = made(ranks[0])
    for rank in ranks[1:]:
        found = added(found, made(rank))
    return found


def same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert type(found[name]) is type(value)
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert bool((found[name] == value).all())
        found[name][0] = 1  # and it may be written


def test_reductions(mixed):
    everybody = list(range(SIZE))
    same(mixed.allreduce(made(RANK), op=added), total(everybody))
    for root in everybody:
        found = mixed.reduce(made(RANK), op=added, root=root)
        if root == RANK:
            same(found, total(everybody))
        else:
            assert found is None
    same(mixed.scan(made(RANK), op=added), total(everybody[: RANK + 1]))
    found = mixed.exscan(made(RANK), op=added)
    if RANK:
        same(found, total(everybody[:RANK]))
    else:
        assert found is None


def test_neighbours():
    ring = COMM.Create_cart([SIZE], periods=[True])
    before, after = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    for found, rank in zip(ring.neighbor_allgather(made(RANK)), (before, after), strict=True):
        same(found, made(rank))
    if SIZE > 2:  # else both neighbours are one rank, and the order is the library's affair
        crossed = ring.neighbor_alltoall([made(10 * RANK), made(10 * RANK + 1)])
        same(crossed[0], made(10 * before + 1))
        same(crossed[1], made(10 * after))
    ring.Free()


def test_matched_and_immediate_receives():
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sent = [COMM.isend(made(RANK), to, tag) for tag in (1, 2, 3)]
    same(COMM.mprobe(source, 1).recv(), made(source))
    same(COMM.mprobe(source, 2).irecv().wait(), made(source))
    same(COMM.irecv(1 << 22, source, 3).wait(), made(source))
    MPI.Request.waitall(sent)


def test_a_tensor_of_a_device_lands_on_the_readers_current_one(monkeypatch):
    """Simulated: host tensors say that they are of `cuda:3`."""
    moved = []
    real = torch.Tensor.to

    def to(tensor, *where):
        moved.append(where)
        return real(tensor, "cpu")

    monkeypatch.setattr(_pickle_reduce, "_device_type", lambda _: "cuda")
    monkeypatch.setattr(torch.Tensor, "to", to)
    found = COMM.allreduce(torch.full((LARGE,), RANK + 1), op=torch.add)
    assert found.tolist() == [SIZE * (SIZE + 1) // 2] * LARGE
    assert moved
    assert set(moved) == {("cuda",)}


def test_bytes_that_may_not_be_written():
    text = b"".join(memoryview(part) for part in _pickle.dump(made(3)))
    same(_pickle.loads(text), made(3))
    assert _pickle.loads(memoryview(text)[:]).keys() == made(3).keys()
