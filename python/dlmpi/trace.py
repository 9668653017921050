"""The trace of a job (``DLMPI_TRACE=job.json``), and the user's own stretches in it.

Every rank writes its operations into a file of its own, below ``job.json.ranks``, ten times a
second; the last rank to end brings them together as ``job.json``, for https://ui.perfetto.dev or
``chrome://tracing``. What a killed job left is brought together by ``python -m dlmpi trace merge``.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from dlmpi import _native

__all__ = ["SETTING", "annotate", "begin", "watch"]

SETTING = "DLMPI_TRACE"
#: Larger traces are left to `python -m dlmpi trace merge`: a job should end soon.
MERGED_BYTES = 100 << 20

#: What mpi4py's own methods serve and no rank announces, by the class whose objects have them. They
#: show up as calls without bytes; what is announced or native says more, by itself.
_OBJECTS = "send bsend ssend isend ibsend issend recv irecv sendrecv mprobe"
_WINDOWS = """Put Get Accumulate Get_accumulate Fetch_and_op Compare_and_swap Lock Unlock
    Lock_all Unlock_all Flush Flush_all Start Complete Post Wait"""
_FILES = r"(Read|Write)(?!.*(_all|_ordered))[a-z_]*"
_PERSISTENT = "Start Wait Test"

_begun = False
_classes: list[type] = []


def watch(classes: tuple[type, ...]) -> None:
    """Take these classes' calls of mpi4py's own methods into the trace, if there is to be one."""
    _classes.extend(classes)
    if _begun:
        _wrap(classes)


def _wrap(classes: Iterable[type]) -> None:
    for cls in classes:
        for method in list(_names(cls)):
            setattr(cls, method, _traced(cls, method))


def _names(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if cls.__name__ == "File":
            if re.fullmatch(_FILES, name):
                yield name
        elif name in _served(cls).split():
            yield name


def _served(cls: type) -> str:
    if cls.__name__ == "Win":
        return _WINDOWS
    if cls.__name__ == "Prequest":
        return "Startall"
    return _PERSISTENT if hasattr(cls, "Startall") else _OBJECTS


def _traced(cls: type, name: str) -> Callable[..., Any]:
    real: Callable[..., Any] = getattr(cls, name)
    title = f"{cls.__name__}.{name}" if cls.__name__ in ("Win", "File") else name
    request = hasattr(cls, "Startall")
    if request:
        title = f"Prequest.{name}"

    @wraps(real)
    def method(*args: Any, **kwargs: Any) -> Any:
        # A request's class may call that of its base.
        if request and name != "Startall" and type(args[0]) is not cls:
            return real(*args, **kwargs)
        start, failed = _native.trace_now(), True
        try:
            result = real(*args, **kwargs)
            failed = False
            return result
        finally:
            _native.trace_foreign(title, start, failed)

    # That of a class, which is bound to it already.
    return staticmethod(method) if name == "Startall" else method


def begin(mpi: Any) -> None:
    """Start to trace where `DLMPI_TRACE` names a file; local to each rank."""
    global _begun  # noqa: PLW0603
    name = os.environ.get(SETTING, "")
    if _begun or not name or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    _begun = True
    target = Path(name).absolute()
    parts = target.with_name(target.name + ".ranks")
    try:
        parts.mkdir(parents=True, exist_ok=True)
        rank = mpi.COMM_WORLD.Get_rank()
        _native.trace_start(str(parts / f"{rank:06}.json"), _node())
    except OSError as error:
        raise RuntimeError(f"{SETTING}={name}: {error}") from error
    _wrap(_classes)
    atexit.register(_end, target, parts, os.getpid())


def _node() -> str:
    """Return a name that processes have in common exactly if they share a clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{platform.node()} {boot}".strip()


def _end(target: Path, parts: Path, process: int) -> None:
    """Close this rank's file; the rank that closes the last one brings all together."""
    if os.getpid() != process:
        return  # a forked child: the file is its parent's
    _native.trace_stop()
    from dlmpi import _trace_files

    if sum(part.stat().st_size for part in parts.glob("*.json")) > MERGED_BYTES:
        return
    try:
        _trace_files.merge_if_complete(target, parts)
    except (OSError, ValueError) as error:
        print(f"dlmpi: {SETTING}: {error}; the ranks' files are in {parts}", file=sys.stderr)


@contextmanager
def annotate(name: str) -> Iterator[None]:
    """Show this stretch of the program under `name` in the trace, beside the operations."""
    start = _native.trace_now()
    try:
        yield
    finally:
        _native.trace_note(name, start)
