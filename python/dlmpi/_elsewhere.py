"""Tensors on devices that dlmpi has no driver of: their framework copies them, in its own order.

PyTorch by its own methods; others by DLPack's copy to the CPU, and back by the array API.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["from_host", "to_host"]

_CPU = (1, 0)


class _Copy:
    """What a tensor exports as a copy on the CPU; asked for once."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, *, max_version: Any = None, **_asked: Any) -> Any:
        # No stream: for a copy on the CPU the producer itself waits.
        return self._tensor.__dlpack__(max_version=max_version, dl_device=_CPU, copy=True)


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def to_host(tensor: Any, writable: bool) -> Any:
    """Return a copy on the host, which `from_host` can bring back if it is `writable`."""
    if _is_torch(tensor):
        return tensor.detach().cpu()
    if not writable:
        return _Copy(tensor)
    if not hasattr(tensor, "__array_namespace__"):
        raise BufferError(
            "neither a tensor of PyTorch nor an array of the array API, so nothing brings what was "
            "received back to its device; receive into memory of the host"
        )
    import numpy as np

    # NumPy's arrays from capsules may not be written.
    return np.array(np.from_dlpack(_Copy(tensor)))


def from_host(tensor: Any, host: Any) -> None:
    """Bring back what was received into the copy."""
    if _is_torch(tensor):
        tensor.detach().copy_(host)
        return
    namespace = tensor.__array_namespace__()
    tensor[...] = namespace.from_dlpack(host, device=tensor.device)
