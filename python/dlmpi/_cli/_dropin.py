"""Puts the drop-in in the place of `mpi4py.MPI`, for every later import in this process.

What programs then import is a twin of the real module: its names, its file and its spec, since
there are programs that look for the library or for headers beside `MPI.__file__`, with what
`dlmpi.MPI` offers instead.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["install"]


def install() -> None:
    """Start MPI (where it may start) and let `from mpi4py import MPI` give the drop-in."""
    import mpi4py

    from dlmpi import MPI, _children
    from dlmpi import _mpi4py as real

    ours = vars(MPI)
    twin = ModuleType(real.__name__)
    names: dict[str, Any] = vars(twin)
    names.update(vars(real))
    names.update({name: ours[name] for name in vars(real) if name[:2] != "__" and name in ours})
    _children.guard_module(names)
    sys.modules["mpi4py.MPI"] = twin
    vars(mpi4py)["MPI"] = twin
