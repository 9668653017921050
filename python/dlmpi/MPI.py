"""Every name of ``mpi4py.MPI``, with communicators whose buffer methods take any tensor.

``COMM_WORLD`` and ``COMM_SELF`` are instances of the subclasses in :mod:`dlmpi.comm`, and so are the
communicators that they make. The classes are mpi4py's own, so ``isinstance``, pickling and third-party
code go on working.
"""

from mpi4py import MPI as _real
from mpi4py.MPI import *  # noqa: F403  (for type checkers; the next lines are for the interpreter)

from dlmpi import comm as _comm

#: Names that belong to a module and not to what it offers.
_MODULE_NAMES = frozenset(
    ("__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__")
    + ("__package__", "__path__", "__spec__")
)

globals().update(
    {name: value for name, value in vars(_real).items() if name not in _MODULE_NAMES}
)

COMM_WORLD: _comm.Intracomm = _comm._predefined("COMM_WORLD")
COMM_SELF: _comm.Intracomm = _comm._predefined("COMM_SELF")
