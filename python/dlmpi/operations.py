"""Reduction operations that combine tensors of one process.

`Op` of :mod:`dlmpi.MPI` and the constants there stand for mpi4py's, with the same handles.
"""

from typing import Any

from dlmpi import _native
from dlmpi._bound import mpi
from dlmpi._standin import Made, StandIn

__all__ = ["PREDEFINED", "Op", "predefined"]


class Op(Made, mpi.Op, metaclass=StandIn):
    """An `mpi4py.MPI.Op` whose `Reduce_local` takes any tensor."""

    __slots__ = ("_name",)

    #: Unset: not predefined.
    _name: str

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Apply a reduction operation to local data.

        The data may be tensors.
        """
        if not _native.reduce_local(self, inbuf, inoutbuf):
            super().Reduce_local(inbuf, inoutbuf)

    def free(self) -> None:
        """Free the operation.

        Call `Free` if not null or predefined.
        """
        if getattr(self, "_name", None) is None:
            super().free()

    def __reduce__(self) -> Any:
        name = getattr(self, "_name", None)
        return super().__reduce__() if name is None else (predefined, (name,))


def predefined(name: str) -> Op:
    """Return the predefined operation of this name: there is one of each."""
    return PREDEFINED[name]


def _named(name: str) -> Op:
    op = Op(getattr(mpi, name))
    op._name = name
    return op


#: mpi4py's constants by name.
PREDEFINED = {name: _named(name) for name, value in vars(mpi).items() if isinstance(value, mpi.Op)}
