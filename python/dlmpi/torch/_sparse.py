"""The sum of sparse tensors: every rank gathers all entries and adds them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ReduceOp

from dlmpi.torch._work import DoneWork

if TYPE_CHECKING:
    from dlmpi.torch._core import Core

__all__ = ["allreduce"]


def allreduce(core: Core, tensors: Sequence[Any], opts: Any) -> Any:
    """Replace each tensor by the sum over all ranks. Done when it returns, asynchronous or not."""
    if hash(opts.reduceOp) != hash(ReduceOp.SUM):
        raise ValueError("all_reduce: sparse tensors can only be summed; expected op=SUM")
    for tensor in tensors:
        if tensor.layout != torch.sparse_coo:
            raise TypeError(f"all_reduce: expected a COO tensor, got {tensor.layout}")
        with torch.no_grad():
            tensor.copy_(_summed(core, tensor.coalesce()))
    return DoneWork(tensors)


def _summed(core: Core, own: Any) -> Any:
    indices, values = own.indices(), own.values()
    numbers = torch.empty(core.size, dtype=torch.int64)
    _done(core, core.Iallgather, torch.tensor([values.shape[0]]), numbers)
    numbers = numbers.tolist()
    # The entries lie one after another, so the ranks' blocks are contiguous.
    wide = indices.shape[0]
    every = torch.empty((sum(numbers), wide), dtype=torch.int64)
    counts = [number * wide for number in numbers]
    _done(core, core.Iallgatherv, indices.t().contiguous(), [every, counts])
    dense = values.shape[1:]
    room = values.new_empty((sum(numbers), *dense))
    counts = [number * dense.numel() for number in numbers]
    _done(core, core.Iallgatherv, values, [room, counts])
    entries = every.t().to(values.device)
    return torch.sparse_coo_tensor(entries, room, own.shape).coalesce()


def _done(core: Core, starter: Any, *arguments: Any) -> None:
    core.launch("all_reduce of a sparse tensor", [(starter, arguments)], []).wait()
