"""A function of tensors that lie on several ranks, as one function that gradcheck can take.

All ranks hold the same `whole` and run gradcheck in step. `Shared` hands a rank what it holds of
the whole, `Joined` puts the ranks' results together again; both are made of plain mpi4py, so what
is under test lies between two things that it has no part in. The sum over ranks counts everything
that is the same on all ranks as often as there are ranks: `Shared` takes a mean, and `Joined` a
multiple, to make that once.
"""

from __future__ import annotations

import numpy as np
import torch
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


class Shared(torch.autograd.Function):
    """The same tensor on all ranks, seen by one of them."""

    @staticmethod
    def forward(ctx, whole):
        return whole.clone()

    @staticmethod
    def backward(ctx, grad):
        return _Mean.apply(grad)


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mine):
        total = sum(WORLD.allgather(mine.detach().resolve_conj().numpy()))
        return torch.from_numpy(np.asarray(total / WORLD.size))

    @staticmethod
    def backward(ctx, grad):
        return Shared.apply(grad)


class Joined(torch.autograd.Function):
    """The ranks' results end to end, whatever their sizes: the same tensor on all ranks."""

    @staticmethod
    def forward(ctx, mine):
        parts = WORLD.allgather(mine.detach().resolve_conj().numpy().ravel())
        ctx.start, ctx.shape = sum(map(len, parts[: WORLD.rank])), mine.shape
        return torch.from_numpy(np.concatenate(parts))

    @staticmethod
    def backward(ctx, grad):
        return _Part.apply(grad, ctx.start, ctx.shape)


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole, start, shape):
        part = whole.detach().reshape(-1)[start : start + shape.numel()]
        return part.reshape(shape).clone() * WORLD.size

    @staticmethod
    def backward(ctx, grad):
        return Joined.apply(grad), None, None
