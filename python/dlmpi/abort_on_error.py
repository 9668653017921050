"""``import dlmpi.abort_on_error``: an uncaught exception on one rank ends the whole job.

The traceback is printed with the rank in front of each line, and `MPI_Abort` ends all ranks with
exit code 1 (130 after Ctrl-C), which would otherwise wait for the failed one for ever. Threads
count, too. `python -m dlmpi run` does the same without an import, and also for `sys.exit` with a
code other than 0, which no hook of Python hears.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dlmpi import _failure

__all__ = ["install"]

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

_before: _Hook = sys.__excepthook__
_before_thread: Callable[[Any], object] = threading.excepthook


def install() -> None:
    """Put the hooks before those that are there; once."""
    global _before, _before_thread  # noqa: PLW0603
    if sys.excepthook is not _uncaught:
        _before = sys.excepthook
        sys.excepthook = _uncaught
    if threading.excepthook is not _uncaught_in_thread:
        _before_thread = threading.excepthook
        threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _before is sys.__excepthook__ and _failure.world() is not None:
        _failure.report(error, trace)
    else:
        # Somebody else's words (a notebook's, a debugger's), then our end.
        _before(kind, error, trace)
    _failure.leave(_failure.code_of(error))


def _uncaught_in_thread(failure: threading.ExceptHookArgs) -> None:
    error = failure.exc_value
    if error is None or isinstance(error, SystemExit):
        _before_thread(failure)  # which ignores them: they end the thread only
        return
    name = failure.thread.name if failure.thread is not None else "?"
    if _before_thread is threading.__excepthook__ and _failure.world() is not None:
        _failure.report(error, failure.exc_traceback, f"Exception in thread {name}:\n")
    else:
        _before_thread(failure)
    _failure.leave(_failure.code_of(error))


install()
