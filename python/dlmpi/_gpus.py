"""How many GPUs this process may use, without starting a GPU runtime in it.

`cuInit` in a parent breaks CUDA in its forked children (DataLoader workers), so frameworks that are
loaded are asked first, in their own careful way, and then the driver's management library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

__all__ = ["visible"]


def _by_torch() -> int | None:
    torch = sys.modules.get("torch")
    with suppress(Exception):  # a broken driver is no reason to fail: then there is no GPU
        return int(torch.cuda.device_count()) if torch is not None else None
    return None


def _by_management_library() -> int | None:
    """Ask NVML, which is installed with the driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        count = ctypes.c_uint()
        return count.value if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None
    finally:
        nvml.nvmlShutdown()


def _allowed(installed: int) -> int:
    """Apply `CUDA_VISIBLE_DEVICES` as the driver does: the list ends at the first bad entry."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return installed
    count = 0
    for entry in (part.strip() for part in text.split(",")):
        number = entry.isdecimal() and int(entry) < installed
        if not number and not entry.startswith(("GPU-", "MIG-")):
            break
        count += 1
    return count


def visible() -> int:
    """Return the number of GPUs that this process sees; 0 where there is no driver."""
    counted = _by_torch()
    if counted is not None:
        return counted
    installed = _by_management_library()
    return _allowed(installed) if installed else 0
