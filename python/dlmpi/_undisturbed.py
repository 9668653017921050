"""Calls that make something of a communicator wait for its private duplicate, if it is under way.

Open MPI makes a duplicate of non-blocking collectives on the parent, and so it does inside these
calls: the two meet, and hang or fail. Each of these calls is collective over the communicator and
may wait for the other ranks anyway (MPI 4.1 section 7.4); `Idup` alone should not, and does.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from dlmpi import _native
from dlmpi._bound import mpi

__all__ = ["wait_in"]

#: By class of mpi4py's. Not `Create_group`: ranks outside may never have begun the duplicate.
_METHODS: dict[type, tuple[str, ...]] = {
    mpi.Comm: ("Dup", "Dup_with_info", "Clone", "Idup", "Idup_with_info", "Create", "Split"),
    mpi.Intracomm: (
        "Split_type",
        "Barrier_init",
        "Create_cart",
        "Create_graph",
        "Create_dist_graph",
        "Create_dist_graph_adjacent",
        "Create_intercomm",
        "Spawn",
        "Spawn_multiple",
        "Accept",
        "Connect",
    ),
    mpi.Cartcomm: ("Sub",),
    mpi.Win: ("Create", "Allocate", "Allocate_shared", "Create_dynamic"),
    mpi.File: ("Open",),
}


def _waiting(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, mpi.Intracomm) and value != mpi.COMM_NULL:
                _native.undisturbed(value)
        return real(*args, **kwargs)

    return method


def wait_in(classes: Iterable[type]) -> None:
    """Have the methods of these subclasses of mpi4py's wait."""
    for cls in classes:
        for base, names in _METHODS.items():
            if not issubclass(cls, base):
                continue
            for name in names:
                # Not every mpi4py has every method.
                real = getattr(cls, name, None)
                if real is None:
                    continue
                bound = getattr(real, "__self__", None) is cls
                setattr(cls, name, staticmethod(_waiting(real)) if bound else _waiting(real))
