"""The end of a job by one rank that fails: its traceback with its rank, then `MPI_Abort`.

The other ranks would wait for the failed one inside MPI, for ever. Starts nothing: a process
without MPI, or a job of one rank, ends as Python ends it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dlmpi import _native

__all__ = ["before_leaving", "code_of", "leave", "report", "world"]

#: Called with the reason before this rank ends the job.
before_leaving: Callable[[str], None] | None = None
_last_error = ""


def world() -> Any:
    """Return `COMM_WORLD` if MPI runs in this process with other ranks, and no parent owns it."""
    from dlmpi import _children

    module = sys.modules.get("dlmpi.MPI")
    if module is None or _children.parent() is not None:
        return None
    mpi: Any = module
    if not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    return mpi.COMM_WORLD if mpi.COMM_WORLD.Get_size() > 1 else None


def code_of(error: BaseException) -> int:
    """Return the exit code of a process that ends by this exception."""
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def report(error: BaseException, trace: TracebackType | None = None, where: str = "") -> None:
    """Print the traceback, the rank in front of each line: those of several ranks interleave."""
    global _last_error  # noqa: PLW0603
    _last_error = "".join(traceback.format_exception_only(error)).strip()
    everyone = world()
    label = f"[rank {everyone.Get_rank()}] " if everyone is not None else ""
    text = where + "".join(
        traceback.format_exception(type(error), error, trace or error.__traceback__)
    )
    # torch's hook has a buffer in place of standard error, which this end would lose.
    stream = sys.__stderr__ or sys.stderr
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        stream.write("".join(f"{label}{line}\n" for line in text.splitlines()))
        stream.flush()


def leave(code: int) -> int:
    """End the whole job if this rank failed (a `code` other than 0) and others would wait."""
    everyone = world() if code else None
    if everyone is not None:
        try:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            if before_leaving is not None:
                before_leaving(_last_error or f"exit code {code}")
            # The launcher kills at once: let it read first what was written.
            time.sleep(0.3)
        finally:
            # Also after a second Ctrl-C.
            if threading.current_thread() is not threading.main_thread():
                # MPICH's may return: whoever joins this thread would go on.
                with contextlib.suppress(RuntimeError):  # mpi4py alone is in use
                    _native.abort(everyone, code)
            everyone.Abort(code)
    return code
