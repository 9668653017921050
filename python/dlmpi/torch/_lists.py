"""Lists of tensors as one piece of memory, and back. Local: knows no communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

__all__ = ["as_bytes", "by_dtype", "flat", "same_dtype", "scatter_back"]


def same_dtype(what: str, name: str, tensors: Sequence[Any]) -> Any:
    """Return the dtype of all tensors of a list."""
    if not tensors:
        raise ValueError(f"{what}: {name} is empty; expected at least one tensor")
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        found = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"{what}: {name} mixes {found}; expected one dtype")
    return tensors[0].dtype


def flat(tensors: Sequence[Any]) -> Any:
    """Return the elements of all tensors, one after another."""
    parts = [tensor for tensor in tensors if tensor.numel()] or tensors[:1]
    with torch.no_grad():
        if len(parts) == 1:
            return parts[0].detach().reshape(-1)
        return torch.cat([tensor.detach().reshape(-1) for tensor in parts])


def as_bytes(tensors: Sequence[Any]) -> Any:
    """Return the bytes of all tensors, one after another."""
    with torch.no_grad():
        parts = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors]
        return torch.cat(parts) if len(parts) > 1 else parts[0]


def scatter_back(room: Any, tensors: Sequence[Any]) -> Callable[[], None] | None:
    """Return what copies consecutive elements of `room`, if it has any, into the tensors.

    A `room` of bytes holds the tensors' memory.
    """
    if not room.numel():
        return None

    def copy() -> None:
        with torch.no_grad():
            at = 0
            for tensor in tensors:
                raw = room.dtype == torch.uint8 and tensor.dtype != torch.uint8
                size = tensor.numel() * (tensor.element_size() if raw else 1)
                part = room[at : at + size]
                if raw:
                    # A view of other elements needs their alignment.
                    part = part.clone() if part.storage_offset() % tensor.element_size() else part
                    part = part.view(tensor.dtype)
                tensor.detach().copy_(part.view(tensor.shape))
                at += size

    return copy


def by_dtype(tensors: Iterable[Any]) -> list[list[int]]:
    """Return the places of the tensors of each dtype, in the order in which dtypes appear."""
    groups: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(place)
    return list(groups.values())
