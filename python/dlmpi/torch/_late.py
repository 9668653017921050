"""Operations that do not end in time: the error that says who is missing, and the clock for those
that no thread of ours waits for."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

__all__ = ["LateError", "call_at", "late"]

#: How long the other ranks are given to say where they are.
GRACE = 3.0


class LateError(RuntimeError):
    """An operation did not end in time; the text names it and the ranks that are missing."""


def late(what: str, pending: Any, limit: float, peer: int | None) -> LateError:
    """Return the error of an operation under way; asks the other ranks where they are.

    A message has a peer (or any) and no number among the group's calls, so only the peer is named.
    """
    if peer is None:
        who = pending.arrivals(GRACE)
    else:
        who = f"waiting for rank {peer}" if peer >= 0 else "no rank has sent a message"
    return LateError(
        f"{what} did not end within its timeout of {limit:g} s: {who}. Look for an earlier error "
        "there; init_process_group(timeout=...) gives slow ranks more time"
    )


_heap: list[tuple[float, int, Callable[[], None]]] = []
_changed = threading.Condition()
_numbers = count()
_thread: threading.Thread | None = None


def call_at(deadline: float, function: Callable[[], None]) -> None:
    """Call `function` when the monotonic clock has reached the deadline, on a thread for that."""
    global _thread  # noqa: PLW0603
    with _changed:
        heapq.heappush(_heap, (deadline, next(_numbers), function))
        if _thread is None:
            _thread = threading.Thread(target=_run, name="dlmpi-deadlines", daemon=True)
            _thread.start()
        elif _heap[0][0] == deadline:
            _changed.notify()


def _run() -> None:
    while True:
        with _changed:
            now = time.monotonic()
            while not _heap or _heap[0][0] > now:
                _changed.wait(_heap[0][0] - now if _heap else None)
                now = time.monotonic()
            _, _, function = heapq.heappop(_heap)
        function()
