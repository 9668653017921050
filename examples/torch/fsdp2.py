"""FSDP2 over MPI: a small transformer with parameters, gradients and momenta spread over ranks.

    mpiexec -n 2 python -m dlmpi run examples/torch/fsdp2.py

`fully_shard` gathers a layer's parameters before it runs (all_gather) and leaves each rank the mean
of its part of the gradients (reduce_scatter with AVG, which gloo once got wrong). Every rank also
trains the whole model alone; losses and final parameters must agree.
"""

from __future__ import annotations

import torch
from common import TOLERANCE, compare, mean_over_ranks, parser, process_group, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

WORDS, LENGTH, WIDTH, LAYERS = 16, 12, 32, 2
BATCH, STEPS, SEED = 24, 40, 3


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.out = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, sentences: torch.Tensor) -> torch.Tensor:
        x = self.words(sentences) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def loss_of(first: int, stride: int):
    """The loss of the sentences `first`, `first + stride`, ...: each is to be read backwards."""

    def loss(model: torch.nn.Module, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * SEED + step)
        sentences = torch.randint(WORDS, (BATCH, LENGTH), generator=generator)[first::stride]
        return cross_entropy(model(sentences).flatten(0, 1), sentences.flip(1).flatten())

    return loss


def main() -> None:
    options = parser(__doc__).parse_args()
    with process_group(options.backend) as (rank, size):
        if BATCH % size:
            raise SystemExit(f"start me on a number of ranks that divides {BATCH}")
        mesh = init_device_mesh("cpu", (size,))
        model = Transformer()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses = train(model, loss_of(rank, size), STEPS, mean_over_ranks)

        alone = Transformer()
        reference = train(alone, loss_of(0, 1), STEPS, torch.Tensor.item)
        compare("loss", losses, reference, TOLERANCE)

        held = sum(parameter.to_local().numel() for parameter in model.parameters())
        total = sum(parameter.numel() for parameter in alone.parameters())
        if rank == 0:
            print(f"rank 0 held {held} of {total} parameters")
        if size > 1 and held > 0.75 * total:
            raise SystemExit("FAILED: the parameters are not spread over the ranks")
        for (name, mine), its in zip(model.named_parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(
                mine.full_tensor(),
                its,
                rtol=1e-3,
                atol=1e-4,
                msg=lambda text, n=name: f"{n}: {text}",
            )


if __name__ == "__main__":
    main()
