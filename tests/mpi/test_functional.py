"""Functions that return a new tensor: right on every rank, of the framework given, with nothing of
the caller's changed. JAX, TensorFlow and others have theirs in the conformance table."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()

FRAMEWORKS = {
    "numpy": (lambda values: np.array(values, "f4"), np.ndarray),
    "numpy bfloat16": (lambda values: np.array(values).astype(ml_dtypes.bfloat16), np.ndarray),
    "torch": (lambda values: torch.tensor(values, dtype=torch.float32), torch.Tensor),
    "torch bfloat16": (lambda values: torch.tensor(values, dtype=torch.bfloat16), torch.Tensor),
    "torch transposed": (
        lambda values: torch.from_numpy(np.asfortranarray(np.array(values, "f4"))),
        torch.Tensor,
    ),
}


@pytest.fixture(params=FRAMEWORKS)
def make(request):
    return FRAMEWORKS[request.param]


def check(result, want, like, kind):
    """Right values, of the right kind, in memory of its own."""
    assert type(result) is kind
    assert result.dtype == like.dtype
    assert tuple(result.shape) == np.shape(want)
    assert result.tolist() == np.asarray(want, float).tolist()


def mine(rank, shape=(2, 3)):
    """Small integers, exact in every dtype here."""
    return (np.arange(np.prod(shape)).reshape(shape) + 10 * rank).tolist()


ALL = np.array([mine(rank) for rank in range(SIZE)])


def test_reductions(make):
    new, kind = make
    x = new(mine(RANK))
    before = x.tolist()
    check(dlmpi.allreduce(x), ALL.sum(0), x, kind)
    check(dlmpi.allreduce(x, MPI.MAX), ALL.max(0), x, kind)
    check(dlmpi.scan(x), ALL[: RANK + 1].sum(0), x, kind)
    below = dlmpi.exscan(x)
    if RANK:
        check(below, ALL[:RANK].sum(0), x, kind)
    else:
        assert below is None
    for root in range(SIZE):
        reduced = dlmpi.reduce(x, root=root)
        if root == RANK:
            check(reduced, ALL.sum(0), x, kind)
        else:
            assert reduced is None
    assert x.tolist() == before


def test_average(make):
    new, kind = make
    x = new([4.0 * RANK] * 3)
    check(dlmpi.allreduce(x, dlmpi.AVG), [2.0 * (SIZE - 1)] * 3, x, kind)


def test_movements(make):
    new, kind = make
    x = new(mine(RANK))
    check(dlmpi.allgather(x), ALL, x, kind)
    for root in range(SIZE):
        check(dlmpi.bcast(x, root), ALL[root], x, kind)
        gathered = dlmpi.gather(x, root)
        if root == RANK:
            check(gathered, ALL, x, kind)
        else:
            assert gathered is None
        blocks = new(ALL.tolist())
        check(dlmpi.scatter(blocks if root == RANK else x, root), ALL[RANK], x, kind)
    assert x.tolist() == mine(RANK)


def test_blocks(make):
    new, kind = make
    every = np.array([[mine(s + 2 * r, (2,)) for r in range(SIZE)] for s in range(SIZE)])
    x = new(every[RANK].tolist())
    check(dlmpi.alltoall(x), every[:, RANK], x, kind)
    check(dlmpi.reduce_scatter(x), every[:, RANK].sum(0), x, kind)


def test_messages(make):
    new, kind = make
    x, right, left = new(mine(RANK)), (RANK + 1) % SIZE, (RANK - 1) % SIZE
    check(dlmpi.sendrecv(x, right, source=left), ALL[left], x, kind)
    if SIZE > 1:
        if RANK == 0:
            dlmpi.send(x, 1, 7)
        elif RANK == 1:
            status = MPI.Status()
            check(dlmpi.recv(x, 0, 7, status=status), ALL[0], x, kind)
            assert status.Get_source() == 0
    assert x.tolist() == mine(RANK)


def test_the_result_is_new_memory_on_every_rank(make):
    new, _ = make
    x = new([1.0, 2.0])
    result = dlmpi.bcast(x)
    x += 1
    assert result.tolist() == [1, 2]


def test_scalars_and_empty_ones():
    assert dlmpi.allreduce(np.float64(2)) == 2 * SIZE
    assert isinstance(dlmpi.allreduce(np.float64(2)), np.float64)
    assert dlmpi.allgather(torch.tensor(3)).tolist() == [3] * SIZE
    assert dlmpi.allgather(np.zeros((0, 3))).shape == (SIZE, 0, 3)


def test_buffers_of_the_standard_library():
    assert dlmpi.allgather(b"ab") == b"ab" * SIZE
    assert dlmpi.bcast(bytearray(b"abc")) == bytearray(b"abc")
    result = dlmpi.allreduce(array.array("d", [1.0, RANK]))
    assert result == array.array("d", [SIZE, SIZE * (SIZE - 1) / 2])
    assert isinstance(result, array.array)


def test_a_communicator_may_be_given():
    assert dlmpi.allreduce(np.ones(2), comm=MPI.COMM_SELF).tolist() == [1, 1]
    half = COMM.Split(RANK % 2)
    assert dlmpi.allreduce(np.ones(1), comm=half).tolist() == [half.Get_size()]
    half.Free()


def test_gradients_are_not_followed():
    x = torch.ones(2, requires_grad=True)
    result = dlmpi.allreduce(x)
    assert not result.requires_grad
    assert result.tolist() == [SIZE, SIZE]


@pytest.mark.parametrize("call", [dlmpi.alltoall, dlmpi.reduce_scatter, dlmpi.scatter])
def test_a_first_axis_that_does_not_count_ranks_is_refused(call):
    with pytest.raises(ValueError, match="first axis"):
        call(np.zeros((SIZE + 1, 2)), comm=MPI.COMM_SELF)


def test_what_cannot_be_made_is_refused_in_words():
    with pytest.raises(TypeError, match=r"expected a tensor|not known"):
        dlmpi.allreduce(object(), comm=MPI.COMM_SELF)
    with pytest.raises(BufferError, match="meta"):
        dlmpi.allreduce(torch.ones(2, device="meta"), comm=MPI.COMM_SELF)
    with pytest.raises(ValueError, match="bool"):
        dlmpi.allreduce(np.ones(2, bool), comm=MPI.COMM_SELF)


def test_a_refusal_on_one_rank_reaches_all():
    """A checked collective: nobody waits for a rank that could not take part."""
    if SIZE == 1:
        pytest.skip("needs another rank")
    # The first collectives of a communicator are all checked, later ones by sample.
    fresh = COMM.Dup()
    with pytest.raises((ValueError, RuntimeError)):
        dlmpi.alltoall(np.zeros((SIZE + (RANK == 0), 2)), comm=fresh)
    assert dlmpi.allreduce(np.ones(1), comm=fresh).tolist() == [SIZE]
    fresh.Free()
