"""For plain training loops: modules that start alike on every rank, gradients that are averaged.

    broadcast_module(model)                # once
    loss.backward()
    average_gradients(model)               # each step, then optimizer.step()

They need no process group: without one they run on ``COMM_WORLD``. Nothing overlaps with the
backward pass; `torch.nn.parallel.DistributedDataParallel` over the backend ``"dlmpi"`` does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import torch

from dlmpi.torch._reach import Group, Ranks, buckets, flatten, reach, unflatten

__all__ = ["average_gradients", "broadcast_module"]


def broadcast_module(module: torch.nn.Module, root: int = 0, group: Group = None) -> None:
    """Give every rank the parameters and buffers of ``module`` on rank ``root`` of the group.

    All ranks have modules of the same structure: names, shapes and dtypes are compared first, and a
    difference is a `ValueError` on every rank.
    """
    ranks = reach(group)
    if not 0 <= root < ranks.size:
        raise ValueError(f"root: got {root}; expected a rank of the group, 0 to {ranks.size - 1}")
    named = [*module.named_parameters(), *module.named_buffers()]
    _compare("module", [(name, *_kind(tensor)) for name, tensor in named], ranks)
    for bucket in buckets(tensor.detach() for _, tensor in named):
        flat = flatten(bucket)
        ranks.broadcast(flat, root)
        unflatten(flat, bucket)


def average_gradients(
    parameters: torch.nn.Module | Iterable[torch.Tensor],
    group: Group = None,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Replace every gradient by its mean over all ranks, in few messages.

    ``parameters`` are a module's, or some; all ranks give as many, of the same sizes, in the same
    order. A parameter without a gradient on some ranks counts as 0 there and gets the mean; one
    without a gradient on every rank keeps none.

    With ``dtype`` (``torch.bfloat16`` or ``torch.float16``) wider gradients travel rounded to that
    type, half the bytes or less; over dlmpi they are added up in float32 and rounded once more.
    """
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.parameters()
    chosen = [parameter for parameter in parameters if parameter.requires_grad]
    for number, parameter in enumerate(chosen):
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise ValueError(
                f"parameter {number}: its gradient is {parameter.grad.layout}; only dense ones "
                "can be averaged: use sparse=False, or reduce it by torch.distributed.all_reduce"
            )
    if not chosen:
        return
    # Who has a gradient is known to that rank alone, so all of them travel: zeros stand for none,
    # and one mark each says whether any rank had it.
    had = [float(parameter.grad is not None) for parameter in chosen]
    marks = torch.tensor(had, device=chosen[0].device)
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in chosen
    ]
    with torch.no_grad():
        travelling = [_narrow(gradient.detach(), dtype) for gradient in gradients]
        reach(group).all_reduce_many([marks, *travelling], "AVG")
        for parameter, gradient, mean, mark in zip(
            chosen, gradients, travelling, marks.tolist(), strict=True
        ):
            if mark:
                if mean.dtype != gradient.dtype:
                    gradient.copy_(mean)
                parameter.grad = gradient


def _narrow(gradient: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    if dtype is None or gradient.is_complex() or gradient.itemsize <= dtype.itemsize:
        return gradient
    return gradient.to(dtype)


def _kind(tensor: torch.Tensor) -> tuple[str, str]:
    return str(tuple(tensor.shape)), str(tensor.dtype)


def _compare(argument: str, mine: list[tuple[str, ...]], ranks: Ranks) -> None:
    """Raise on every rank if not all gave the same description."""
    everyone = ranks.gather_objects(mine)
    if all(other == everyone[0] for other in everyone):
        return
    zero = everyone[0]
    rank, other = next((r, other) for r, other in enumerate(everyone) if other != zero)
    here, there = next(pair for pair in zip_longest(zero, other) if pair[0] != pair[1])
    raise ValueError(
        f"{argument}: it is not the same on all ranks: rank 0 has {_words(here)}, "
        f"rank {rank} has {_words(there)}"
    )


def _words(row: tuple[str, ...] | None) -> str:
    return "nothing there" if row is None else " ".join(row)
