"""Calls that make something of a communicator wait for its private duplicate, if it is under way.

Open MPI makes a duplicate of non-blocking collectives on the parent, and so it does inside these
calls: the two meet, and hang or fail. Each of these calls is collective over the communicator and
may wait for the other ranks anyway (MPI 4.1 section 7.4); `Idup` alone should not, and does.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from dlmpi import _native
from dlmpi._bound import mpi

__all__ = ["wait_in"]

#: Besides those that return communicators of another class, by class of mpi4py's.
_OTHERS: dict[type, tuple[str, ...]] = {
    mpi.Comm: ("Dup", "Dup_with_info", "Clone", "Idup", "Idup_with_info"),
    mpi.Intracomm: ("Barrier_init",),
    mpi.Win: ("Create", "Allocate", "Allocate_shared", "Create_dynamic"),
    mpi.File: ("Open",),
}
#: Of those: what is not collective over the communicator, and what works on a revoked one. Ranks
#: outside the group of `Create_group` may never have begun the duplicate.
_NOT = frozenset(("Create_group", "Mprobe", "Improbe", "Shrink", "Ishrink"))


def _waiting(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, mpi.Intracomm) and value != mpi.COMM_NULL:
                _native.undisturbed(value)
        return real(*args, **kwargs)

    return method


def wait_in(classes: Iterable[type], makers: Mapping[str, Iterable[str]]) -> None:
    """Have the methods of these subclasses of mpi4py's wait; `makers` by their class."""
    for cls in classes:
        own = [name for base in cls.__mro__ for name in makers.get(base.__name__, ())]
        others = [
            name for base, names in _OTHERS.items() if issubclass(cls, base) for name in names
        ]
        for name in {*own, *others} - _NOT:
            # Not every mpi4py has every method.
            real = getattr(cls, name, None)
            if real is None:
                continue
            bound = getattr(real, "__self__", None) is cls
            setattr(cls, name, staticmethod(_waiting(real)) if bound else _waiting(real))
