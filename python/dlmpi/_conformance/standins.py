"""Producers that NumPy plays: every call form in use, and capsules that say what NumPy does not.

Each class is one way to speak DLPack; none knows what a consumer does with it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

__all__ = [
    "BufferOnly",
    "InterfaceOnly",
    "LegacyAnswer",
    "LegacyOnly",
    "NoCopy",
    "Poked",
    "Positional",
    "Raising",
    "Standin",
]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Standin:
    """Today's signature. `device` is what `__dlpack_device__` answers."""

    def __init__(self, array: Any, device: Any = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **call: Any) -> Any:
        return self.array.__dlpack__(**call)


class LegacyAnswer(Standin):
    """Accepts `max_version` and answers with a legacy capsule all the same."""

    def __dlpack__(self, **call: Any) -> Any:
        return self.array.__dlpack__()


class LegacyOnly(Standin):
    """The first signature, keyword only."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class Positional(Standin):
    """The first signature, which raises a TypeError for a bad value too."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        if stream not in (None, -1):
            raise TypeError("stream must be None or -1 for CPU devices")
        return self.array.__dlpack__()


class NoCopy(Standin):
    """Knows `max_version`, but neither `dl_device` nor `copy`."""

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__(max_version=max_version)


class Raising(Standin):
    """Raises the like of what it is given: one exception raised twice would grow its traceback."""

    def __dlpack__(self, **call: Any) -> Any:
        raise type(self.array)(*self.array.args)


class Poked(Standin):
    """A versioned capsule with other values at some offsets, `{offset: (ctypes type, value)}`."""

    def __init__(self, array: Any, pokes: dict[int, tuple[Any, Any]]) -> None:
        super().__init__(array)
        self.pokes = pokes

    def __dlpack__(self, **call: Any) -> Any:
        capsule = self.array.__dlpack__(max_version=(1, 0))
        address = _pointer(capsule, b"dltensor_versioned")
        for offset, (kind, value) in self.pokes.items():
            kind.from_address(address + offset).value = value
        return capsule


class BufferOnly:
    """Speaks the buffer protocol by holding something that does (Python 3.12 and later)."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self.array)


class InterfaceOnly:
    """Has `__array_interface__` and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any], **more: Any) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **more}
