"""What the examples share: how a process group begins and ends, and how they say that they failed.

Every example trains on all ranks what it also trains in one process, and compares the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

import dlmpi.torch  # noqa: F401 -- registers the backend and mpi://

#: The largest distance allowed between two float32 curves, as a part of the first value: only the
#: order of additions differs.
TOLERANCE = 1e-5


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument("--backend", default="dlmpi", help="or another of torch's, such as gloo")
    return made


@contextmanager
def process_group(backend: str) -> Iterator[tuple[int, int]]:
    """Join all ranks that mpiexec started; rank and size are MPI's, for any backend."""
    torch.set_num_threads(1)  # ranks share the cores
    dist.init_process_group(backend, init_method="mpi://")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def compare(what: str, ours: list[float], reference: list[float], tolerance: float) -> None:
    """Print how far two curves are apart, and fail if that is too far or nothing was learned."""
    distance = max(abs(a - b) for a, b in zip(ours, reference, strict=True)) / abs(reference[0])
    if dist.get_rank() == 0:
        print(f"{what}: {ours[0]:.4f} to {ours[-1]:.4f} in {len(ours)} steps")
        print(f"distance to one process: {distance:.1e} (allowed {tolerance:.0e})")
    if not distance <= tolerance:
        raise SystemExit(f"FAILED: {what} is {distance:.1e} away from one process's")
    if not ours[-1] < ours[0]:
        raise SystemExit(f"FAILED: {what} did not fall")


def mean_over_ranks(value: torch.Tensor) -> float:
    """Return the mean of a number over all ranks, the same on each."""
    total = value.detach().double()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(
    model: torch.nn.Module,
    step: Callable[[torch.nn.Module, int], torch.Tensor],
    steps: int,
    value: Callable[[torch.Tensor], float],
    lr: float = 0.05,
) -> list[float]:
    """Train by SGD with momentum; `step` gives the loss of a step, `value` what is kept of it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    kept = []
    for number in range(steps):
        optimizer.zero_grad()
        loss = step(model, number)
        loss.backward()
        optimizer.step()
        kept.append(value(loss))
    return kept
