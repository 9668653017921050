"""The metaclass of classes that stand for mpi4py's in :mod:`dlmpi.MPI`, because programs make their
objects by class methods. mpi4py's own objects are instances of them."""

from typing import Any, Self

from dlmpi._bound import mpi

__all__ = [
    "PREDEFINED",
    "Constant",
    "Made",
    "StandIn",
    "predefined",
    "reduced",
    "stand_for_constants",
]


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


class Constant(Made):
    """A class whose predefined objects are ours too: there is one of each, pickled by its name."""

    __slots__ = ()

    #: Unset: not predefined.
    _name: str

    def free(self) -> None:
        """Call `Free` if not null or predefined."""
        if getattr(self, "_name", None) is None:
            super().free()  # type: ignore[misc]

    def __reduce__(self) -> Any:
        name = getattr(self, "_name", None)
        return super().__reduce__() if name is None else (predefined, (name,))


#: The objects of such classes that stand for mpi4py's constants, by name.
PREDEFINED: dict[str, Any] = {}


def predefined(name: str) -> Any:
    """Return the predefined object of this name."""
    return PREDEFINED[name]


def stand_for_constants(cls: Any) -> dict[int, Any]:
    """Return an object of `cls` for the `id` of each constant of the class that it stands for."""
    real = cls.__mro__[-2]
    made: dict[int, Any] = {}
    for name, value in vars(mpi).items():
        if isinstance(value, real):
            if id(value) not in made:
                made[id(value)] = cls(value)
                made[id(value)]._name = name
            PREDEFINED[name] = made[id(value)]
    return made
