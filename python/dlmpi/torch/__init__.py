"""torch.distributed over MPI.

Importing this module registers the backend ``"dlmpi"`` and the rendezvous ``mpi://`` with torch; it
starts no MPI. torch 2.14 and newer find the backend without the import::

    torch.distributed.init_process_group("dlmpi")  # under mpiexec or srun, no variables needed
"""

from dlmpi.torch._register import install_as, register

__all__ = ["install_as", "register"]

register()
