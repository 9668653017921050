"""Child processes of an MPI process: noticed, and never allowed to start or call MPI.

MPI belongs to the process that a launcher started. A child inherits the launcher's variables (so
another `MPI_Init` would abort or hang the job) or, when forked, the memory of the library (so its
calls would corrupt the parent's). DataLoader workers and pools are such children, and they import
the script's modules again: importing `dlmpi.MPI` there works, communication raises.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from dlmpi import launch

__all__ = ["MARKER", "Parent", "guard", "guard_module", "object_of", "parent", "remember"]

_C = TypeVar("_C")

#: Set by a process when MPI runs in it, for its children to read.
MARKER = "DLMPI_MPI_PROCESS"


@dataclass(frozen=True, slots=True)
class Parent:
    """The MPI process that this one is a child of."""

    pid: int
    rank: int
    size: int

    def __str__(self) -> str:
        who = f"rank {self.rank} of {self.size}" if self.size > 0 else "an MPI process"
        return f"{who} (process {self.pid})" if self.pid else who


#: Set once it is known that this process is a child.
_parent: Parent | None = None


def _pmi_socket() -> int:
    """Return what distinguishes the PMI connection of this process, or 0 if it holds none."""
    with suppress(OSError, ValueError, KeyError):
        found = os.fstat(int(os.environ["PMI_FD"]))
        return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0
    return 0


def _names() -> str:
    values = (f"{name}={value}" for name, value in launch.identity(os.environ).items())
    return ",".join(values).replace(" ", "_")


def remember(rank: int, size: int) -> None:
    """Mark this process as one in which MPI runs."""
    os.environ[MARKER] = f"{os.getpid()} {rank} {size} {_pmi_socket()} {_names()}"


def _worker() -> bool:
    """Whether multiprocessing started this process; true while it imports the script, too."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    current = process.current_process()
    return process.parent_process() is not None or getattr(current, "_inheriting", False)


def _marked() -> Parent | None:
    """Return the marked process that started this one, unless a launcher stood between them."""
    fields = os.environ.get(MARKER, "").split(" ")
    if len(fields) != 5:
        return None
    pid, rank, size, socket = map(int, fields[:4])
    if pid == os.getpid() or fields[4] != _names():
        return None
    # A rank that runs `mpiexec` itself: its ranks have names, or at least a connection, of their
    # own. (In a worker the number of the parent's connection may belong to anything by now.)
    direct = _worker() or os.getppid() == pid
    if not direct and _pmi_socket() not in (0, socket):
        return None
    return Parent(pid, rank, size)


def parent() -> Parent | None:
    """Return the MPI process that this one is a child of; None where MPI may start.

    A plain child process (`subprocess`) of an MPI process that no launcher started is free: it has
    nothing of its parent's, and is a job of one rank by itself.
    """
    global _parent  # noqa: PLW0603
    if _parent is None:
        wired = launch.wired(os.environ)
        marked = _marked()
        if marked is not None and (wired or _worker()):
            _parent = marked
        elif _worker() and wired:
            # MPI has not started in the parent, or was started there without dlmpi.
            _parent = Parent(os.getppid(), 0, 0)
    return _parent


def refusal(what: str) -> launch.LaunchError:
    """Return the error for a use of MPI in a child."""
    return launch.LaunchError(
        f"{what}: this process ({os.getpid()}) is a child of {_parent}, and MPI lives in that "
        "process only. Communicate there, and hand the data to this one (a multiprocessing queue, "
        "the arguments of the worker, shared memory)."
    )


def _refuse(name: str) -> Callable[..., Any]:
    def method(*_args: object, **_kwargs: object) -> Any:
        raise refusal(name)

    method.__name__ = method.__qualname__ = name
    return method


#: Methods that ask nothing of the library, and those that are answered for the parent below.
_HARMLESS = {"fromhandle", "f2py", "py2f", "tohandle", "toint", "fromint", "free"}
_classes: tuple[type, ...] = ()
_module: dict[str, Any] | None = None


def _rank(comm: Any) -> int:
    return _parent.rank if _parent and getattr(comm, "_kept", "") == "COMM_WORLD" else 0


def _size(comm: Any) -> int:
    return _parent.size if _parent and getattr(comm, "_kept", "") == "COMM_WORLD" else 1


def _off(forked: bool) -> None:
    """Replace what would call MPI by refusals, in our classes and in the module `dlmpi.MPI`."""
    for cls in _classes:
        names = {name: getattr(base, name) for base in cls.__mro__[:-1] for name in vars(base)}
        for name, value in names.items():
            if name.startswith("_") or name in _HARMLESS:
                continue
            if callable(value):
                if name not in ("Get_rank", "Get_size"):
                    setattr(cls, name, _refuse(name))
            elif not forked and name not in ("rank", "size", "handle"):
                setattr(cls, name, property(_refuse(name)))
        if not forked:
            # A forked child has its parent's memory, where the library itself can answer.
            cls.Get_rank, cls.Get_size = _rank, _size  # type: ignore[attr-defined]
            cls.rank, cls.size = property(_rank), property(_size)  # type: ignore[attr-defined]
    if _module is not None:
        _off_module(_module)


#: Functions of the module that may be called without MPI.
_FREE = (
    "Get_abi_info",
    "Get_abi_version",
    "Get_library_version",
    "Get_version",
    "Is_finalized",
    "Is_initialized",
    "get_vendor",
)


def _off_module(names: dict[str, Any]) -> None:
    builtin = type(len)
    for name, value in list(names.items()):
        function = isinstance(value, builtin) or type(value).__name__ == "cython_function_or_method"
        if function and not name.startswith("_") and name not in _FREE:
            names[name] = _refuse(name)
    names["Init"], names["Init_thread"] = _refuse("Init"), _refuse("Init_thread")
    # Scripts call these two while their modules are imported.
    names["Get_processor_name"] = platform.node
    names["Wtime"] = time.perf_counter


def _after_fork() -> None:
    global _parent  # noqa: PLW0603
    if _parent is None and (marked := _marked()) is not None:
        _parent = marked
        _off(forked=True)


def object_of(cls: Callable[..., _C], mpi: ModuleType, name: str) -> _C:
    """Return a predefined communicator of mpi4py's as an object of `cls`, MPI started or not."""
    real = getattr(mpi, name)
    # Given `real`, the class would ask the library about it, which aborts before `MPI_Init`.
    ours = cls()
    ctypes.memmove(mpi._addressof(ours), mpi._addressof(real), mpi._sizeof(mpi.Comm))
    return ours


def guard(classes: tuple[type, ...]) -> None:
    """Turn these classes of communicators off if this is a child, and in each one forked later."""
    global _classes  # noqa: PLW0603
    _classes = classes
    if _parent is not None:
        _off(forked=False)
    else:
        os.register_at_fork(after_in_child=_after_fork)


def guard_module(names: dict[str, Any]) -> None:
    """Do the same for the functions of a module, given its names."""
    global _module  # noqa: PLW0603
    _module = names
    if _parent is not None:
        _off_module(names)
