"""What torch builds on a process group to train and to save: each compared with one process that
does all of it alone, in float64. `examples/torch` do the same for DDP, FSDP2 and others."""

from __future__ import annotations

import copy
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import load, save
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dlmpi import MPI
from support.process_groups import RANK, SIZE, start

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE % 2, reason="two ranks and four are enough"),
]
STEPS, ROWS, WIDTH = 4, 8, 10


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


def model(seed):
    generator = torch.Generator().manual_seed(seed)
    layers = [torch.nn.Linear(WIDTH, 17), torch.nn.Tanh(), torch.nn.Linear(17, 3)]
    made = torch.nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return made


def batches(seed):
    """For each step the rows of all ranks, which all know."""
    generator = torch.Generator().manual_seed(seed + 1)
    shape = (STEPS, SIZE, ROWS)
    x = torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64)
    y = torch.randint(3, shape, generator=generator)
    return zip(x, y, strict=True)


def train(module, optimizer, rows, seed):
    losses = []
    for x, y in batches(seed):
        optimizer.zero_grad()
        logits = module(x[rows].reshape(-1, WIDTH))
        loss = torch.nn.functional.cross_entropy(logits, y[rows].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def alone(seed):
    """The losses and the parameters of one process that has all rows."""
    module = model(seed)
    losses = train(module, torch.optim.Adam(module.parameters(), 0.05), slice(None), seed)
    return losses, module


def compare(losses, parameters, seed):
    expected, module = alone(seed)
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    torch.testing.assert_close(losses, expected)
    for mine, its in zip(parameters, module.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), its.detach())


@pytest.fixture
def folder():
    """Rank 0's, for all."""
    with tempfile.TemporaryDirectory() as mine:
        yield MPI.COMM_WORLD.bcast(mine)
        MPI.COMM_WORLD.Barrier()


@pytest.fixture
def seed(rng):
    return int(rng.integers(1 << 30))


def sharded(mesh, seed):
    module = model(seed)
    fully_shard(module[0], mesh=mesh)
    return fully_shard(module, mesh=mesh)


def hybrid():
    return init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("replicas", "shards"))


def test_hybrid_shards(seed):
    """Parameters spread over one dimension of the mesh, and kept alike along the other."""
    module = sharded(hybrid(), seed)
    losses = train(module, torch.optim.Adam(module.parameters(), 0.05), RANK, seed)
    compare(losses, [p.full_tensor() for p in module.parameters()], seed)


def test_optimizer_states_of_zero(seed):
    module = DistributedDataParallel(model(seed))
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=0.05)
    losses = train(module, optimizer, RANK, seed)
    compare(losses, module.parameters(), seed)
    held = sum(state.numel() for one in optimizer.optim.state.values() for state in one.values())
    total = 2 * sum(parameter.numel() for parameter in module.parameters())
    assert held < total
    optimizer.consolidate_state_dict(to=SIZE - 1)
    if RANK == SIZE - 1:
        assert len(optimizer.state_dict()["state"]) == len(list(module.parameters()))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_checkpoints(seed, folder):
    """What one layout of ranks has saved, another one loads, and so does one process."""
    mesh = init_device_mesh("cpu", (SIZE,))
    module = sharded(mesh, seed)
    train(module, torch.optim.Adam(module.parameters(), 0.05), RANK, seed)
    save(get_model_state_dict(module), checkpoint_id=folder)
    other = sharded(hybrid(), seed + 1)
    state = get_model_state_dict(other)
    load(state, checkpoint_id=folder)
    set_model_state_dict(other, state)
    whole = copy.deepcopy(model(seed + 2).state_dict())
    load(whole, checkpoint_id=folder, no_dist=True)
    for name, want in module.named_parameters():
        expected = want.full_tensor()
        assert torch.equal(other.get_parameter(name).full_tensor(), expected)
        assert torch.equal(whole[name], expected)
