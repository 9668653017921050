"""Stopping at the same step everywhere: one rank is told by a signal, all ranks learn it together.

Schedulers announce the end of a job (time limit, preemption) by a signal that may reach some ranks
only, or each one at another step. The answer of `stop_requested` is the same on all ranks of a
call, so that all of them save and leave the loop after the same step.
"""

from __future__ import annotations

import signal
import threading
from array import array
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["stop_requested", "watch"]

_requested = False
_watched: dict[int, Any] = {}


def watch(*signals: int) -> None:
    """Take these signals (SIGTERM, unless told otherwise) as a wish to stop, from now on.

    Slurm's `--signal=USR1@120` sends another one: `watch(signal.SIGTERM, signal.SIGUSR1)`. A
    handler in Python that was there before is called, too. Only the main thread can do this.
    """
    for number in signals or (signal.SIGTERM,):
        if number not in _watched:
            _watched[number] = signal.signal(number, _handler)


def _handler(number: int, frame: FrameType | None) -> None:
    global _requested  # noqa: PLW0603
    _requested = True
    earlier: Callable[[int, FrameType | None], object] | int | None = _watched.get(number)
    if callable(earlier):
        earlier(number, frame)


def stop_requested(comm: Intracomm | None = None) -> bool:
    """Whether any rank of `comm` (`COMM_WORLD`) was asked to stop; collective: once per step.

    The first call watches SIGTERM; call `watch` before a long start, or for other signals.
    """
    from dlmpi import MPI

    if not _watched:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("call dlmpi.stop.watch() in the main thread before this")
        watch()
    flag = array("i", [_requested])
    everyone: Any = MPI.COMM_WORLD if comm is None else comm
    everyone.Allreduce(MPI.IN_PLACE, flag, op=MPI.MAX)
    return bool(flag[0])
