"""MPI for every DLPack tensor.

``from dlmpi import MPI`` gives every name of ``mpi4py.MPI``; the upper-case methods of its
communicators take NumPy arrays, torch tensors and everything else that speaks DLPack or the buffer
protocol, of any layout, without a copy where none is needed.

Importing this package starts no MPI and imports no framework.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from dlmpi._native import AVG, VERSION, MismatchError, borrow

if TYPE_CHECKING:
    from dlmpi import MPI as MPI
    from dlmpi._watch import timeout as timeout
    from dlmpi.comm import wrap as wrap
    from dlmpi.functional import allgather as allgather
    from dlmpi.functional import allreduce as allreduce
    from dlmpi.functional import alltoall as alltoall
    from dlmpi.functional import bcast as bcast
    from dlmpi.functional import exscan as exscan
    from dlmpi.functional import gather as gather
    from dlmpi.functional import recv as recv
    from dlmpi.functional import reduce as reduce
    from dlmpi.functional import reduce_scatter as reduce_scatter
    from dlmpi.functional import scan as scan
    from dlmpi.functional import scatter as scatter
    from dlmpi.functional import send as send
    from dlmpi.functional import sendrecv as sendrecv
    from dlmpi.fused import allreduce_many as allreduce_many
    from dlmpi.launch import LaunchError as LaunchError
    from dlmpi.placement import device as device
    from dlmpi.placement import local_rank as local_rank
    from dlmpi.placement import local_size as local_size
    from dlmpi.stop import stop_requested as stop_requested

__all__ = [
    "AVG",
    "MPI",
    "LaunchError",
    "MismatchError",
    "__version__",
    "allgather",
    "allreduce",
    "allreduce_many",
    "alltoall",
    "bcast",
    "borrow",
    "device",
    "exscan",
    "gather",
    "local_rank",
    "local_size",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
    "sendrecv",
    "stop_requested",
    "timeout",
    "wrap",
]

__version__: str = VERSION

_FUNCTIONS = (
    "allgather",
    "allreduce",
    "alltoall",
    "bcast",
    "exscan",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
    "sendrecv",
)

#: Names that need MPI, and others that are seldom needed, and the modules that define them.
_LAZY = {
    "MPI": "dlmpi.MPI",
    "allreduce_many": "dlmpi.fused",
    "LaunchError": "dlmpi.launch",
    "device": "dlmpi.placement",
    "local_rank": "dlmpi.placement",
    "local_size": "dlmpi.placement",
    "placement": "dlmpi.placement",
    "stop": "dlmpi.stop",
    "stop_requested": "dlmpi.stop",
    "timeout": "dlmpi._watch",
    "trace": "dlmpi.trace",
    "wrap": "dlmpi.comm",
    **dict.fromkeys(_FUNCTIONS, "dlmpi.functional"),
}


def __getattr__(name: str) -> object:
    """Import what needs MPI when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _import_module(_LAZY[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
