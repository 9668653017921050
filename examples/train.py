"""Data-parallel training of a torch model on scikit-learn's digits, over MPI.

    mpiexec -n 2 python -m mpi4py examples/train.py [--dtype bfloat16]

Each rank owns a shard of the images. After every backward pass the gradients are averaged over all
ranks by dlmpi, straight from the torch tensors; with `--dtype bfloat16` they travel as bfloat16,
half the bytes. Any number of ranks will do.

Why several ranks follow the loss curve of one process: all draw the same batches from the seed, a
rank computes the part of each batch that it owns, and the gradient of the whole batch is the mean
of the gradients of its parts weighted by their sizes. Sizes differ, so every rank scales the mean
loss of its part by (images of its part x ranks / images of the batch) before `backward`; then the
plain mean over ranks, `dlmpi.AVG`, is the gradient of the whole batch but for rounding. A rank
that owns no image of a batch contributes zeros.

The program checks itself: rank 0 trains again, alone on whole batches, and the two curves must
agree within TOLERANCE; all ranks must end with the same weights, bit for bit; and the model must
reach TARGET_ACCURACY on images that it never saw. Otherwise every rank exits with code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from tqdm import tqdm

import dlmpi
from dlmpi import MPI

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
TARGET_ACCURACY = 0.95
# The largest distance allowed between the two loss curves at any step, as a part of the first loss.
# In float32 only the order of additions differs. A bfloat16 has 8 significant bits, and each
# gradient is rounded to that twice: by its rank, and once more after the mean.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-3}

Batches = Iterator[tuple[torch.Tensor, torch.Tensor, float]]


class Digits:
    """Images and labels in a shuffled order; the first fifth is only tested on."""

    def __init__(self, seed: int) -> None:
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(labels))
        cut = len(labels) // 5
        self.images = torch.from_numpy((images[order] / 16).astype(np.float32))
        self.labels = torch.from_numpy(labels[order].astype(np.int64))
        self.test = self.images[:cut], self.labels[:cut]
        self.train = self.images[cut:], self.labels[cut:]


class Shard:
    """The training images of one rank of `size`: those whose number is `rank` modulo `size`."""

    def __init__(self, digits: Digits, rank: int, size: int) -> None:
        images, labels = digits.train
        self.total = len(labels)
        self.rank, self.size = rank, size
        self.images, self.labels = images[rank::size].clone(), labels[rank::size].clone()

    def batches(self, options: argparse.Namespace, epoch: int) -> Batches:
        """This shard's part of every batch, and the weight that makes a plain mean right."""
        generator = torch.Generator().manual_seed(options.seed * 1000 + epoch)
        order = torch.randperm(self.total, generator=generator)
        for batch in order.split(options.batch):
            mine = batch[batch % self.size == self.rank] // self.size
            yield self.images[mine], self.labels[mine], len(mine) * self.size / len(batch)


def new_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def train(
    model: torch.nn.Module,
    shard: Shard,
    options: argparse.Namespace,
    average: Callable[[torch.nn.Module, torch.Tensor], None],
    after_epoch: Callable[[int, float], None],
) -> list[float]:
    """Return the loss of every batch, as `average` has made it the same everywhere."""
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    losses = []
    for epoch in range(options.epochs):
        for images, labels, weight in shard.batches(options, epoch):
            optimizer.zero_grad(set_to_none=False)
            # The mean over no image is NaN; a sum over none is the zero that is meant.
            loss = cross_entropy(model(images), labels, reduction="sum") * weight
            loss = loss / max(len(labels), 1)
            loss.backward()
            value = loss.detach().double()
            average(model, value)
            optimizer.step()
            losses.append(value.item())
        after_epoch(epoch, losses[-1])
    return losses


def average_over_ranks(dtype: torch.dtype) -> Callable[[torch.nn.Module, torch.Tensor], None]:
    def average(model: torch.nn.Module, loss: torch.Tensor) -> None:
        for parameter in model.parameters():
            gradient = parameter.grad.to(dtype)
            COMM.Allreduce(MPI.IN_PLACE, gradient, op=dlmpi.AVG)
            parameter.grad.copy_(gradient)
        COMM.Allreduce(MPI.IN_PLACE, loss, op=dlmpi.AVG)

    return average


def accuracy(model: torch.nn.Module, digits: Digits) -> float:
    images, labels = digits.test
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).double().mean().item()


def same_everywhere(model: torch.nn.Module) -> bool:
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    lowest, highest = weights.clone(), weights.clone()
    COMM.Allreduce(MPI.IN_PLACE, lowest, op=MPI.MIN)
    COMM.Allreduce(MPI.IN_PLACE, highest, op=MPI.MAX)
    return torch.equal(lowest, highest)


def plot(curves: dict[str, list[float]], path: Path) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (label, losses), style in zip(curves.items(), ("-", ":"), strict=False):
        axes.plot(losses, style, label=label)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title="Digits, data-parallel over MPI")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=sorted(TOLERANCE), default="float32")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="images per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the plot goes")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a bar, even where the launcher hides the terminal",
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    torch.set_num_threads(1)  # ranks share the cores
    digits = Digits(options.seed)
    model = new_model(options.seed + RANK)  # different everywhere, until rank 0 gives out its own
    for parameter in model.parameters():
        COMM.Bcast(parameter.detach(), root=0)

    quiet = RANK > 0 or (None if options.progress is None else not options.progress)
    bar = tqdm(total=options.epochs, unit="epoch", desc=f"{SIZE} ranks", disable=quiet)

    def after_epoch(epoch: int, loss: float) -> None:
        bar.update()
        if RANK == 0 and (epoch + 1) % 5 == 0:
            text = f"epoch {epoch + 1:3}  loss {loss:.4f}  accuracy {accuracy(model, digits):.1%}"
            bar.write(text, file=sys.stdout)

    start = time.perf_counter()
    average = average_over_ranks(getattr(torch, options.dtype))
    losses = train(model, Shard(digits, RANK, SIZE), options, average, after_epoch)
    bar.close()
    seconds = time.perf_counter() - start

    same = same_everywhere(model)
    faults = [] if same else ["the ranks ended with different weights"]
    if RANK == 0:
        curves = {f"{SIZE} ranks, {options.dtype} gradients": losses}
        reached = accuracy(model, digits)
        print(f"{SIZE} ranks, {options.dtype}: {len(losses)} steps in {seconds:.1f} s, final loss")
        print(f"{losses[-1]:.4f}, accuracy on {len(digits.test[1])} unseen images {reached:.1%}")
        if reached < TARGET_ACCURACY:
            faults.append(f"accuracy {reached:.1%} is below {TARGET_ACCURACY:.0%}")
        if options.check:
            alone = new_model(options.seed)
            reference = train(alone, Shard(digits, 0, 1), options, lambda *_: None, lambda *_: None)
            curves["one process, whole batches"] = reference
            distance = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
            distance /= reference[0]
            tolerance = TOLERANCE[options.dtype]
            print(f"distance to one process's loss curve: {distance:.1e} (allowed {tolerance:.0e})")
            if not distance <= tolerance:
                faults.append(f"the loss curve is {distance:.1e} away from one process's")
        path = options.out / f"loss-{options.dtype}-{SIZE}.png"
        plot(curves, path)
        print(f"plot: {path}")
        for fault in faults:
            print(f"FAILED: {fault}", file=sys.stderr)
    # All ranks leave with rank 0's verdict.
    return 1 if COMM.bcast(faults, root=0) else 0


if __name__ == "__main__":
    sys.exit(main())
