"""Puts `dlmpi.MPI` in the place of `mpi4py.MPI`, for every later import in this process."""

from __future__ import annotations

import sys

__all__ = ["install"]


def install() -> None:
    """Start MPI (where it may start) and let `from mpi4py import MPI` give the drop-in."""
    import mpi4py

    from dlmpi import MPI

    sys.modules["mpi4py.MPI"] = MPI
    vars(mpi4py)["MPI"] = MPI
