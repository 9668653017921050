"""mpi4py as dlmpi found it: started, and bound to the native half. Everything else starts here."""

from typing import Any

from dlmpi import _start

_start.before()
try:
    from mpi4py import MPI as mpi  # noqa: N811
except (ImportError, RuntimeError) as error:
    raise ImportError(
        "dlmpi.MPI needs mpi4py and an MPI library; where the site has none, "
        "`pip install 'dlmpi[mpich]'` brings one"
    ) from error
_start.after(mpi)

__all__ = ["NATIVE", "mpi"]

#: The native methods, per class of mpi4py's.
NATIVE: dict[str, dict[str, Any]] = _start.bound(mpi)
