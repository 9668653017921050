"""torch.distributed over MPI.

Importing this module registers the backend ``"dlmpi"`` and the rendezvous ``mpi://`` with torch; it
starts no MPI::

    torch.distributed.init_process_group("dlmpi")  # under mpiexec or srun, no variables needed

torch 2.14 and newer find the backend without the import, too, where torchrun's variables are set.

Without a process group serve `dlmpi.torch.nn`, communication that autograd differentiates, and the
helpers for plain training loops.
"""

from dlmpi.torch import hooks, nn
from dlmpi.torch._failed import FailedRankError
from dlmpi.torch._late import LateError
from dlmpi.torch._register import install_as, register
from dlmpi.torch.helpers import average_gradients, broadcast_module

__all__ = [
    "FailedRankError",
    "LateError",
    "average_gradients",
    "broadcast_module",
    "hooks",
    "install_as",
    "nn",
    "register",
]

register()
