"""The simulated CUDA driver (crates/simulated-driver) from Python: CUDA's functions, and the
driver's ways in for tests. Knows no tensor.

The library is the `libcuda.so.1` that the loader finds, so that it is the one which dlmpi finds."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

SCHEDULE = os.environ.get("SIMULATED_SCHEDULE", "late")
#: The user says that MPI takes device memory; the user or MPI says so.
TOLD = os.environ.get("DLMPI_GPU_AWARE") == "1"
AWARE = TOLD or os.environ.get("SIMULATED_AWARE") == "1"
LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
PORTABLE = 1
GLOBAL = 1
INVALID_VALUE, OUT_OF_MEMORY, LAUNCH_FAILED = 1, 2, 719

_LONG = ctypes.c_uint64
_SIZE = ctypes.c_size_t
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# Arguments of each function; all of CUDA's return an error number.
_CUDA: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuMemAlloc_v2": [ctypes.c_void_p, _SIZE],
    "cuMemAllocManaged": [ctypes.c_void_p, _SIZE, ctypes.c_uint],
    "cuMemAllocAsync": [ctypes.c_void_p, _SIZE, _LONG],
    "cuMemFree_v2": [_LONG],
    "cuMemHostAlloc": [ctypes.c_void_p, _SIZE, ctypes.c_uint],
    "cuMemFreeHost": [ctypes.c_void_p],
    "cuCtxSynchronize": [],
    "cuStreamCreate": [ctypes.c_void_p, ctypes.c_uint],
    "cuStreamDestroy_v2": [_LONG],
    "cuStreamSynchronize": [_LONG],
    "cuStreamWaitEvent": [_LONG, _LONG, ctypes.c_uint],
    "cuEventCreate": [ctypes.c_void_p, ctypes.c_uint],
    "cuEventRecord": [_LONG, _LONG],
    "cuEventSynchronize": [_LONG],
    "cuEventDestroy_v2": [_LONG],
    "cuLaunchHostFunc": [_LONG, HOST_FUNCTION, ctypes.c_void_p],
    "cuMemcpyHtoDAsync_v2": [_LONG, ctypes.c_void_p, _SIZE, _LONG],
    "cuMemcpyDtoHAsync_v2": [ctypes.c_void_p, _LONG, _SIZE, _LONG],
    "cuMemcpyDtoDAsync_v2": [_LONG, _LONG, _SIZE, _LONG],
}
_WAYS_IN: dict[str, tuple[Any, list[Any]]] = {
    "simulated_map_virtual": (ctypes.c_uint, [ctypes.c_void_p, _SIZE]),
    "simulated_read": (None, [ctypes.c_void_p, _LONG, _SIZE]),
    "simulated_write": (None, [_LONG, ctypes.c_void_p, _SIZE]),
    "simulated_capture": (None, [_LONG, ctypes.c_bool]),
    "simulated_current": (ctypes.c_int, []),
    "simulated_set_current": (None, [ctypes.c_int]),
    "simulated_calls": (_LONG, [ctypes.c_char_p]),
    "simulated_record": (None, [ctypes.c_bool]),
    "simulated_recorded": (_SIZE, [ctypes.c_void_p, _SIZE]),
    "simulated_fail": (None, [ctypes.c_char_p, _LONG, ctypes.c_uint, ctypes.c_bool]),
    "simulated_mend": (_LONG, []),
    "simulated_alive": (_LONG, [ctypes.c_char_p]),
}


@functools.cache
def library() -> Any:
    found = ctypes.CDLL("libcuda.so.1")
    assert hasattr(found, "simulated_alive"), "the driver that the loader finds is a real one"
    for name, arguments in _CUDA.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, ctypes.c_uint
    for name, (result, arguments) in _WAYS_IN.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, result
    assert found.cuInit(0) == 0
    return found


def call(name: str, *arguments: Any) -> None:
    """Call one of CUDA's functions, which must succeed."""
    code = getattr(library(), name)(*arguments)
    assert code == 0, f"{name}: error {code}"


def given(name: str, *arguments: Any) -> int:
    """What a function of CUDA's puts into its first argument."""
    slot = ctypes.c_uint64()
    call(name, ctypes.byref(slot), *arguments)
    return slot.value


@contextmanager
def on(dev: int) -> Iterator[None]:
    """Make a device current for a while."""
    before = library().simulated_current()
    library().simulated_set_current(dev)
    try:
        yield
    finally:
        library().simulated_set_current(before)


def current() -> int:
    return int(library().simulated_current())


def calls(name: str) -> int:
    return int(library().simulated_calls(name.encode()))


@contextmanager
def recorded() -> Iterator[list[str]]:
    """What is called meanwhile, of the whole process: names, and what each call works on."""
    log: list[str] = []
    library().simulated_record(True)
    try:
        yield log
        room = library().simulated_recorded(None, 0) + 4096
        found = ctypes.create_string_buffer(room)
        n = library().simulated_recorded(found, room)
        log += found.raw[: min(n, room)].decode().splitlines()
    finally:
        library().simulated_record(False)


def alive(what: str) -> int:
    """How many "streams", "events", "pinned" or "memory" allocations, or "pending" pieces."""
    return int(library().simulated_alive(what.encode()))


def fail(name: str, after: int = 0, code: int = LAUNCH_FAILED, lasting: bool = False) -> None:
    library().simulated_fail(name.encode(), after, code, lasting)


def mend() -> int:
    return int(library().simulated_mend())


def stream(dev: int) -> int:
    """A new non-blocking stream."""
    with on(dev):
        return given("cuStreamCreate", NON_BLOCKING)


def capture(handle: int, dev: int, capturing: bool) -> None:
    with on(dev):
        library().simulated_capture(handle, capturing)


_ALLOCATORS: dict[str, tuple[Any, ...]] = {
    "device": ("cuMemAlloc_v2",),
    "pool": ("cuMemAllocAsync", 0),
    "virtual": ("simulated_map_virtual",),
    "managed": ("cuMemAllocManaged", GLOBAL),
    "pinned": ("cuMemHostAlloc", PORTABLE),
}


class Memory:
    """Memory of a device, never given back: that would wait for queued work."""

    def __init__(self, n: int, dev: int, kind: str = "device") -> None:
        self.n, self.dev, self.kind = n, dev, kind
        name, *flags = _ALLOCATORS[kind]
        with on(dev):
            self.start = given(name, n, *flags) if n else 0

    def now(self, offset: int = 0, n: int | None = None) -> bytes:
        """What is in it now, whatever is queued."""
        n = self.n - offset if n is None else n
        found = ctypes.create_string_buffer(max(n, 1))
        if n:
            library().simulated_read(found, self.start + offset, n)
        return found.raw[:n]

    def put(self, data: bytes, offset: int = 0) -> None:
        """Change it now, whatever is queued."""
        if data:
            library().simulated_write(self.start + offset, data, len(data))


class Pool:
    """Memory of earlier tests, used again: each test begins with other bytes in it."""

    def __init__(self) -> None:
        self.free: list[Memory] = []
        self.lent: list[Memory] = []

    def get(self, n: int, dev: int, kind: str = "device") -> Memory:
        fits = (m for m in self.free if (m.n, m.dev, m.kind) == (n, dev, kind))
        memory = next(fits, None)
        if memory is None:
            memory = Memory(n, dev, kind)
        else:
            self.free.remove(memory)
        self.lent.append(memory)
        memory.put(b"\xee" * n)
        return memory

    def count(self, kind: str) -> int:
        """How many allocations of a kind there are."""
        return sum(memory.kind == kind for memory in self.free + self.lent)

    def reset(self) -> None:
        """Everything that was lent is free again; all work on it must have run."""
        self.free += self.lent
        self.lent = []


def bytes_of(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()
