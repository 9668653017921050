"""Collectives that take too long: when the watch runs, and how long each thread's calls may take.

With ``DLMPI_TIMEOUT`` set, a rank whose collective does not end says which one, which ranks have
not arrived and what these are doing, and ends the job with exit code 124. The native engine does
that; what is here decides whether it runs and lends it the Python stack.
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlmpi import _native

__all__ = ["SETTING", "begin", "debugged", "timeout"]

SETTING = "DLMPI_TIMEOUT"

_begun = False


def begin(mpi: Any, wanted: bool = False) -> None:
    """Start the watch where `DLMPI_TIMEOUT` is set, or `wanted`; every rank must do so alike.

    The duplicate of ``COMM_WORLD`` that carries questions is begun here, before any collective.
    """
    global _begun  # noqa: PLW0603
    if _begun or not (wanted or os.environ.get(SETTING, "") not in ("", "0", "off")):
        return
    if not mpi.Is_initialized() or mpi.Is_finalized():
        return
    _begun = True
    # A file in memory, written by the signal's handler alone, of a signal that nobody else uses.
    stacks = os.memfd_create("dlmpi-stacks")
    number = signal.SIGRTMAX - 3
    faulthandler.register(number, file=stacks, all_threads=True)
    _native.watch_start(number, stacks)
    if debugged():
        _native.watch_limit(math.inf)


def debugged() -> bool:
    """Whether a Python debugger steps through this thread."""
    trace = sys.gettrace()
    where = str(getattr(trace, "__module__", "") or type(trace).__module__)
    return where.startswith(("pdb", "bdb", "pydevd", "_pydevd", "debugpy"))


@contextmanager
def timeout(seconds: float) -> Iterator[None]:
    """Let each collective that this thread starts inside take at most so many seconds.

    What happens then is what happens after ``DLMPI_TIMEOUT``: a report, and the end of the job with
    exit code 124. ``math.inf`` lets calls take as long as they like. Ranks that wait can name the
    late ones where ``DLMPI_TIMEOUT`` is set to anything (``inf`` too) on all ranks.
    """
    before = _native.watch_limit(math.inf if debugged() else seconds)
    try:
        yield
    finally:
        _native.watch_limit(before)
