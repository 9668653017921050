"""DDP communication hooks: gradients that travel in 16 bits and are added up in float32.

    model = DistributedDataParallel(...)        # over the backend "dlmpi"
    hooks.compress(model, torch.bfloat16)

Each rank rounds its gradients once, the mean of all ranks is made in float32 and rounded once more.
torch's own `bf16_compress_hook` divides before it sends and leaves the addition to the backend.

No `from __future__ import annotations` here: DDP compares the annotations of a hook with its types.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

__all__ = ["Compression", "compress", "compressed"]


class Compression(NamedTuple):
    """The state of `compressed`: the type that travels, and the group of the model."""

    dtype: torch.dtype
    group: Any = None


def compress(model: Any, dtype: torch.dtype = torch.bfloat16) -> None:
    """Let the gradients of a DistributedDataParallel model travel as ``dtype``.

    ``torch.bfloat16`` has the range of float32; ``torch.float16`` has three bits more, and makes
    infinity of what is beyond 65504.
    """
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"dtype: got {dtype}; expected torch.bfloat16 or torch.float16")
    model.register_comm_hook(Compression(dtype, model.process_group), compressed)


def compressed(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket of gradients; a hook for ``model.register_comm_hook``."""
    gradients = bucket.buffer()
    group = dist.group.WORLD if state.group is None else state.group
    _check_adds_in_float32(group, gradients.device)
    narrow = gradients.to(state.dtype)
    work = dist.all_reduce(narrow, dist.ReduceOp.AVG, group, async_op=True)

    def widen(future: Any) -> torch.Tensor:
        # Into the bucket's own memory: DDP reads it there.
        return gradients.copy_(future.value()[0])

    return work.get_future().then(widen)


def _check_adds_in_float32(group: Any, device: torch.device) -> None:
    config = dist.get_backend_config(group)  # such as "cpu:dlmpi,cuda:nccl"
    if f"{device.type}:dlmpi" not in config.split(","):
        raise ValueError(
            f"group: its backends are {config!r}, whose sums of 16-bit numbers are their own; only "
            f"'dlmpi' adds {device.type} tensors up in float32"
        )
