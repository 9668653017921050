"""Autograd through communication: values against integers, gradients against numerical ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import dlmpi
from dlmpi import MPI
from dlmpi.torch import nn
from support.lockstep import Joined, Shared

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def rows_for(source, dest):
    """How many rows go where in an uneven exchange: none from a rank to itself."""
    return (source + 2 * dest) % 3 if source != dest else 0


def uneven(x):
    gets = [rows_for(source, RANK) for source in range(SIZE)]
    gives = [rows_for(RANK, dest) for dest in range(SIZE)]
    return nn.all_to_all(x[: sum(gives)], gets, gives)


def one_message(x):
    """The last rank gets what rank 0 has; everybody returns something of its own as well."""
    if SIZE == 1:
        return x * 2
    if RANK == 0:
        return x * 2 + nn.send(x, SIZE - 1, tag=3)
    return x + nn.recv(x, 0, 3) if RANK == SIZE - 1 else x


LINEAR = {
    "all_reduce": nn.all_reduce,
    "all_reduce mean": lambda x: nn.all_reduce(x, dlmpi.AVG),
    "all_gather": nn.all_gather,
    "all_gather last": lambda x: nn.all_gather(x, dim=-1),
    "all_gather scalar": lambda x: nn.all_gather(x.sum()),
    "reduce_scatter": nn.reduce_scatter,
    "reduce_scatter mean": lambda x: nn.reduce_scatter(x.T, "AVG", dim=1),
    "all_to_all": nn.all_to_all,
    "all_to_all uneven": uneven,
    "broadcast": lambda x: nn.broadcast(x, SIZE - 1),
    "ring": lambda x: nn.sendrecv(x, RIGHT, LEFT),
}
OTHER = {
    "all_reduce max": lambda x: nn.all_reduce(x, MPI.MAX),
    "all_reduce min": lambda x: nn.all_reduce(x, torch.distributed.ReduceOp.MIN),
    "products of two": lambda x: nn.all_reduce(x) * nn.sendrecv(x.sin(), RIGHT, LEFT),
}
# At least as many rows as an uneven exchange gives.
ROWS = 2 * SIZE


def whole(rng, dtype):
    values = rng.standard_normal((SIZE, ROWS, 2))
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(values.shape)
    return torch.from_numpy(values).to(dtype).requires_grad_()


def in_step(operation):
    return lambda x: Joined.apply(operation(Shared.apply(x)[RANK]))


@pytest.mark.parametrize("name", [*LINEAR, *OTHER])
def test_gradients(rng, name):
    torch.manual_seed(0)  # the fast mode draws directions: the same on all ranks
    function = in_step({**LINEAR, **OTHER}[name])
    x = whole(rng, torch.float64)
    assert gradcheck(function, x, fast_mode=True)
    assert gradgradcheck(function, x, fast_mode=True)


@pytest.mark.parametrize("name", ["all_reduce mean", "all_gather", "reduce_scatter", "ring"])
def test_gradients_of_complex_numbers(rng, name):
    torch.manual_seed(0)
    assert gradcheck(in_step(LINEAR[name]), whole(rng, torch.complex128), fast_mode=True)


def test_gradients_of_a_message(rng):
    torch.manual_seed(0)
    assert gradcheck(in_step(one_message), whole(rng, torch.float64), fast_mode=True)


def test_a_message_has_no_second_derivative(rng):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad((one_message(x) ** 2).sum(), x, create_graph=True)
    if SIZE > 1 and RANK in (0, SIZE - 1):
        with pytest.raises(RuntimeError, match="once_differentiable"):
            grad.sum().backward()


DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [0, 1, 7, 5000])
def test_values(rng, dtype, columns):
    """Small integers: exact in every dtype."""
    everybody = torch.from_numpy(rng.integers(-8, 9, (SIZE, SIZE, columns)))
    x = everybody[RANK].to(dtype)
    before = x.clone()
    total = everybody.sum(0).to(dtype)
    assert torch.equal(nn.all_reduce(x), total)
    assert torch.equal(nn.all_reduce(x, "MAX"), everybody.amax(0).to(dtype))
    assert torch.equal(nn.all_gather(x), everybody.flatten(0, 1).to(dtype))
    assert torch.equal(nn.all_gather(x.T, dim=1), everybody.flatten(0, 1).T.to(dtype))
    assert torch.equal(nn.reduce_scatter(x), total[RANK : RANK + 1])
    assert torch.equal(nn.all_to_all(x), everybody[:, RANK].to(dtype))
    assert torch.equal(nn.broadcast(x, SIZE - 1), everybody[-1].to(dtype))
    assert torch.equal(nn.sendrecv(x, RIGHT, LEFT), everybody[LEFT].to(dtype))
    assert torch.equal(x, before)


def test_an_uneven_exchange(rng):
    x = torch.arange(ROWS).reshape(-1, 1) + 100 * RANK
    want = []
    for source in range(SIZE):
        start = sum(rows_for(source, dest) for dest in range(RANK))
        want += [100 * source + start + i for i in range(rows_for(source, RANK))]
    assert uneven(x).flatten().tolist() == want


def test_ties_share_the_gradient():
    x = torch.tensor([1.0, float(RANK)], requires_grad=True)
    nn.all_reduce(x, "MAX").sum().backward()
    assert x.grad.tolist() == [1.0, float(SIZE) if RANK == SIZE - 1 else 0.0]


def test_a_subset_of_ranks_by_its_communicator():
    comm = COMM.Split(RANK % 2)
    x = torch.full((3,), float(RANK), requires_grad=True)
    y = nn.all_reduce(x, group=comm)
    assert y.tolist() == [float(sum(range(RANK % 2, SIZE, 2)))] * 3
    (y * (RANK + 1)).sum().backward()
    assert x.grad.tolist() == [float(sum(r + 1 for r in range(RANK % 2, SIZE, 2)))] * 3
    comm.Free()


def test_a_model_split_over_ranks_learns_as_the_whole(rng):
    """Columns of the first matrix and rows of the second on each rank, as in tensor parallelism."""
    a, b, x = (
        torch.from_numpy(rng.standard_normal(shape)) for shape in ((4, SIZE), (SIZE, 3), (5, 4))
    )
    mine_a, mine_b = a[:, RANK : RANK + 1].clone(), b[RANK : RANK + 1].clone()
    for tensor in (a, b, mine_a, mine_b):
        tensor.requires_grad_()
    ((x @ a).relu() @ b).square().sum().backward()

    y = nn.all_reduce((x @ mine_a).relu() @ mine_b)
    # Every rank has the same y: its share of the loss is a SIZE-th.
    (y.square().sum() / SIZE).backward()
    np.testing.assert_allclose(mine_a.grad, a.grad[:, RANK : RANK + 1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mine_b.grad, b.grad[RANK : RANK + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: nn.all_reduce(x, MPI.PROD), ValueError, "op: got .* differentiable are SUM"),
        (lambda x: nn.reduce_scatter(x, "MAX"), ValueError, "op: got MAX"),
        (lambda x: nn.reduce_scatter(torch.ones(())), ValueError, "x: its shape"),
        (lambda x: nn.all_to_all(x, [0] * SIZE, [2] * SIZE), ValueError, "input_split_sizes: thei"),
        (
            lambda x: nn.all_to_all(x, [1] * (SIZE + 1), [1] * SIZE),
            ValueError,
            "output_split_sizes",
        ),
        (lambda x: nn.send(x, SIZE), ValueError, f"dst: got {SIZE}"),
        (lambda x: nn.recv(x, -1), ValueError, "src: got -1"),
        (lambda x: nn.broadcast(x, SIZE), ValueError, f"root: got {SIZE}"),
        (lambda x: nn.all_reduce(x, group=3), TypeError, "group: expected .* got int"),
    ],
)
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call(torch.ones(SIZE, 2))
