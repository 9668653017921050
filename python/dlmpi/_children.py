"""Child processes of an MPI process: noticed, and never allowed to start or call MPI.

MPI belongs to the process that a launcher started. A child inherits the launcher's variables (so
another `MPI_Init` would abort or hang the job) or, when forked, the memory of the library (so its
calls would corrupt the parent's). DataLoader workers and pools are such children, and they import
the script's modules again: importing `dlmpi.MPI` there works, communication raises.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import platform
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ClassMethodDescriptorType, ModuleType
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


def _marker() -> tuple[Parent, int, str] | None:
    """Return the marked process among the ancestors, its PMI connection and its names."""
    fields = os.environ.get(MARKER, "").split(" ")
    if len(fields) != 5 or not all(field.isdecimal() for field in fields[:4]):
        return None
    pid, rank, size, socket = map(int, fields[:4])
    return (Parent(pid, rank, size), socket, fields[4]) if pid != os.getpid() else None


def _marked() -> Parent | None:
    """Return the marked process that started this one, unless a launcher stood between them."""
    found = _marker()
    if found is None:
        return None
    process, socket, names = found
    # A rank that runs `mpiexec` itself: its ranks have names, or at least a connection, of their
    # own. (In a worker the number of the parent's connection may belong to anything by now.)
    direct = _worker() or os.getppid() == process.pid
    if names != _names() or (not direct and _pmi_socket() not in (0, socket)):
        return None
    return process


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


#: Attributes of a communicator that ask nothing of the library.
_HARMLESS = frozenset(
    ("fromhandle", "f2py", "py2f", "handle", "tohandle", "toint", "fromint", "free")
)
_classes: list[type] = []
#: Functions of classes, which need no object: what they make or complete would be the parent's.
_statics: list[tuple[type, str]] = []
_modules: list[dict[str, Any]] = []


def _answer(comm: object, name: str) -> Any:
    """Answer for the parent: rank and size in its world, or in `COMM_SELF`."""
    world = object.__getattribute__(comm, "_kept") == "COMM_WORLD" and _parent is not None
    rank, size = (_parent.rank, _parent.size) if world and _parent else (0, 1)
    value = rank if name in ("rank", "Get_rank") else size
    return value if name in ("rank", "size") else lambda: value


def _forked_attribute(comm: object, name: str) -> Any:
    """The attributes of communicators, requests, windows and files in a forked child, which has its
    parent's memory."""
    value = object.__getattribute__(comm, name)
    harmless = name[:1] == "_" or name in _HARMLESS or name in ("Get_rank", "Get_size")
    return value if harmless or not callable(value) else _refuse(name)


def _fresh_attribute(comm: object, name: str) -> Any:
    """The attributes of communicators where MPI never started: even a question would abort."""
    if name[:1] == "_" or name in _HARMLESS:
        return object.__getattribute__(comm, name)
    if name in ("rank", "size", "Get_rank", "Get_size"):
        return _answer(comm, name)
    if inspect.isdatadescriptor(getattr(type(comm), name)):
        raise refusal(name)
    return _refuse(name)


def _off(forked: bool) -> None:
    """Replace what would call MPI by refusals, in our classes and in our modules.

    One attribute per class and not one per method: a fork must not take milliseconds longer.
    """
    attribute = _forked_attribute if forked else _fresh_attribute
    for cls in _classes:
        type.__setattr__(cls, "__getattribute__", attribute)
    for cls, name in _statics if forked else ():
        type.__setattr__(cls, name, staticmethod(_refuse(name)))
    for names in _modules:
        _off_module(names)


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
    if _parent is None and (found := _marker()) is not None:
        _parent = found[0]
        _off(forked=True)


def object_of(cls: Callable[..., _C], mpi: ModuleType, name: str) -> _C:
    """Return a predefined communicator of mpi4py's as an object of `cls`, MPI started or not."""
    real = getattr(mpi, name)
    # Given `real`, the class would ask the library about it, which aborts before `MPI_Init`.
    ours = cls()
    ctypes.memmove(mpi._addressof(ours), mpi._addressof(real), mpi._sizeof(mpi.Comm))
    return ours


def _functions(cls: type) -> set[str]:
    """Return the names of what can be called without an object, and asks the library."""
    kinds = (classmethod, staticmethod, ClassMethodDescriptorType)
    members = (item for base in cls.__mro__ for item in vars(base).items())
    names = {name for name, value in members if isinstance(value, kinds)}
    return {name for name in names if not name.startswith("_") and name not in _HARMLESS}


def guard(classes: tuple[type, ...], others: tuple[type, ...] = ()) -> None:
    """Turn the objects of these classes off if this is a child, and in each one forked later; there
    also their functions, and those of `others`."""
    first = not _classes
    _classes.extend(classes)
    _statics.extend((cls, name) for cls in (*classes, *others) for name in _functions(cls))
    if _parent is not None:
        _off(forked=False)
    elif first:
        os.register_at_fork(after_in_child=_after_fork)


def guard_module(names: dict[str, Any]) -> None:
    """Do the same for the functions of a module, given its names."""
    _modules.append(names)
    if _parent is not None:
        _off_module(names)
