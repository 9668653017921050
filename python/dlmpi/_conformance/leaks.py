"""Repeats the calls of a case thousands of times, good and failing ones, and says what was left.

Knows nothing of right values: the probe judges these. Three things are watched: reference counts,
the interpreter's memory blocks, and the memory of the process, where a producer's own structures
are.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlmpi._conformance import oracle
from dlmpi._conformance.table import Case

__all__ = ["LeakError", "Tally", "watch"]

ROUNDS = 5
#: What one call may leave on average; less than the smallest block of either allocator.
BLOCKS_PER_CALL, BYTES_PER_CALL = 0.5, 8
#: A round's growth in bytes that other threads of the process may cause.
NOISE = 4096


@dataclass
class Tally:
    """Calls that were made."""

    worked: int = 0
    failed: int = 0


class LeakError(AssertionError):
    """Something is left behind by every call."""


class _MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _memory() -> Callable[[], int]:
    """Return how to ask for the bytes in use: the C library's count, else resident pages."""
    library = ctypes.CDLL(None)
    try:
        ask = library.mallinfo2
    except AttributeError:

        def resident() -> int:
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096

        return resident
    ask.restype = _MallInfo

    def in_use() -> int:
        info = ask()
        return int(info.uordblks) + int(info.hblkhd)

    return in_use


def _actions(case: Case, tensor: Any, comm: Any, mpi: Any) -> list[Callable[[], object]]:
    """What a row allows, and what it forbids, as calls."""
    none = object()
    refused: list[Callable[[], object]] = [
        lambda: comm.Bcast([tensor, 1 << 40]),
        lambda: comm.Sendrecv(tensor, 0, recvbuf=none),
        lambda: comm.Sendrecv(b"", 0, recvbuf=[tensor, -1]),
    ]
    room = bytearray(4096)
    if ":" in case.send:
        return [
            *refused,
            lambda: comm.Sendrecv(tensor, 0, recvbuf=room),
            lambda: comm.Sendrecv(b"", 0, recvbuf=tensor),
        ]
    good: list[Callable[[], object]] = [
        lambda: comm.Sendrecv(tensor, 0, recvbuf=[room, mpi.BYTE]),
    ]
    if case.recv:
        good.append(lambda: comm.Sendrecv([b"", mpi.BYTE], 0, recvbuf=tensor))
    out = oracle.room(case.send, 1) if case.sum else None
    if out is not None:
        good.append(lambda: comm.Allreduce([tensor, 0], [out, 0]))
        refused.append(lambda: comm.Allreduce(tensor, out, op=mpi.OP_NULL))
    return good + refused


def _often(actions: list[Callable[[], object]], turns: int, tally: Tally) -> None:
    for action in actions:
        for _ in range(turns):
            try:
                action()
            except Exception:  # what is raised is judged elsewhere
                tally.failed += 1
            else:
                tally.worked += 1


def watch(
    case: Case, make: Callable[[], Any], comm: Any, mpi: Any, *, turns: int, tally: Tally
) -> None:
    """Run every call of a case `turns` times, counted; raise when something grows with them."""
    tensor, memory = make(), _memory()
    actions = _actions(case, tensor, comm, mpi)
    watched = (tensor, type(tensor), comm)
    each = max(turns // ROUNDS, 1)
    calls = each * len(actions)
    _often(actions, min(each, 200), Tally())  # caches fill
    gc.freeze()  # what a big library made at import need not be walked in every round
    gc.collect()
    held = [sys.getrefcount(thing) for thing in watched]
    blocks, bytes_ = [], []
    for _ in range(ROUNDS):
        before = sys.getallocatedblocks(), memory()
        _often(actions, each, tally)
        gc.collect()
        blocks.append(sys.getallocatedblocks() - before[0])
        bytes_.append(memory() - before[1])
    # A leak grows in every round; what a cache or another thread takes does not.
    if min(blocks) > each * BLOCKS_PER_CALL:
        raise LeakError(f"{min(blocks)} memory blocks are left by {calls} calls")
    if min(bytes_) > max(each * BYTES_PER_CALL, NOISE):
        raise LeakError(f"{min(bytes_)} bytes are left by {calls} calls")
    now = [sys.getrefcount(thing) for thing in watched]
    if max(abs(a - b) for a, b in zip(now, held, strict=True)) > each // 10:
        raise LeakError(f"reference counts went from {held} to {now}")
