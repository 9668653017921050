"""Large blocks of calls that take lists: messages straight from and into the tensors.

To lay a list out in one piece of new memory costs more than to move it: each page is touched for
the first time, and everything is copied once more. So a block from `LARGE` bytes on travels as a
message of its own, and the collective, which runs all the same, carries the others. Whether a block
does is known to its two ranks alone, from its size, as the collective's v-counts are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dlmpi.torch._core import Call, Core

__all__ = ["LARGE_ROWS", "apart", "is_large", "messages", "rows"]

LARGE = 256 << 10
#: The same where all blocks lie in one tensor anyway: up to here the library does well.
LARGE_ROWS = 4 << 20

Blocks = Mapping[int, Any]


def is_large(tensor: Any, least: int = LARGE) -> bool:
    """Whether this block travels by itself."""
    return bool(tensor.numel() * tensor.element_size() >= least)


def apart(tensors: Sequence[Any], least: int = LARGE) -> tuple[dict[int, Any], Sequence[Any]]:
    """Return the large blocks by rank, and the list with nothing in their places."""
    large = {rank: tensor for rank, tensor in enumerate(tensors) if is_large(tensor, least)}
    if not large:
        return large, tensors
    nothing = tensors[0].new_empty(0)
    return large, [nothing if rank in large else t for rank, t in enumerate(tensors)]


def rows(tensor: Any, counts: Sequence[int]) -> list[Any]:
    """Return consecutive rows of a tensor as views, given how many elements each rank has."""
    if not tensor.numel():
        return [tensor.new_empty(0) for _ in counts]
    tensor = tensor.detach().unsqueeze(0) if tensor.dim() == 0 else tensor.detach()
    each = tensor.numel() // tensor.shape[0]
    return list(torch.split(tensor, [count // each for count in counts]))


def messages(
    core: Core, gives: Blocks, gets: Blocks
) -> tuple[list[Call], Callable[[], None] | None]:
    """Return the messages of blocks to and from ranks, and what gives this rank its own block."""
    calls: list[Call] = []
    # From the next rank on: not all ranks at once to the same one.
    for step in range(1, core.size):
        source, dest = (core.rank - step) % core.size, (core.rank + step) % core.size
        if source in gets:
            calls.append((core.Recv, (gets[source], source, core.block_tag)))
        if dest in gives:
            calls.append((core.Send, (gives[dest], dest, core.block_tag)))
    if core.rank not in gets:
        return calls, None
    room, own = gets[core.rank], gives[core.rank]

    def copy() -> None:
        with torch.no_grad():
            room.detach().copy_(own if own.shape == room.shape else own.reshape(room.shape))

    return calls, copy
