"""Messages of pickles: gathered out of the memory of their parts, and room for those that arrive.

Knows nothing of methods, nor of how objects are pickled.
"""

from __future__ import annotations

import ctypes
import pickle as _stock
import struct
from itertools import accumulate
from typing import Any

from dlmpi import _pickle
from dlmpi._bound import mpi

__all__ = ["Counts", "Gathered", "Room", "count", "joined", "total"]

#: Counts of derived types are `int` on older libraries.
_BLOCK = 1 << 30


class _Anchor(ctypes.c_char * 1):  # type: ignore[misc]
    """What a request of mpi4py's holds until it is complete, and what we hang the parts on."""

    parts: Any


class Gathered:
    """The parts of a pickle as one message: `[anchor, 1, type]`, or the only part as it is."""

    def __init__(self, parts: list[Any]) -> None:
        blocks = [memoryview(part).cast("B") for part in map(_raw, parts)]
        self.size = sum(block.nbytes for block in blocks)
        self.type: Any = None
        if len(blocks) == 1 and self.size <= _BLOCK:
            self.message: list[Any] = [blocks[0], self.size, mpi.BYTE]
            return
        self.anchor = _Anchor()
        self.anchor.parts = parts
        base = mpi.Get_address(self.anchor)
        lengths, places = [], []
        for block in blocks:
            if not block.nbytes:
                continue
            start = mpi.Get_address(block) - base
            for offset in range(0, block.nbytes, _BLOCK):
                lengths.append(min(_BLOCK, block.nbytes - offset))
                places.append(start + offset)
        self.type = mpi.BYTE.Create_hindexed(lengths, places).Commit()
        self.message = [self.anchor, 1, self.type]

    def __enter__(self) -> Gathered:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.type is not None:
            self.type.Free()  # MPI keeps it for operations under way


def _raw(part: Any) -> Any:
    return part.raw() if isinstance(part, _stock.PickleBuffer) else part


class Room:
    """Aligned memory for messages, one behind the other."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.types: list[Any] = []
        if sum(sizes) < _pickle.WHOLE:
            # No tensor lies in these messages.
            self.starts = [0, *accumulate(sizes)][:-1]
            self.memory = memoryview(bytearray(sum(sizes)))
            return
        align = _pickle.ALIGNMENT
        ends = list(accumulate(-(-size // align) * align for size in sizes))
        total = (ends[-1] if ends else 0) + align
        memory: Any = mpi.buffer.allocate(total)
        skip = -memory.address % align
        self.memory = memoryview(memory)[skip:]
        self.starts = [0, *ends[:-1]]

    def message(self, index: int = 0) -> list[Any]:
        """Return the room of one message, as a receive buffer."""
        start, size = self.starts[index], self.sizes[index]
        room = self.memory[start : start + size]
        if size <= _BLOCK:
            return [room, size, mpi.BYTE]
        whole, rest = divmod(size, _BLOCK)
        places = [block * _BLOCK for block in range(whole + 1)]
        self.types.append(mpi.BYTE.Create_hindexed([_BLOCK] * whole + [rest], places).Commit())
        return [room, 1, self.types[-1]]

    def messages(self) -> list[Any]:
        """Return the rooms of all messages, as the receive buffer of a collective."""
        return [self.memory, (self.sizes, self.starts), mpi.BYTE]

    def put(self, index: int, parts: list[Any]) -> None:
        """Write this rank's own message. Open MPI's `Bcast` and `Allgatherv` choose algorithms and
        segments by the type that this rank gives, so all have to give the same: with one of its own
        parts ranks would wait for each other for ever."""
        start = self.starts[index]
        for part in map(_raw, parts):
            block = memoryview(part).cast("B")
            self.memory[start : start + block.nbytes] = block
            start += block.nbytes

    def done(self) -> None:
        """All messages have arrived."""
        for datatype in self.types:
            datatype.Free()

    def objects(self) -> list[Any]:
        """Return what has arrived; nothing has where the size is 0."""
        self.done()
        found = []
        for start, size in zip(self.starts, self.sizes, strict=True):
            found.append(_pickle.load(self.memory[start : start + size]) if size else None)
        return found


def count(size: int) -> list[Any]:
    return [struct.pack("q", size), 1, mpi.COUNT]


class Counts:
    """Room for one count per rank."""

    def __init__(self, number: int) -> None:
        self.memory = bytearray(8 * number)
        self.message = [self.memory, 1, mpi.COUNT]

    def values(self) -> list[int]:
        return list(struct.unpack(f"{len(self.memory) // 8}q", self.memory))


def total(parts: list[Any]) -> int:
    """Return the bytes of a message."""
    return sum(memoryview(part).nbytes for part in parts)


def joined(parts: list[Any]) -> bytes:
    return b"".join(map(_raw, parts))
