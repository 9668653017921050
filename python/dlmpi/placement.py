"""Where this rank is: which node, which place on it, which device; and torchrun's variables.

The answer about `COMM_WORLD` comes from the launcher where its numbers agree with MPI's, and costs
no communication; else, and for every other communicator, from MPI, by a collective call.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlmpi import _gpus, launch

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

__all__ = [
    "Place",
    "device",
    "local_rank",
    "local_size",
    "node_rank",
    "num_nodes",
    "place",
    "set_environment",
    "torchrun_variables",
]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a rank among the nodes of its communicator."""

    local_rank: int
    local_size: int
    node_rank: int
    num_nodes: int


def place(comm: Comm | None = None) -> Place:
    """Return the place of this rank, from MPI: collective over `comm`, or over `COMM_WORLD`.

    A node is what shares memory (`COMM_TYPE_SHARED`). Nodes are numbered by their lowest rank.
    """
    from dlmpi import MPI

    world: Any = MPI.COMM_WORLD if comm is None else comm
    node = world.Split_type(MPI.COMM_TYPE_SHARED, key=world.Get_rank())
    try:
        leader = node.bcast(world.Get_rank(), root=0)
        leaders = sorted(set(world.allgather(leader)))
        return Place(node.Get_rank(), node.Get_size(), leaders.index(leader), len(leaders))
    finally:
        node.Free()


_world: Place | None = None


def _world_place() -> Place:
    global _world  # noqa: PLW0603
    if _world is None:
        _world = place()
    return _world


def _launcher() -> launch.Claim | None:
    """Return what the launcher says about places on this node, if it knows MPI's world."""
    from dlmpi import MPI

    world = MPI.COMM_WORLD
    claim = launch.world(os.environ, world.Get_rank(), world.Get_size())
    return claim if claim and None not in (claim.local_rank, claim.local_size) else None


_local: tuple[int, int] | None = None


def _agreed_local() -> tuple[int, int]:
    """Return local rank and size in the world by one rule on all ranks; collective at first."""
    global _local  # noqa: PLW0603
    if _local is None:
        from dlmpi import MPI

        here, claim = _world_place(), _launcher()
        # Containers hide from MPI that ranks share a node; then the launcher knows better.
        better = claim is not None and (
            claim.launcher.ordered or claim.local_size != here.local_size
        )
        _local = (here.local_rank, here.local_size)
        if all(MPI.COMM_WORLD.allgather(better)) and claim is not None:
            _local = (claim.local_rank or 0, claim.local_size or 1)
    return _local


def _world_local() -> tuple[int, int]:
    """Return local rank and size in the world, without communication where that is safe."""
    from dlmpi import MPI

    claim = _launcher()
    if claim is not None and claim.local_size == claim.size:
        return MPI.COMM_WORLD.Get_rank(), claim.size  # one node
    if claim is not None and claim.launcher.ordered:
        return claim.local_rank or 0, claim.local_size or 1
    return _agreed_local()


def local_rank(comm: Comm | None = None) -> int:
    """Return the number of this rank among those of its node, which is in the order of ranks.

    Without `comm`: in `COMM_WORLD`, by the launcher's word; where that does not suffice (several
    nodes under Open MPI's mpiexec), the first call is collective. With `comm`: always collective
    over it.
    """
    return _world_local()[0] if comm is None else place(comm).local_rank


def local_size(comm: Comm | None = None) -> int:
    """Return the number of ranks on this node; collective as `local_rank` is."""
    return _world_local()[1] if comm is None else place(comm).local_size


def node_rank(comm: Comm | None = None) -> int:
    """Return the number of this node among those of `comm` (`COMM_WORLD`); collective."""
    return (_world_place() if comm is None else place(comm)).node_rank


def num_nodes(comm: Comm | None = None) -> int:
    """Return the number of nodes of `comm` (`COMM_WORLD`); collective."""
    return (_world_place() if comm is None else place(comm)).num_nodes


def device(comm: Comm | None = None) -> str:
    """Return the device of this rank, `"cuda:1"` or `"cpu"`: local rank modulo visible GPUs.

    Where each rank sees one GPU of its own, that is `"cuda:0"` on every rank; where none is
    visible, `"cpu"`. Counting the GPUs starts no GPU runtime in this process. Collective as
    `local_rank` is.
    """
    mine = local_rank(comm)
    count = _gpus.visible()
    return f"cuda:{mine % count}" if count else "cpu"


def torchrun_variables() -> dict[str, str]:
    """Return the variables that torchrun would set for this rank; collective over `COMM_WORLD`.

    `MASTER_ADDR` and `MASTER_PORT` are rank 0's if it has them, else an address of rank 0 that a
    test connection from every other node reached, and a port that is held free there.
    """
    from dlmpi import MPI, _rendezvous

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    here = _world_place()
    local = _agreed_local()
    address, port = _rendezvous.meet(world, here)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local[0]),
        "LOCAL_WORLD_SIZE": str(local[1]),
        "GROUP_RANK": str(here.node_rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }


def set_environment() -> dict[str, str]:
    """Set the variables of `torchrun_variables` that are unset, and return all; collective.

    A `RANK` or `WORLD_SIZE` that is set and differs from MPI's is a `LaunchError`.
    """
    from dlmpi import MPI

    world = MPI.COMM_WORLD
    for name, value in (("RANK", world.Get_rank()), ("WORLD_SIZE", world.Get_size())):
        if os.environ.get(name, str(value)) != str(value):
            raise launch.LaunchError(
                f"{name}={os.environ[name]} is set, but MPI says {value}: unset it, or start the "
                "job by the launcher that set it"
            )
    variables = torchrun_variables()
    for name, text in variables.items():
        os.environ.setdefault(name, text)
    return {name: os.environ[name] for name in variables}
