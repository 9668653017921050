"""Windows and files that take any tensor.

Memory is meant as it lies, as in mpi4py. What an operation works on is held until the window or
file says that it is done. These classes stand for mpi4py's in :mod:`dlmpi.MPI`, because programs
make their objects by class methods.
"""

import copyreg
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from dlmpi import _native
from dlmpi._bound import NATIVE, mpi
from dlmpi._standin import StandIn, reduced

__all__ = ["File", "Message", "Win", "lent"]

_T = TypeVar("_T")


def _native_methods(cls: type[_T]) -> type[_T]:
    for name, method in NATIVE[cls.__name__].items():
        setattr(cls, name, method)
    return cls


class _Holding:
    """Keeps what operations work on, by the rank that they go to."""

    __slots__ = ()

    _held: _native.Outstanding
    #: Where its collectives are numbered; unset where they are not, or somebody else made it.
    _seat: _native.Seat | None

    def _hold(self, rank: int | None, hold: _native.Hold) -> None:
        if getattr(self, "_held", None) is None:
            self._held = _native.Outstanding()  # type: ignore[misc]  # a slot of the class itself
        self._held.add(rank, hold)

    def _release(self, rank: int | None = None) -> None:
        held = getattr(self, "_held", None)
        if held is not None:
            held.release(rank)


def lent(memory: Any) -> Any:
    """Return the buffer that mpi4py takes instead of a tensor, and what ends its loan."""
    if memory is None or memory is mpi.BOTTOM:
        return memory, lambda: None
    borrowed = _native.borrow(memory, True)
    return borrowed.__enter__(), borrowed.__exit__


def _ending(cls: type[mpi.Win], name: str) -> Callable[..., Any]:
    """Return the method `name`, after which operations (to the rank that it names) are over."""
    real = getattr(cls, name)
    if name == "Unlock":

        def of_rank(self: Any, rank: int) -> None:
            real(self, rank)
            self._release(rank)

        of_rank.__doc__ = real.__doc__
        return of_rank

    def of_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(self, *args, **kwargs)
        self._release()
        return result

    of_all.__doc__ = real.__doc__
    return of_all


@_native_methods
class Win(_Holding, mpi.Win, metaclass=StandIn):
    """An `mpi4py.MPI.Win` over and with any tensor."""

    __slots__ = ("_held", "_rooms", "_seat")

    #: Bytes of each rank's memory and of a displacement there, in turn; unset where not all told.
    _rooms: tuple[int, ...] | None

    @classmethod
    def Create(
        cls,
        memory: Any,
        disp_unit: int = 1,
        info: mpi.Info = mpi.INFO_NULL,
        comm: mpi.Intracomm = mpi.COMM_SELF,
    ) -> "Win":
        """Create a window over a tensor's memory.

        The tensor is held until the window is freed.
        """
        buffer, end = lent(memory)
        try:
            return super().Create(buffer, disp_unit, info, comm)
        finally:
            end()

    def Attach(self, memory: Any) -> None:
        """Attach a tensor's memory to a dynamic window.

        The tensor is held until it is detached.
        """
        buffer, end = lent(memory)
        try:
            super().Attach(buffer)
        finally:
            end()

    def Detach(self, memory: Any) -> None:
        """Detach memory from a dynamic window.

        The tensor is no longer held.
        """
        buffer, end = lent(memory)
        try:
            super().Detach(buffer)
        finally:
            end()


for _name in (
    "Fence",
    "Complete",
    "Unlock",
    "Unlock_all",
    "Free",
):
    setattr(Win, _name, _ending(mpi.Win, _name))


@_native_methods
class File(_Holding, mpi.File, metaclass=StandIn):
    """An `mpi4py.MPI.File` that reads into and writes from any tensor."""

    __slots__ = ("_held", "_seat")


@_native_methods
class Message(mpi.Message, metaclass=StandIn):
    """An `mpi4py.MPI.Message` that is received into any tensor."""

    __slots__ = ("_bytes",)

    #: Its length, where the native half must know it before it receives; unset where it need not.
    _bytes: int


for _class in (Win, File, Message):
    copyreg.pickle(_class.__mro__[-2], partial(reduced, _class))
