"""Pickles whose tensors are not copied: the parts of a message, and objects out of a message.

What goes out is an ordinary pickle of protocol 5, so whoever reads pickles can read it. The memory
of large tensors is a part by itself, to be gathered by MPI. Behind the end of the pickle, where
other readers do not look, stands where that memory lies; `load` makes tensors of it where it is.
Knows nothing of MPI; how a framework's tensors are pickled is in `_pickle_reduce`.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

from dlmpi._pickle_reduce import reduce

__all__ = ["ALIGNMENT", "END", "WHOLE", "dump", "load", "loads"]

#: Where memory begins in a message, so that tensors made of it are aligned.
ALIGNMENT = 64
#: A shorter pickle is one part: Python writes nothing shorter by itself.
WHOLE = 1 << 16
#: Ends a message with a table; no pickle ends so, but with a full stop.
END = b"dlmpi\x005\n"
_SPAN = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
_BYTEARRAY8 = b"\x96"
_HEADER = 9
_NEXT_BUFFER = b"\x97"
#: Pickle code that does nothing, of two and of three bytes: None, or a 0, comes and goes.
_TWO, _THREE = b"N0", b"K\x000"

Part = bytes | bytearray | pickle.PickleBuffer


class _Parts:
    """The file that the pickler writes to: it hands over large memory without copying it."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.size = 0
        self.spans: list[tuple[int, int]] = []

    def write(self, data: Part) -> None:
        if isinstance(data, pickle.PickleBuffer):
            length = memoryview(data).nbytes
            last = self.parts[-1]
            # The header of a writable buffer; read-only ones are `bytes` for every reader.
            if isinstance(last, bytes) and last[-_HEADER : 1 - _HEADER] == _BYTEARRAY8:
                self._align()
                self.spans.append((self.size, length))
        else:
            length = len(data)
        self.parts.append(data)
        self.size += length

    def _align(self) -> None:
        last = self.parts[-1]
        assert isinstance(last, bytes)
        gap = -self.size % ALIGNMENT
        gap += ALIGNMENT if gap == 1 else 0
        padding = _THREE * (gap % 2) + _TWO * ((gap - 3 * (gap % 2)) // 2)
        self.parts[-1] = last[:-_HEADER] + padding + last[-_HEADER:]
        self.size += gap

    def finish(self) -> None:
        if self.spans:
            table = b"".join(_SPAN.pack(*span) for span in self.spans)
            self.write(table + _COUNT.pack(len(self.spans)) + END)


class _Pickler(pickle.Pickler):
    """Asks the rules for tensors first."""

    def reducer_override(self, obj: Any) -> Any:
        return reduce(obj)


def dump(obj: object) -> list[Part]:
    """Return the pickle of an object in parts; those of large tensors are their memory itself."""
    out = _Parts()
    _Pickler(out, 5).dump(obj)
    out.finish()
    return out.parts


def load(message: memoryview) -> Any:
    """Return the object of a message, given as writable bytes.

    Large tensors lie in the message's memory, which lives as long as any of them.
    """
    spans = _spans(message)
    if not spans:
        return pickle.loads(message)
    head: list[bytes | memoryview] = []
    buffers: list[memoryview] = []
    position = 0
    for start, length in spans:
        head += [message[position : start - _HEADER], _NEXT_BUFFER]
        position = start + length
        buffers.append(message[start:position])
    head.append(message[position:])
    return pickle.loads(b"".join(head), buffers=buffers)


def loads(data: Any) -> Any:
    """As `load`, for bytes that are read-only or the caller's: nothing lies in them afterwards."""
    message = memoryview(data).cast("B")
    if _spans(message):
        message = memoryview(bytearray(message))
    return load(message)


def _spans(message: memoryview) -> list[tuple[int, int]]:
    """Return where the memory of tensors lies; nothing for pickles of others."""
    end = len(message) - len(END) - _COUNT.size
    if end < 0 or message[end + _COUNT.size :] != END:
        return []
    (count,) = _COUNT.unpack_from(message, end)
    start = end - count * _SPAN.size
    if start < 0:
        raise pickle.UnpicklingError(f"a message speaks of {count} tensors in {len(message)} bytes")
    spans = list(_SPAN.iter_unpack(message[start:end]))
    position = 0
    for offset, length in spans:
        header = message[offset - _HEADER : offset] if offset >= position + _HEADER else b""
        if offset + length > start or header != _BYTEARRAY8 + _COUNT.pack(length):
            raise pickle.UnpicklingError(f"a message has no tensor of {length} bytes at {offset}")
        position = offset + length
    return spans
