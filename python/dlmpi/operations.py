"""Reduction operations that combine tensors of one process.

`Op` of :mod:`dlmpi.MPI` and the constants there stand for mpi4py's, with the same handles.
"""

from typing import Any

from dlmpi import _native
from dlmpi._bound import mpi
from dlmpi._standin import Constant, StandIn, stand_for_constants

__all__ = ["Op"]


class Op(Constant, mpi.Op, metaclass=StandIn):
    """An `mpi4py.MPI.Op` whose `Reduce_local` takes any tensor."""

    __slots__ = ("_name",)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Apply a reduction operation to local data.

        The data may be tensors.
        """
        if not _native.reduce_local(self, inbuf, inoutbuf):
            super().Reduce_local(inbuf, inoutbuf)


stand_for_constants(Op)
