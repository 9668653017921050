"""torch process groups for tests: one default group, and values of every dtype.

Every rank draws the values of all ranks, so each knows what must come out.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

import dlmpi.torch
from dlmpi import MPI
from support.arithmetic import exact, expected
from support.dtypes import BY_NAME, DType

__all__ = ["DTYPES", "RANK", "SIZE", "bits", "drawn", "poisoned", "reduced", "start"]

assert dlmpi.torch
RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
DTYPES = tuple(name for name, row in BY_NAME.items() if row.torch is not None)


def start() -> None:
    """Make the default group, once; every rank does so at the same place."""
    if not dist.is_initialized():
        dist.init_process_group("dlmpi", init_method="mpi://")


def _tensor(row: DType, stored: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    if not stored.size:
        return torch.empty(shape, dtype=row.torch)
    raw = torch.from_numpy(stored.view(np.uint8).copy())
    return raw.view(row.torch).reshape(shape)


def drawn(name: str, op: str, shape: tuple[int, ...], rng) -> list[torch.Tensor]:
    """One tensor per rank, whose reduction by `op` is exact in every order."""
    row, n = BY_NAME[name], int(np.prod(shape))
    return [_tensor(row, exact(row, op, n, rng), shape) for _ in range(SIZE)]


def reduced(name: str, op: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What the reduction of one tensor per rank must give."""
    row = BY_NAME[name]
    parts = [bits(tensor).numpy().view(row.store) for tensor in tensors]
    return _tensor(row, np.asarray(expected(row, op, parts), row.store), tensors[0].shape)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def poisoned(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of bytes that no test draws on purpose."""
    row = BY_NAME[name]
    fill = 1 if row.kind == "bool" else 0x7B
    n = int(np.prod(shape)) * row.itemsize
    if not n:
        return torch.empty(shape, dtype=row.torch)
    return torch.full((n,), fill, dtype=torch.uint8).view(row.torch).reshape(shape)
