"""A pipeline over MPI: each rank holds one stage of a model, batches flow through in pieces (1F1B).

    mpiexec -n 2 python -m dlmpi run examples/torch/pipeline.py

Activations go forward and gradients back as messages between neighbours, several under way at
once. Every rank also trains the whole model alone; the losses, and the parameters of each rank's
stage, must agree.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import TOLERANCE, compare, parser, process_group, train
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, PIECES, STEPS, SEED = 20, 32, 8, 25, 7


def new_stages(count: int) -> torch.nn.Sequential:
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count))
    )


def data(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * SEED + step)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, x.roll(1, dims=1).tanh() / 2


def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().mean()


def train_in_pipeline(module: torch.nn.Module, rank: int, size: int) -> list[float]:
    """Train this rank's stage; return the losses, which only the last rank sees, on every rank."""
    stage = PipelineStage(module, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=PIECES, loss_fn=loss_of)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = torch.zeros(STEPS, dtype=torch.float64)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, target = data(step)
        pieces: list[torch.Tensor] = []
        inputs = (x,) if rank == 0 else ()
        last = {"target": target, "losses": pieces} if rank == size - 1 else {}
        schedule.step(*inputs, **last)
        optimizer.step()
        if pieces:
            losses[step] = torch.stack(pieces).mean()
    dist.broadcast(losses, src=size - 1)
    return losses.tolist()


def main() -> None:
    options = parser(__doc__).parse_args()
    with process_group(options.backend) as (rank, size):
        mine = new_stages(size)[rank]
        losses = train_in_pipeline(mine, rank, size)
        alone = new_stages(size)
        reference = train(
            alone,
            lambda model, step: loss_of(model(data(step)[0]), data(step)[1]),
            STEPS,
            torch.Tensor.item,
        )
        compare("loss", losses, reference, TOLERANCE)
        for ours, its in zip(mine.parameters(), alone[rank].parameters(), strict=True):
            torch.testing.assert_close(ours, its, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    main()
