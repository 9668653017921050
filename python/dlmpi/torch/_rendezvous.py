"""How ranks find each other's store: `mpi://`, and `env://` where its variables are missing.

MPI has wired the ranks already, so an address and a port need not come from the user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from dlmpi import launch

__all__ = ["Env", "mpi", "new_store"]

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT = timedelta(minutes=30)


def new_store(timeout: timedelta) -> Any:
    """Return a store of all ranks on a free port of rank 0; collective over `COMM_WORLD`."""
    from dlmpi import MPI, placement

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    address = placement.torchrun_variables()["MASTER_ADDR"]
    store = None
    offer: tuple[int, str] = (0, "")
    if rank == 0:
        try:
            store = dist.TCPStore(address, 0, size, True, timeout, wait_for_workers=False)
            offer = (store.port, "")
        except Exception as error:
            offer = (0, f"rank 0 could not open a store on {address}: {error}")
    port, problem = world.bcast(offer, root=0)
    if problem:
        raise launch.LaunchError(problem)
    if store is None:
        store = dist.TCPStore(address, port, size, False, timeout, wait_for_workers=False)
    return store


def mpi(url: str, timeout: timedelta = TIMEOUT, **_options: Any) -> Iterator[Any]:
    """Handle `init_method="mpi://"`, for any backend: rank and size are MPI's."""
    from dlmpi import MPI

    world = MPI.COMM_WORLD
    given = dict(parse_qsl(urlparse(url).query))
    for name, value in (("rank", world.Get_rank()), ("world_size", world.Get_size())):
        if given.get(name, str(value)) != str(value):
            raise launch.LaunchError(
                f"{name}={given[name]} was given with mpi://, but MPI says {value}: leave it "
                "out, or start the job with mpiexec or srun"
            )
    yield new_store(timeout), world.Get_rank(), world.Get_size()
    raise RuntimeError("mpi:// ranks cannot meet again: MPI's world does not change")


class Env:
    """torch's own `env://`, given the variables that an MPI launcher does not set."""

    def __init__(self, real: Callable[..., Iterator[Any]]) -> None:
        self.real = real

    def __call__(self, url: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        missing = [name for name in VARIABLES if not os.environ.get(name)]
        if missing and "rank=" not in url and self._launched():
            from dlmpi import placement

            placement.set_environment()
        return self.real(url, *arguments, **options)

    @staticmethod
    def _launched() -> bool:
        """Whether an MPI launcher started this process, or MPI runs already."""
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            return True
        return launch.wired(os.environ)
