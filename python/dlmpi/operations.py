"""Reduction operations that combine tensors of one process.

`Op` of :mod:`dlmpi.MPI` and the constants there stand for mpi4py's, with the same handles.
"""

from dlmpi._bound import NATIVE, mpi
from dlmpi._standin import Constant, StandIn, stand_for_constants

__all__ = ["Op"]


class Op(Constant, mpi.Op, metaclass=StandIn):
    """An `mpi4py.MPI.Op` whose `Reduce_local` takes any tensor."""

    __slots__ = ("_name",)


for _name, _method in NATIVE["Op"].items():
    setattr(Op, _name, _method)
stand_for_constants(Op)
