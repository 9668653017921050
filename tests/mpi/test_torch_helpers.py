"""Plain loops: modules that start the same, gradients that come out as the mean of all ranks'."""

from __future__ import annotations

import pytest
import torch

from dlmpi import MPI
from dlmpi.torch.helpers import average_gradients, broadcast_module

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()


class Model(torch.nn.Module):
    """Many small tensors and a few large ones, of several dtypes and layouts; one is shared."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.small = torch.nn.ModuleList(torch.nn.Linear(3, i % 5) for i in range(40))
        self.large = torch.nn.Parameter(torch.randn(700, 513).T)
        self.narrow = torch.nn.Parameter(torch.randn(9, 5).to(torch.bfloat16))
        self.wide = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
        self.images = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm1d(6)  # its buffers: two of float32, a count of int64
        self.norm.num_batches_tracked += seed
        self.register_buffer("mask", torch.rand(17) < 0.5)
        self.tied = self.small[3]
        self.frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("root", range(SIZE))
def test_modules_start_as_the_roots(root):
    model = Model(seed=10 + RANK)
    places = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    broadcast_module(model, root)
    assert equal(state(model), state(Model(seed=10 + root)))
    assert places == {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}


def test_different_modules_are_refused_everywhere():
    wide = 5 if RANK == SIZE - 1 and SIZE > 1 else 4
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, wide))
    before = state(model)
    if SIZE > 1:
        words = rf"rank 0 has 1\.weight \(4, 3\) torch\.float32, rank {SIZE - 1} has 1\.weight \(5"
        with pytest.raises(ValueError, match=words):
            broadcast_module(model)
        more = torch.nn.Sequential(*[torch.nn.Linear(1, 1)] * (1 + (RANK > 0)))
        more.extra = torch.nn.Parameter(torch.ones(1)) if RANK else None
        with pytest.raises(ValueError, match=r"rank 0 has .*nothing there|rank 1 has extra"):
            broadcast_module(more)
    assert equal(state(model), before)
    with pytest.raises(ValueError, match=f"root: got {SIZE}"):
        broadcast_module(model, SIZE)


SHAPES = ((), (0,), (1,), (33, 7), (600, 1024), (5,))


def parameters(rng, dtype):
    """The same parameters on all ranks; the gradients of every rank, as whole numbers."""
    made = [torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in SHAPES]
    everybody = [
        [torch.from_numpy(rng.integers(-9, 10, shape)).double() for shape in SHAPES]
        for _ in range(SIZE)
    ]
    for parameter, gradient in zip(made, everybody[RANK], strict=True):
        parameter.grad = gradient.to(dtype)
    return made, [sum(ranks) / SIZE for ranks in zip(*everybody, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_mean_of_gradients(rng, dtype):
    made, means = parameters(rng, dtype)
    places = [parameter.grad.data_ptr() for parameter in made]
    average_gradients(made)
    for parameter, mean, place in zip(made, means, places, strict=True):
        # One rounding of an exact sum; float32 divides by multiplying, half a unit off at most.
        tolerance = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(parameter.grad.double(), mean, rtol=tolerance, atol=0)
        assert parameter.grad.data_ptr() == place


@pytest.mark.parametrize("travel", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_travel_narrower(rng, travel):
    made, means = parameters(rng, torch.float32)
    average_gradients(made, dtype=travel)
    for parameter, mean in zip(made, means, strict=True):
        assert parameter.grad.dtype == torch.float32
        # Whole numbers up to 9 are exact in both types, and so is their sum in float32.
        assert torch.equal(parameter.grad, mean.float().to(travel).float())


def test_a_gradient_that_some_ranks_lack_counts_as_zero():
    first, second, third, fourth = (torch.zeros(3, requires_grad=True) for _ in range(4))
    fourth.requires_grad_(False)
    if RANK == SIZE - 1:
        first.grad = torch.full((3,), float(SIZE))
    third.grad = torch.full((3,), float(RANK))
    average_gradients([first, second, third, fourth])
    assert first.grad.tolist() == [1.0] * 3
    assert second.grad is None
    assert third.grad.tolist() == [(SIZE - 1) / 2] * 3
    assert fourth.grad is None


def test_a_plain_loop_learns_as_one_process(rng):
    x, y = (torch.from_numpy(rng.standard_normal((4 * SIZE, n))) for n in (6, 2))
    torch.manual_seed(RANK)
    model = torch.nn.Linear(6, 2, dtype=torch.float64)
    broadcast_module(model)
    torch.manual_seed(0)
    alone = torch.nn.Linear(6, 2, dtype=torch.float64)
    for one, images, labels in ((model, x[RANK::SIZE], y[RANK::SIZE]), (alone, x, y)):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(one(images), labels).backward()
            if one is model:
                average_gradients(one)
            optimizer.step()
    for mine, its in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


def test_a_subset_of_ranks(rng):
    group = COMM.Split(RANK % 2)
    parameter = torch.zeros(2, requires_grad=True)
    parameter.grad = torch.full((2,), float(RANK))
    average_gradients([parameter], group)
    mates = range(RANK % 2, SIZE, 2)
    assert parameter.grad.tolist() == [sum(mates) / len(mates)] * 2
    group.Free()


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"parameter 0: its gradient is .*sparse"):
        average_gradients(table)
