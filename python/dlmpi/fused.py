"""Many tensors reduced as few messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlmpi import _native
from dlmpi.comm import mpi

if TYPE_CHECKING:
    from dlmpi._native import AverageOp

__all__ = ["allreduce_many"]


def allreduce_many(
    tensors: Iterable[object],
    op: mpi.Op | AverageOp | None = None,
    comm: mpi.Intracomm | None = None,
) -> None:
    """Reduce every tensor over all ranks, in place.

    The result is what ``comm.Allreduce(MPI.IN_PLACE, tensor, op)`` gives for each tensor, but the
    tensors travel together: a thousand small gradients cost about what one buffer of their total
    size costs. Shapes, layouts and dtypes may be mixed; all ranks give the same dtypes and element
    counts in the same order. No two tensors may share memory.

    ``op`` is ``MPI.SUM`` if not given, ``comm`` is ``COMM_WORLD``.
    """
    _native.all_reduce_many(tensors, op, mpi.COMM_WORLD if comm is None else comm)
