"""Tensor parallelism over MPI with DTensor: the matrices of one model lie split over the ranks.

    mpiexec -n 2 python -m dlmpi run examples/torch/tensor_parallel.py

The first matrix is split by columns, the second by rows, so a step costs one all_reduce forward and
one backward. The data are the same on all ranks. Before that a DTensor goes through its placements,
each a collective of its own. Every rank also trains the whole model alone; losses and parameters
must agree.
"""

from __future__ import annotations

import torch
from common import TOLERANCE, compare, parser, process_group, train
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, BATCH, STEPS, SEED = 24, 32, 40, 5
PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def new_model() -> torch.nn.Module:
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 48), torch.nn.Tanh(), torch.nn.Linear(48, WIDTH)
    )


def loss(model: torch.nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * SEED + step)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return (model(x) - x.roll(1, dims=1).sin()).square().mean()


def check_placements(mesh: DeviceMesh, rank: int, size: int) -> None:
    """Whole numbers through every change of placement."""
    whole = torch.arange(48.0 * 24).reshape(48, 24)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    if not torch.equal(columns.to_local(), whole.chunk(size, dim=1)[rank]):
        raise SystemExit("FAILED: rows did not become columns")
    if not torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole):
        raise SystemExit("FAILED: columns did not become whole")
    parts = DTensor.from_local(whole * (rank + 1), mesh, [Partial()])
    total = whole * sum(range(1, size + 1))
    if not torch.equal(parts.redistribute(mesh, [Replicate()]).to_local(), total):
        raise SystemExit("FAILED: parts did not add up")
    if not torch.equal(
        parts.redistribute(mesh, [Shard(0)]).to_local(), total.chunk(size, dim=0)[rank]
    ):
        raise SystemExit("FAILED: parts did not add up to rows")


def main() -> None:
    options = parser(__doc__).parse_args()
    with process_group(options.backend) as (rank, size):
        if 24 % size:
            raise SystemExit("start me on a number of ranks that divides 24")
        mesh = init_device_mesh("cpu", (size,))
        check_placements(mesh, rank, size)

        model = parallelize_module(new_model(), mesh, PLAN)
        losses = train(model, loss, STEPS, torch.Tensor.item)
        alone = new_model()
        reference = train(alone, loss, STEPS, torch.Tensor.item)
        compare("loss", losses, reference, TOLERANCE)
        for mine, its in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.full_tensor(), its, rtol=1e-4, atol=1e-5)
        if rank == 0:
            print(f"rank 0 held {model[0].weight.to_local().shape[0]} of 48 columns")


if __name__ == "__main__":
    main()
