"""Collectives that mpi4py's own methods carry out: announced, so that they are numbered, compared
with what the other ranks call, and timed, as those of the native half are.

:data:`TABLE` says of each method what ranks compare besides which one it is: the root and the
reduce operation where it has them, and what else MPI wants equal. Objects may differ in anything.
Not here: what MPI does not make all ranks of one communicator call (`Create_group`, fault
tolerance), what may not wait for the others (`Idup`, persistent and non-blocking calls of files),
and `Free` and `Disconnect` of communicators, which programs call when they fail.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from itertools import product
from typing import Any

from dlmpi import _native
from dlmpi._bound import mpi
from dlmpi.memory import Win

__all__ = ["METHODS", "TABLE", "announce_in", "objects"]

_announce, _announce_at = _native.announce, _native.announce_at
_NOTHING = nullcontext()


def _to_all(real: Any, kind: _native.Kind) -> Callable[..., Any]:
    def method(self: Any, sendobj: Any) -> Any:
        call = _announce(self, kind)
        if call is None:
            return real(self, sendobj)
        with call:
            return real(self, sendobj)

    return method


#: Methods of objects that are announced here; other collectives of objects announce themselves.
_OBJECTS = ("neighbor_allgather", "neighbor_alltoall")


def objects(cls: type) -> dict[str, Callable[..., Any]]:
    """Return the methods of objects that a class of mpi4py's defines itself, announced."""
    made: dict[str, Callable[..., Any]] = {}
    for name in _OBJECTS:
        if name in vars(cls):
            real = vars(cls)[name]
            made[name] = wraps(real)(_to_all(real, _native.Kind(name)))
    return made


@dataclass(frozen=True)
class _Row:
    """A method as ranks compare it."""

    #: Of its parameters those that come first, as far as they are looked at.
    parameters: str = ""
    #: The parameter that is the root.
    root: str = ""
    #: What must be equal besides, of the parameters given, and its name.
    same: Callable[[dict[str, Any]], object] | None = None
    label: str = ""
    #: Under another name it is the same call of MPI's.
    kind: str = ""
    #: Whether it should end in time: who waits for a client may wait for ever.
    timed: bool = True
    #: Whether it makes a window or a file, and whether it ends one.
    makes: bool = False
    ends: bool = False


def _one(name: str, default: object = None) -> Callable[[dict[str, Any]], object]:
    return lambda given: given.get(name, default)


def _lists(*names: str) -> Callable[[dict[str, Any]], object]:
    """What says the same in whatever sequence it is written."""

    def listed(value: Any) -> object:
        try:
            return [int(item) for item in value]
        except TypeError:
            return value

    return lambda given: [listed(given.get(name)) for name in names]


def _epoch(given: dict[str, Any]) -> object:
    # If any rank gives these, all do (MPI 4.1, section 12.5.5).
    return given.get("assertion", 0) & (mpi.MODE_NOPRECEDE | mpi.MODE_NOSUCCEED)


def _title(base: type, name: str) -> str:
    return f"{base.__name__}.{name}" if base in {mpi.Win, mpi.File} else name


_PLAIN = _Row()
_SPAWN = _Row("command args maxprocs info root", "root")
_MEET = _Row("port_name info root", "root", timed=False)
_MAKES = _Row(makes=True)
_ENDS = _Row(ends=True)

#: By class of mpi4py's and method.
TABLE: dict[type, dict[str, _Row]] = {
    mpi.Comm: {
        "Dup": _PLAIN,
        "Clone": _Row(kind="Dup"),
        "Dup_with_info": _PLAIN,
        "Create": _PLAIN,
        "Split": _PLAIN,
        "Split_type": _PLAIN,
        "Set_info": _PLAIN,
    },
    mpi.Intracomm: {
        "Create_cart": _Row("dims periods", same=_lists("dims"), label="dims"),
        "Create_graph": _Row("index edges", same=_lists("index", "edges"), label="index and edges"),
        "Create_dist_graph": _PLAIN,
        "Create_dist_graph_adjacent": _PLAIN,
        "Create_intercomm": _Row("local_leader", "local_leader"),
        "Spawn": _SPAWN,
        "Spawn_multiple": _SPAWN,
        "Accept": _MEET,
        "Connect": _MEET,
    },
    mpi.Cartcomm: {"Sub": _PLAIN},
    mpi.Win: {
        "Create": _MAKES,
        "Allocate": _MAKES,
        "Allocate_shared": _MAKES,
        "Create_dynamic": _MAKES,
        "Fence": _Row("assertion", same=_epoch, label="assertions"),
        "Free": _ENDS,
        "Set_info": _PLAIN,
    },
    mpi.File: {
        "Open": _Row("comm filename amode", same=_one("amode"), label="amode", makes=True),
        "Close": _ENDS,
        "Set_size": _Row("size", same=_one("size"), label="size"),
        "Preallocate": _Row("size", same=_one("size"), label="size"),
        "Set_view": _Row(
            "disp etype filetype datarep", same=_one("datarep", "native"), label="datarep"
        ),
        "Set_atomicity": _Row("flag", same=_one("flag"), label="flag"),
        "Set_info": _PLAIN,
        "Sync": _PLAIN,
        "Seek_shared": _Row("offset whence", same=_lists("offset"), label="offset"),
    },
}


#: All methods that are announced here, by the names that errors give them.
METHODS = (
    # These announce themselves.
    *("bcast", "scatter", "gather", "allgather", "alltoall"),
    *("reduce", "allreduce", "scan", "exscan"),
    *_OBJECTS,
    *(_title(base, name) for base, rows in TABLE.items() for name in rows),
)


def _given(row: _Row, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(row.parameters.split(), args, strict=False)), **kwargs}


def _arguments(row: _Row, given: dict[str, Any]) -> tuple[Any, Any]:
    root = given.get(row.root, 0) if row.root else None
    return root, row.same(given) if row.same else None


def _of_comm(real: Callable[..., Any], row: _Row, kind: _native.Kind) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        root, same = _arguments(row, _given(row, args, kwargs))
        call = _announce(self, kind, root, None, same)
        if not row.timed:
            call = None
        with call or _NOTHING:
            return real(self, *args, **kwargs)

    return method


def _of_seat(real: Callable[..., Any], row: _Row, kind: _native.Kind) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _, same = _arguments(row, _given(row, args, kwargs))
        with _announce_at(getattr(self, "_seat", None), kind, same) or _NOTHING:
            result = real(self, *args, **kwargs)
        if row.ends:
            self._seat = None
        return result

    return method


def _rooms(win: mpi.Win, comm: Any, together: bool) -> tuple[int, ...] | None:
    """Return each rank's bytes of a window and of a displacement there, where all ranks tell."""
    sizes = (win.Get_attr(mpi.WIN_SIZE), win.Get_attr(mpi.WIN_DISP_UNIT))
    mine = array("q", [int(size or 0) for size in sizes])
    if not together:  # plain, or alone
        return tuple(mine) if comm.size == 1 else None
    rooms = array("q", bytes(mine.itemsize * len(mine) * comm.size))
    mpi.Comm.Allgather(comm, [mine, mpi.INT64_T], [rooms, mpi.INT64_T])
    return tuple(rooms)


def _making(real: Callable[..., Any], row: _Row, kind: _native.Kind) -> Callable[..., Any]:
    @wraps(real)
    def method(*args: Any, **kwargs: Any) -> Any:
        given = _given(row, args, kwargs)
        comm = next((v for v in (*args, *kwargs.values()) if isinstance(v, mpi.Intracomm)), None)
        call = None
        if comm is not None:
            _, same = _arguments(row, given)
            call = _announce(comm, kind, None, None, same, True)
        with call or _NOTHING:
            made = real(*args, **kwargs)
            seat = None if call is None else call.seat()
            made._seat = seat
            if isinstance(made, Win) and made.flavor != mpi.WIN_FLAVOR_DYNAMIC:
                made._rooms = _rooms(made, comm or mpi.COMM_SELF, seat is not None)
        return made

    return method


def announce_in(classes: Iterable[type]) -> None:
    """Announce the collectives of these subclasses of mpi4py's, by the table."""
    for cls, (base, rows) in product(classes, TABLE.items()):
        for name, row in rows.items() if issubclass(cls, base) else ():
            real = getattr(cls, name, None)
            if real is None:
                continue  # not every mpi4py has every method
            kind = _native.Kind(row.kind or _title(base, name), row.label)
            if row.makes:
                setattr(cls, name, staticmethod(_making(real, row, kind)))
            else:
                wrap = _of_seat if issubclass(cls, (mpi.Win, mpi.File)) else _of_comm
                setattr(cls, name, wrap(real, row, kind))
