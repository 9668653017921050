"""DistributedDataParallel over MPI, on scikit-learn's digits, with torch's own sampler.

    mpiexec -n 2 python -m dlmpi run examples/torch/ddp.py [--compress bfloat16]

Nothing here is dlmpi's but the name of the backend, and the hook with `--compress`: gradients then
travel in 16 bits and are added up in float32. Any number of ranks will do. Every rank also trains
alone on whole batches; the curves must agree, all ranks must end with the same weights, and the
model must reach TARGET_ACCURACY on images that it never saw.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from common import TOLERANCE, compare, mean_over_ranks, parser, process_group, train
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dlmpi.torch import hooks

TARGET_ACCURACY = 0.95
EPOCHS, BATCH, SEED = 12, 120, 1
# A gradient is rounded twice to a type of 8 significant bits, or 11.
TOLERANCES = {None: TOLERANCE, "bfloat16": 5e-4, "float16": 1e-4}


def digits() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(labels))
    x = torch.from_numpy((images[order] / 16).astype(np.float32))
    y = torch.from_numpy(labels[order].astype(np.int64))
    cut = len(y) // 5
    return TensorDataset(x[cut:], y[cut:]), TensorDataset(x[:cut], y[:cut])


def new_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def samplers(data: TensorDataset, ranks: range, size: int) -> list[DistributedSampler]:
    return [DistributedSampler(data, size, rank, seed=SEED, drop_last=True) for rank in ranks]


def batches(data: TensorDataset, ranks: range, size: int) -> list[tuple[torch.Tensor, ...]]:
    """The batches of some ranks, joined, for all epochs."""
    found = []
    for epoch in range(EPOCHS):
        loaders = []
        for sampler in samplers(data, ranks, size):
            sampler.set_epoch(epoch)
            loader = DataLoader(data, BATCH // size, sampler=sampler, drop_last=True)
            loaders.append(loader)
        for parts in zip(*loaders, strict=True):
            found.append(tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    return found


def accuracy(model: torch.nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).double().mean().item()


def check_same_everywhere(model: torch.nn.Module) -> None:
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    lowest, highest = weights.clone(), weights.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    if not torch.equal(lowest, highest):
        raise SystemExit("FAILED: the ranks ended with different weights")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--compress", choices=["bfloat16", "float16"])
    options = arguments.parse_args()
    with process_group(options.backend) as (rank, size):
        data, unseen = digits()
        # Different everywhere, until DDP gives out rank 0's.
        model = DistributedDataParallel(new_model(SEED + rank), bucket_cap_mb=0.01)
        if options.compress:
            hooks.compress(model, getattr(torch, options.compress))

        def loss_of(mine: list[tuple[torch.Tensor, ...]]):
            return lambda model, step: cross_entropy(model(mine[step][0]), mine[step][1])

        mine = batches(data, range(rank, rank + 1), size)
        losses = train(model, loss_of(mine), len(mine), mean_over_ranks)
        whole = batches(data, range(size), size)
        reference = train(new_model(SEED), loss_of(whole), len(whole), torch.Tensor.item)

        compare("loss", losses, reference, TOLERANCES[options.compress])
        check_same_everywhere(model)
        reached = accuracy(model.module, unseen)
        if rank == 0:
            print(f"accuracy on {len(unseen)} unseen images: {reached:.1%}")
        if reached < TARGET_ACCURACY:
            raise SystemExit(f"FAILED: accuracy {reached:.1%} is below {TARGET_ACCURACY:.0%}")


if __name__ == "__main__":
    main()
