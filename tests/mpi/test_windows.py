"""Windows over tensors, and one-sided operations with them. Oracle: closed forms of the rank."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

MAKERS = {
    "numpy float64": lambda n: np.full(n, -1.0),
    "torch float32": lambda n: torch.full((n,), -1.0),
    "torch bfloat16": lambda n: torch.full((n,), -1.0, dtype=torch.bfloat16),
    "torch int64": lambda n: torch.full((n,), -1),
    "torch float8": lambda n: torch.full((n,), -1.0).to(torch.float8_e4m3fn),
}


def filled(make, n, value):
    tensor = make(n)
    if isinstance(tensor, torch.Tensor):
        return torch.full((n,), float(value)).to(tensor.dtype)
    tensor[:] = value
    return tensor


def listed(tensor):
    return tensor.double().tolist() if isinstance(tensor, torch.Tensor) else tensor.tolist()


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def window(memory, comm):
    itemsize = memory.itemsize if isinstance(memory, np.ndarray) else memory.element_size()
    win = MPI.Win.Create(memory, itemsize, comm=comm)
    assert isinstance(win, MPI.Win)
    return win


def test_put_and_get(comm, make):
    """Each rank writes its number to the next one's window; temporaries are held."""
    size, rank = comm.size, comm.rank
    to, source = (rank + 1) % size, (rank - 1) % size
    memory = make(5)
    win = window(memory, comm)
    win.Fence()
    win.Put([filled(make, 9, rank), (3, 2)], to, 1)
    gc.collect()
    win.Fence()
    assert listed(memory) == [-1, source, source, source, -1]
    out = make(5)
    win.Get(out, to)
    win.Fence()
    assert listed(out) == [-1, rank, rank, rank, -1]
    request = win.Rget(out, rank)
    MPI.Request.Waitall([request])
    assert listed(out) == [-1, source, source, source, -1]
    win.Fence()
    win.Free()
    del memory


def test_get_of_torch_is_heard(comm):
    win = window(torch.arange(4.0), comm)
    out = torch.zeros(4)
    win.Lock(comm.rank, MPI.LOCK_SHARED)
    before = out._version
    win.Get(out, comm.rank)
    win.Flush(comm.rank)
    assert out._version > before
    assert out.tolist() == [0, 1, 2, 3]
    win.Unlock(comm.rank)
    win.Free()


def test_accumulate(comm):
    size, rank = comm.size, comm.rank
    for make in (np.zeros, lambda n: torch.zeros(n, dtype=torch.float64)):
        memory, result = make(3), make(3)
        win = window(memory, comm)
        win.Fence()
        for r in range(size):
            win.Accumulate(filled(make, 3, rank + 1), r)
        win.Fence()
        assert listed(memory) == [size * (size + 1) / 2] * 3
        comm.Barrier()  # before others add to what is looked at here
        win.Lock(0)
        win.Get_accumulate(filled(make, 3, 1), result, 0, op=MPI.SUM)
        win.Unlock(0)
        win.Fence()
        if rank == 0:
            assert listed(memory) == [size * (size + 1) / 2 + size] * 3
        assert listed(result)[0] in [size * (size + 1) / 2 + i for i in range(size)]
        win.Free()


def test_a_shared_counter(comm):
    """Fetch_and_op gives every rank other numbers, none twice."""
    counter = torch.zeros(1, dtype=torch.int64)
    win = window(counter, comm)
    one, got, drawn = torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), []
    for _ in range(5):
        win.Lock(0)
        win.Fetch_and_op(one, got, 0)
        win.Unlock(0)
        drawn.append(int(got))
    assert sorted(number for some in comm.allgather(drawn) for number in some) == list(
        range(5 * comm.size)
    )
    win.Fence()
    new, compare = torch.full((1,), 7), torch.full((1,), 5 * comm.size)
    if comm.rank == 0:
        win.Lock(0)
        win.Compare_and_swap(new, compare, got, 0)
        win.Unlock(0)
        assert (int(got), int(counter)) == (5 * comm.size, 7)
    win.Fence()
    win.Free()


def test_what_cannot_be_is_refused(comm):
    win = window(np.zeros(4), comm)
    win.Fence()
    half = torch.zeros(3, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no arithmetic for bfloat16"):
        win.Accumulate(half, comm.rank)
    with pytest.raises(ValueError, match="origin"):
        win.Put([np.zeros(3), 4], comm.rank)
    with pytest.raises(BufferError, match="gaps"):
        win.Put(np.zeros(8)[::2], comm.rank)
    win.Put("not looked at", MPI.PROC_NULL)
    win.Fence()
    win.Free()
    with pytest.raises(BufferError, match="gaps"):
        MPI.Win.Create(np.zeros(8)[::2], 8, comm=MPI.COMM_SELF)


def test_attached_memory(comm):
    memory = torch.arange(3.0)
    win = MPI.Win.Create_dynamic(comm=comm)
    win.Attach(memory)
    out = torch.zeros(3)
    win.Lock(comm.rank)
    win.Get(out, comm.rank, MPI.Get_address(memory.numpy()))
    win.Unlock(comm.rank)
    assert out.tolist() == [0, 1, 2]
    win.Detach(memory)
    win.Free()


def test_stand_ins_are_the_classes_of_stock_objects():
    assert isinstance(MPI.WIN_NULL, MPI.Win)
    assert isinstance(MPI.FILE_NULL, MPI.File)
    assert not isinstance(MPI.WIN_NULL, type("Mine", (MPI.Win,), {}))
