"""torch.compile over MPI: a model whose collectives are part of the graph that inductor compiles.

    mpiexec -n 2 python -m dlmpi run examples/torch/compiled.py

The hidden layer lies split over the ranks, the rows of the data too: the rows are gathered, and
each rank gets back the sums for its own (functional collectives, whose derivatives are collectives
in the same graph). Every rank also trains the whole model alone, without the compiler; losses and
parameters must agree. Inductor needs a C++ compiler.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import TOLERANCE, compare, mean_over_ranks, parser, process_group, train
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)

WIDTH, HIDDEN, BATCH, STEPS, SEED = 12, 24, 32, 40, 7


def weights() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    shapes = ((WIDTH, HIDDEN), (HIDDEN, WIDTH))
    return [torch.randn(shape, generator=generator) / 4 for shape in shapes]


def rows(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * SEED + step)
    return torch.randn(BATCH, WIDTH, generator=generator)


def wanted(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, dims=1).sin()


class Alone(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(w) for w in weights())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.first).tanh() @ self.second


class Split(torch.nn.Module):
    """The share of one rank: some columns of the first matrix, the same rows of the second."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        first, second = weights()
        self.first = torch.nn.Parameter(first.chunk(size, 1)[rank].contiguous())
        self.second = torch.nn.Parameter(second.chunk(size, 0)[rank].contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        everybodys = all_gather_tensor_autograd(x, 0, dist.group.WORLD)
        part = (everybodys @ self.first).tanh() @ self.second
        return reduce_scatter_tensor_autograd(part, "sum", 0, dist.group.WORLD)


def main() -> None:
    options = parser(__doc__).parse_args()
    with process_group(options.backend) as (rank, size):
        if BATCH % size or HIDDEN % size:
            raise SystemExit(f"start me on a number of ranks that divides {BATCH} and {HIDDEN}")

        def loss(model: torch.nn.Module, step: int) -> torch.Tensor:
            own = rows(step).chunk(size)[rank]
            # The sum over ranks is the mean over all rows.
            return (model(own) - wanted(own)).square().sum() / (BATCH * WIDTH)

        def loss_alone(model: torch.nn.Module, step: int) -> torch.Tensor:
            return (model(rows(step)) - wanted(rows(step))).square().mean()

        split = Split(rank, size)
        compiled = torch.compile(split, fullgraph=True)
        losses = train(compiled, loss, STEPS, lambda value: size * mean_over_ranks(value), 0.5)
        alone = Alone()
        reference = train(alone, loss_alone, STEPS, torch.Tensor.item, 0.5)
        compare("loss", losses, reference, TOLERANCE)
        for name, dim in (("first", 1), ("second", 0)):
            torch.testing.assert_close(
                split.get_parameter(name),
                alone.get_parameter(name).chunk(size, dim)[rank],
                rtol=1e-3,
                atol=1e-4,
                msg=lambda text, n=name: f"{n}: {text}",
            )
        if rank == 0:
            print(f"{size} ranks, compiled: losses and parameters are those of one process")


if __name__ == "__main__":
    main()
