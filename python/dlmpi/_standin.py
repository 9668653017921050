"""The metaclass of classes that stand for mpi4py's in :mod:`dlmpi.MPI`, because programs make their
objects by class methods. mpi4py's own objects are instances of them."""

from typing import Any, Self

from dlmpi._bound import mpi

__all__ = ["Made", "StandIn", "reduced"]


class StandIn(type):
    """The class of stand-ins for classes of mpi4py: objects and subclasses of these are theirs."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls._is_ours():
            return isinstance(instance, cls._real())
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls._is_ours():
            return issubclass(subclass, cls._real())
        return super().__subclasscheck__(subclass)

    def _is_ours(cls) -> bool:
        return cls.__module__.partition(".")[0] == __package__

    def _real(cls) -> type:
        return next(base for base in cls.__mro__ if base.__module__ == mpi.__name__)


class Made:
    """Class methods that make an object of a handle: one of the class they are called on."""

    __slots__ = ()

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        """Create object from MPI handle."""
        return cls(super().fromhandle(handle))  # type: ignore[misc,call-arg]

    @classmethod
    def fromint(cls, arg: int) -> Self:
        """Translate integer handle to object."""
        return cls(super().fromint(arg))  # type: ignore[misc,call-arg]

    @classmethod
    def f2py(cls, arg: int) -> Self:
        """Convert Fortran handle to object."""
        return cls(super().f2py(arg))  # type: ignore[misc,call-arg]


def reduced(stand_in: type, instance: Any) -> Any:
    """Return how an object of mpi4py's is pickled: as one of the class that stands for its own."""
    how = instance.__reduce__()
    if isinstance(how, str):
        return how
    return how[0], tuple(stand_in if item is type(instance) else item for item in how[1])
