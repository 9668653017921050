"""Array classes that hand out capsules the way real producers do, well or badly behaved.

Each class is one call form; what is in the capsule is the caller's business (support.capsules)."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.capsules import CPU, CUDA, READ_ONLY, Export, Legacy, Versioned


class Producer:
    """What all have: exports that are kept for counting, and the calls that were made."""

    device: tuple[Any, Any] = (CPU, 0)

    def __init__(self, array: np.ndarray, kind: type = Versioned, **fields: Any) -> None:
        self.array, self.kind, self.fields = array, kind, fields
        self.exports: list[Export] = []
        self.calls: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self.device

    @property
    def deleted(self) -> list[int]:
        return [export.deleted for export in self.exports]

    def give(self, kind: type | None = None, **call: Any) -> Any:
        self.calls.append(call)
        export = Export(self.array, kind or self.kind, **dict(self.fields))
        self.exports.append(export)
        return export.capsule()


class Full(Producer):
    """Today's signature."""

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        call = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        kind = self.kind if max_version is not None else Legacy
        return self.give(kind, **call)


class StreamOnly(Producer):
    """The first signature: NumPy up to 2.0, torch up to 2.8."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.give(Legacy, stream=stream)


class NoCopy(Producer):
    """Knows `max_version` but neither `copy` nor `dl_device`."""

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        return self.give(self.kind if max_version else Legacy, stream=stream)


class NoArguments(Producer):
    def __dlpack__(self) -> Any:
        return self.give(Legacy)


class LegacyAnswer(Producer):
    """Accepts `max_version` and still answers with a legacy capsule, as TensorFlow and MLX do."""

    def __dlpack__(self, **call: Any) -> Any:
        return self.give(Legacy, **call)


class PickyStream(Full):
    """Refuses any stream on the CPU, as NumPy does."""

    def __dlpack__(self, *, stream: Any = None, **call: Any) -> Any:
        if stream is not None:
            raise ValueError("this library only supports stream=None")
        return super().__dlpack__(stream=stream, **call)


class BrokenInside(Producer):
    """Raises a TypeError of its own, which is not about the call's form."""

    def __dlpack__(self, **call: Any) -> Any:
        self.calls.append(call)
        raise TypeError("unsupported operand type(s) inside the producer")


class Raising(Producer):
    """Raises `error`, whatever it is asked."""

    error: BaseException = BufferError("this array was deleted")

    def __dlpack__(self, **call: Any) -> Any:
        self.calls.append(call)
        raise self.error


class DeviceRaises(Full):
    def __dlpack_device__(self) -> tuple[Any, Any]:
        raise ValueError("this array is on no device")


class NotACapsule(Producer):
    answer: Any = None

    def __dlpack__(self, **call: Any) -> Any:
        return self.answer


class OneCapsule(Producer):
    """Hands out one and the same capsule, which is used up after the first time."""

    capsule: Any = None

    def __dlpack__(self, **call: Any) -> Any:
        self.capsule = self.capsule or self.give(self.kind)
        return self.capsule


class OnDevice(Producer):
    """Like CuPy: on CUDA, `stream` given each time, `max_version` a real tuple. Records streams."""

    device = (CUDA, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        if max_version is not None and not isinstance(max_version, tuple):
            raise TypeError("max_version must be a tuple")
        if stream is None:
            raise ValueError("a consumer must say in which stream it will work")
        kind = self.kind if max_version is not None else Legacy
        return self.give(kind, stream=stream, max_version=max_version)


class Frozen(Full):
    """Read-only, and says so."""

    def __init__(self, array: np.ndarray, **fields: Any) -> None:
        super().__init__(array, flags=READ_ONLY, **fields)


class ArrayInterface:
    """Only `__array_interface__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class CudaArrayInterface:
    """Only `__cuda_array_interface__`; the memory is the host's, which the door cannot know."""

    def __init__(self, array: np.ndarray, **more: Any) -> None:
        self.array = array
        interface = array.__array_interface__
        keys = ("shape", "typestr", "data", "strides")
        self.__cuda_array_interface__ = {k: interface[k] for k in keys} | {"version": 3} | more
