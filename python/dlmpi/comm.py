"""mpi4py's communicators with native buffer methods.

One subclass per class of mpi4py's. Their buffer methods are method descriptors of the extension, so
no Python frame lies between the caller and MPI; every method that makes a communicator returns one
of ours. In :mod:`dlmpi.MPI` they stand for mpi4py's, whose own classes stay what they are.
"""

import copyreg
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Literal, TypeVar

from dlmpi import _announced, _native, _start, _undisturbed, _watch, trace

# Its classes are what non-blocking calls return, also where nobody imports `dlmpi.MPI`.
from dlmpi import requests as _requests  # noqa: F401
from dlmpi._attached import attaching
from dlmpi._bound import NATIVE, mpi
from dlmpi._objects import METHODS, pickle
from dlmpi._standin import StandIn, reduced
from dlmpi.memory import File, Message, Win

__all__ = [
    "Cartcomm",
    "Comm",
    "Distgraphcomm",
    "Graphcomm",
    "Intercomm",
    "Intracomm",
    "mpi",
    "pickle",
    "predefined",
    "wrap",
]

_C = TypeVar("_C")

#: Methods that return mpi4py's own class, whatever they are called on. (`Dup` and `Clone` keep the
#: class of the communicator that they are called on.)
_MAKERS: dict[str, tuple[str, ...]] = {
    "Comm": ("Create", "Split", "Split_type", "Shrink", "Ishrink"),
    "Intracomm": (
        "Create_group",
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
    "Cartcomm": ("Sub",),
    "Intercomm": ("Merge",),
}

#: Class methods that do the same.
_CLASS_MAKERS: dict[str, tuple[str, ...]] = {
    "Comm": ("Get_parent", "Join", "fromhandle", "fromint", "f2py"),
    "Intracomm": ("Create_from_group",),
    "Intercomm": ("Create_from_groups",),
}


def _returning_ours(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that turns the communicators in the result of ``real`` into ours."""

    @wraps(real)
    def method(*args: Any, **kwargs: Any) -> Any:
        return _adopt(real(*args, **kwargs))

    return method


def _matching(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `Improbe` whose message is ours and keeps its length, if there is one."""

    @wraps(real)
    def method(
        self: Any,
        source: int = mpi.ANY_SOURCE,
        tag: int = mpi.ANY_TAG,
        status: mpi.Status | None = None,
    ) -> Message | None:
        status = mpi.Status() if status is None else status
        found = real(self, source, tag, status)
        if found is None:
            return None
        message = Message(found)
        message._bytes = status.Get_elements(mpi.BYTE)
        return message

    return method


def _native_methods(cls: type[_C]) -> type[_C]:
    """Fill a subclass of a class of mpi4py's from the tables above."""
    bases = [base for base in cls.__mro__ if base.__module__ == mpi.__name__]
    for base in reversed(bases):
        for name in _MAKERS.get(base.__name__, ()):
            # Not every mpi4py has every method: the lists cover all of 4.x.
            if hasattr(base, name):
                setattr(cls, name, _returning_ours(getattr(base, name)))
        for name in _CLASS_MAKERS.get(base.__name__, ()):
            if hasattr(base, name):
                real = base.__dict__[name].__get__(None, cls)
                setattr(cls, name, staticmethod(_returning_ours(real)))
        if base is mpi.Comm:
            cls.Improbe = _matching(base.Improbe)  # type: ignore[attr-defined]
        own = METHODS.get(base.__name__, {})
        announced = _announced.objects(base)
        for name, method in {**NATIVE.get(base.__name__, {}), **own, **announced}.items():
            setattr(cls, name, method)
    attaching(cls)
    return cls


class _Kept:
    """What freeing and pickling mean for communicators that we do not own."""

    #: Unset: ours to free. A string: predefined, by this name. A communicator: the one shared with.
    _kept: Any

    __slots__ = ()

    def _owner(self) -> Any:
        return getattr(self, "_kept", None)

    def free(self) -> None:
        """Call `Free` if not null, predefined or shared."""
        if self._owner() is None:
            super().free()  # type: ignore[misc]
        elif not isinstance(self._owner(), str):
            _native.forget(self)

    def Free(self) -> None:
        """Free a communicator; one that is shared with another object is only let go."""
        if self._owner() is None or isinstance(self._owner(), str):
            super().Free()  # type: ignore[misc]
        else:
            _native.forget(self)

    def Disconnect(self) -> None:
        """Disconnect from a communicator; one that is shared is only let go."""
        if self._owner() is None or isinstance(self._owner(), str):
            super().Disconnect()  # type: ignore[misc]
        else:
            _native.forget(self)

    def Revoke(self) -> None:
        """Revoke a communicator, and what is kept besides it."""
        # First, since the function that MPICH 5 has ends the process, and mpi4py knows.
        super().Revoke()  # type: ignore[misc]
        if self != mpi.COMM_NULL:
            _native.revoke(self)

    def __reduce__(self) -> Any:
        if isinstance(self._owner(), str):
            return predefined, (self._owner(),)
        return super().__reduce__()


@_native_methods
class Comm(_Kept, mpi.Comm, metaclass=StandIn):
    """An `mpi4py.MPI.Comm` whose buffer methods take any tensor."""


@_native_methods
class Intracomm(_Kept, mpi.Intracomm, metaclass=StandIn):
    """An `mpi4py.MPI.Intracomm` whose buffer methods take any tensor."""


@_native_methods
class Cartcomm(_Kept, mpi.Cartcomm, metaclass=StandIn):
    """An `mpi4py.MPI.Cartcomm` whose buffer methods take any tensor."""


@_native_methods
class Graphcomm(_Kept, mpi.Graphcomm, metaclass=StandIn):
    """An `mpi4py.MPI.Graphcomm` whose buffer methods take any tensor."""


@_native_methods
class Distgraphcomm(_Kept, mpi.Distgraphcomm, metaclass=StandIn):
    """An `mpi4py.MPI.Distgraphcomm` whose buffer methods take any tensor."""


@_native_methods
class Intercomm(_Kept, mpi.Intercomm, metaclass=StandIn):
    """An `mpi4py.MPI.Intercomm` whose buffer methods take any tensor."""


#: The most special class first.
_CLASSES: tuple[tuple[type[mpi.Comm], type[mpi.Comm]], ...] = (
    (mpi.Cartcomm, Cartcomm),
    (mpi.Graphcomm, Graphcomm),
    (mpi.Distgraphcomm, Distgraphcomm),
    (mpi.Intracomm, Intracomm),
    (mpi.Intercomm, Intercomm),
    (mpi.Comm, Comm),
)
_OURS = tuple(ours for _, ours in _CLASSES)
for _real, _ours in _CLASSES:
    copyreg.pickle(_real, partial(reduced, _ours))


def _copy(comm: mpi.Comm) -> Any:
    """Return an object of our class with the same handle."""
    return next(ours for real, ours in _CLASSES if isinstance(comm, real))(comm)


def _adopt(value: Any) -> Any:
    """Turn what mpi4py made, alone or in a tuple, into ours, which owns it now."""
    if isinstance(value, tuple):
        return tuple(_adopt(item) for item in value)
    if isinstance(value, mpi.Comm) and not isinstance(value, _Kept):
        # The object goes, its handle stays: mpi4py frees nothing when an object is collected.
        return value if _is_constant(value) else _copy(value)
    if type(value) is mpi.Message:
        return Message(value)
    return value


_CONSTANTS = ("COMM_NULL", "COMM_SELF", "COMM_WORLD")


def _is_constant(comm: mpi.Comm) -> bool:
    return any(comm is getattr(mpi, name) for name in _CONSTANTS)


def wrap(
    comm: mpi.Comm,
    collectives: Literal["own", "mpi"] | None = None,
    *,
    allreduce: Literal["auto", "mpi", "own", "ring", "halving", "two-level"] | None = None,
) -> Any:
    """Return an mpi4py communicator as one of ours, sharing its handle.

    Freeing the result lets go of the communicator and never frees it; free the one it came from. A
    communicator that is ours already is returned as it is.

    With ``collectives="mpi"`` each collective on it is exactly one MPI call of the same name,
    without checks, so that its members need not all be dlmpi; what needs more (a ``bfloat16`` sum,
    ``dlmpi.AVG``) is a ``ValueError`` then. ``"own"`` takes that back. The choice belongs to the
    communicator, not to the object, and must be the same on all ranks that are dlmpi.

    ``allreduce`` says whose algorithms reductions on this communicator use, instead of
    ``DLMPI_ALLREDUCE``. It belongs to the communicator, too; all ranks say the same between the
    same collectives, best before the first one: the check compares it.
    """
    ours = _wrapped(comm)
    if collectives is not None:
        if collectives not in {"own", "mpi"}:
            raise ValueError(f"collectives: expected 'own' or 'mpi', got {collectives!r}")
        _native.set_plain(ours, collectives == "mpi")
    if allreduce is not None:
        _native.set_choice(ours, allreduce)
    return ours


def _wrapped(comm: mpi.Comm) -> Any:
    if not isinstance(comm, mpi.Comm):
        raise TypeError(f"comm: expected an mpi4py communicator, got {type(comm).__name__}")
    if isinstance(comm, _Kept):
        return comm
    for name in ("COMM_WORLD", "COMM_SELF"):
        if comm is getattr(mpi, name):
            return predefined(name)
    ours = _copy(comm)
    ours._kept = comm
    return ours


def _make_predefined(names: Iterable[str]) -> dict[str, Intracomm]:
    made = {name: _start.object_of(Intracomm, mpi, name) for name in names}
    for name, comm in made.items():
        comm._kept = name
    return made


_PREDEFINED = _make_predefined(("COMM_WORLD", "COMM_SELF"))


def predefined(name: str) -> Intracomm:
    """Return the predefined communicator of this name: there is one of each."""
    return _PREDEFINED[name]


_undisturbed.wait_in((*_OURS, Win, File), _MAKERS)
_announced.announce_in((*_OURS, Win, File))
_start.guard((*_OURS, Win, File, Message))
_watch.begin(mpi)
trace.watch((*_OURS, Win, File))
trace.begin(mpi)
