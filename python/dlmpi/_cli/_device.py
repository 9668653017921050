"""The checks of `selftest --device`: memory of a GPU by the driver's own functions.

An MPI that hands device memory to other processes remembers what it has opened. An allocation that
is freed and made again, often at the same address, is other memory: a library that does not notice
delivers what was there before. So allocations are made anew for each round, and their contents are
compared by checksum with what they must be.
"""

from __future__ import annotations

import ctypes
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Driver", "checks", "find"]

_LEGACY_STREAM = 1
#: Bytes of the messages: a page and less, what is sent at once, what the receiver fetches.
_SIZES = (8, 4096, 65_544, (1 << 20) + 8)
_ROUNDS = 4


class Driver:
    """The CUDA driver with the primary context of one device current."""

    def __init__(self, library: Any, number: int) -> None:
        self._library = library
        self.number = number
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function, which must succeed."""
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed: error {code}")

    @contextmanager
    def memory(self, content: bytes) -> Iterator[Memory]:
        """Lend an allocation with this in it, once the work queued on its stream has run."""
        start = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(start), ctypes.c_size_t(len(content)))
        try:
            memory = Memory(self, start.value, content)
            yield memory
        finally:
            # Waits for what is queued, so that nothing writes to whoever gets the memory next.
            self.call("cuMemFree_v2", start)


class Memory:
    """Device memory that says what it is by the array interface, with the stream to wait for."""

    def __init__(self, driver: Driver, start: int, content: bytes) -> None:
        self._driver, self._start, self.size = driver, start, len(content)
        # Read by queued work: kept as long as the memory.
        self._content = ctypes.create_string_buffer(content, max(len(content), 1))
        driver.call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(start),
            self._content,
            ctypes.c_size_t(self.size),
            ctypes.c_void_p(_LEGACY_STREAM),
        )

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._start

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size // 8,),
            "typestr": "<i8",
            "data": (self._start, False),
            "strides": None,
            "version": 3,
            "stream": _LEGACY_STREAM,
        }

    def now(self) -> bytes:
        """Return what is in it, as work queued on its stream sees it."""
        found = ctypes.create_string_buffer(max(self.size, 1))
        stream = ctypes.c_void_p(_LEGACY_STREAM)
        self._driver.call(
            "cuMemcpyDtoHAsync_v2",
            found,
            ctypes.c_uint64(self._start),
            ctypes.c_size_t(self.size),
            stream,
        )
        self._driver.call("cuStreamSynchronize", stream)
        return found.raw[: self.size]


def find(local_rank: int) -> Driver | str:
    """Return the driver on this rank's device, or why there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no CUDA driver here (libcuda.so.1)"
    count = ctypes.c_int()
    if (code := library.cuInit(0)) or library.cuDeviceGetCount(ctypes.byref(count)):
        return f"the CUDA driver does not start: error {code}"
    if not count.value:
        return "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES decides which)"
    try:
        return Driver(library, local_rank % count.value)
    except RuntimeError as error:
        return str(error)


def _values(rank: int, turn: int, size: int) -> bytes:
    """Eight bytes a number, other ones for each rank, round and place."""
    first = (rank + 1) * 1_000_003 + turn * 7_919
    return array("q", range(first, first + size // 8)).tobytes()


def _same(found: bytes, expected: bytes, what: str) -> None:
    sums = zlib.crc32(found), zlib.crc32(expected)
    if sums[0] != sums[1]:
        raise AssertionError(f"{what}: checksum {sums[0]:08x} in place of {sums[1]:08x}")


def _messages(world: Any, driver: Driver) -> None:
    rank, size = world.Get_rank(), world.Get_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    for turn in range(_ROUNDS):
        for n in _SIZES:
            with driver.memory(_values(rank, turn, n)) as out, driver.memory(b"\xff" * n) as into:
                world.Sendrecv(out, right, 7, into, left, 7)
                what = f"{n} bytes from rank {left}, allocation {turn}"
                _same(into.now(), _values(left, turn, n), what)


def _collectives(world: Any, driver: Driver) -> None:
    from dlmpi import MPI

    rank, size = world.Get_rank(), world.Get_size()
    for turn in range(_ROUNDS):
        root = turn % size
        for n in _SIZES:
            content = _values(rank, turn, n) if rank == root else b"\xff" * n
            with driver.memory(content) as whole:
                world.Bcast(whole, root=root)
                _same(whole.now(), _values(root, turn, n), f"{n} bytes by Bcast, allocation {turn}")
            every = b"".join(_values(peer, turn, n) for peer in range(size))
            with (
                driver.memory(_values(rank, turn, n)) as own,
                driver.memory(b"\xff" * n * size) as all_of_them,
            ):
                world.Allgather(own, all_of_them)
                what = f"{n} bytes by Allgather, allocation {turn}"
                _same(all_of_them.now(), every, what)
            firsts = [(peer + 1) * 1_000_003 + turn * 7_919 for peer in range(size)]
            places = range(n // 8)
            total = array("q", (sum(firsts) + size * place for place in places)).tobytes()
            with driver.memory(_values(rank, turn, n)) as terms:
                world.Allreduce(MPI.IN_PLACE, terms, op=MPI.SUM)
                _same(terms.now(), total, f"{n} bytes by Allreduce, allocation {turn}")


def checks(driver: Driver) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the checks and their names."""
    where = f"cuda:{driver.number}"
    yield f"{where}: messages, memory used again", lambda world: _messages(world, driver)
    yield f"{where}: collectives, memory used again", lambda world: _collectives(world, driver)
