"""What all arrays on the simulated driver have: memory, a layout in it, and kernels.

Kernels are copies that are queued on the current stream of the array's library. Knows no framework.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from support import capsules, simulated
from support.capsules import CUDA, Export, Versioned

#: DLPack's code of a kind of dtype.
CODES = {"f": capsules.FLOAT, "i": capsules.INT, "u": capsules.UINT, "V": capsules.BFLOAT}
POOL = simulated.Pool()
# What queued copies read from: alive until all of them have run.
_sources: list[Any] = []


def reset_when_idle() -> None:
    """After a test: let all queued work run, so that memory can be used again."""
    for dev in (0, 1):
        with simulated.on(dev):
            simulated.call("cuCtxSynchronize")
    POOL.reset()
    _sources.clear()


class Library:
    """The streams on which one library works, one per device: the user chooses their kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[int, int] = {}

    def stream(self, dev: int) -> int:
        """The handle as the library itself gives it: the default stream is 0."""
        if self.kind == "default":
            return 0
        if self.kind == "per-thread":
            return simulated.PER_THREAD
        if dev not in self._own:
            self._own[dev] = simulated.stream(dev)
        return self._own[dev]

    def order(self, dev: int, consumer: int, producer: int | None = None) -> None:
        """Let the consumer's stream wait for what is queued now."""
        producer = self.stream(dev) if producer is None else producer
        if producer in (consumer, 0 if consumer == simulated.LEGACY else consumer):
            return
        event = simulated.given("cuEventCreate", 2)
        try:
            simulated.call("cuEventRecord", event, producer)
            simulated.call("cuStreamWaitEvent", consumer, event, 0)
        finally:
            simulated.call("cuEventDestroy_v2", event)


class Array:
    """What all have: memory, a layout in it, and kernels on the library's current stream."""

    immutable: ClassVar[str] = ""
    device_kind: ClassVar[int] = CUDA
    memory_kind: ClassVar[str] = "device"

    def __init__(
        self,
        library: Library,
        shape: Any,
        dtype: Any,
        dev: int,
        *,
        step: int = 1,
        offset: int = 0,
        gap: int = 0,
    ) -> None:
        self.library, self.dev = library, dev
        self.shape, self.dtype = tuple(np.atleast_1d(shape).tolist()), np.dtype(dtype)
        self.step, self.offset, self.gap = step, offset, gap
        self.numel = int(np.prod(self.shape))
        rows = self.numel // max(self.shape[-1], 1) if gap else 0
        n = (self.numel * step + rows * gap + offset) * self.dtype.itemsize
        self.memory = POOL.get(n, dev, self.memory_kind)

    @property
    def address(self) -> int:
        return self.memory.start + self.offset * self.dtype.itemsize

    @property
    def strides(self) -> list[int]:
        """In elements: C order, every `step`-th one, with a gap behind each row."""
        inner = [int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))]
        row = max(self.shape[-1], 1)
        return [self.step * n + n // row * self.gap for n in inner]

    def look(self, raw: bytes | bytearray) -> np.ndarray:
        """The elements in a copy of all the memory."""
        strides = [n * self.dtype.itemsize for n in self.strides]
        if not self.numel:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, raw, self.offset * self.dtype.itemsize, strides)

    def _with(self, values: np.ndarray) -> bytes:
        raw = bytearray(self.memory.now())
        if self.numel:
            self.look(raw)[...] = values
        return bytes(raw)

    def put(self, values: np.ndarray) -> None:
        self.memory.put(self._with(values))

    def _copy(self, name: str, to: Any, source: Any, stream: int | None = None) -> None:
        if self.memory.n:
            with simulated.on(self.dev):
                stream = self.library.stream(self.dev) if stream is None else stream
                simulated.call(name, to, source, self.memory.n, stream)

    def kernel(self, values: np.ndarray) -> None:
        """Queue a kernel that writes the elements."""
        raw = self._with(values)
        source = ctypes.create_string_buffer(raw, max(len(raw), 1))
        _sources.append(source)
        self._copy("cuMemcpyHtoDAsync_v2", self.memory.start, source)

    def host_function(self, run: Callable[[], None]) -> None:
        """Queue a function of the host's behind the kernels."""
        called = simulated.HOST_FUNCTION(lambda _: run())
        _sources.append(called)
        with simulated.on(self.dev):
            stream = self.library.stream(self.dev)
            simulated.call("cuLaunchHostFunc", stream, called, None)

    def watch(self) -> simulated.Memory:
        """Queue a kernel that reads the elements; what it saw will be in the memory returned."""
        seen = POOL.get(self.memory.n, self.dev)
        self._copy("cuMemcpyDtoDAsync_v2", seen.start, self.memory.start)
        return seen

    def fetch(self) -> np.ndarray:
        """The elements as the library's next kernel sees them: `x.cpu()`, on its current stream."""
        return self.look(self.fetch_raw()).copy()

    def fetch_raw(self) -> bytes:
        found = ctypes.create_string_buffer(max(self.memory.n, 1))
        self._copy("cuMemcpyDtoHAsync_v2", found, self.memory.start)
        self.synchronize()
        return found.raw[: self.memory.n]

    def synchronize(self) -> None:
        with simulated.on(self.dev):
            simulated.call("cuStreamSynchronize", self.library.stream(self.dev))

    # The capsule, for those who give one.
    def capsule(self, kind: type = Versioned, flags: int = 0) -> Any:
        shape = np.empty(self.shape, self.dtype)
        fields: dict[str, Any] = {
            "data": self.address if self.numel else 0,
            "device": (self.device_kind, self.dev),
            "dtype": (CODES[self.dtype.kind], self.dtype.itemsize * 8, 1),
            "strides": self.strides,
        }
        return Export(shape, kind, flags=flags, **fields).capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device_kind, self.dev)
